"""The continuous cache of a recurrent language model: words after similar hidden states become more likely.

With h_t the hidden state that predicts word w_{t+1}, and memory (h_i, w_{i+1}) of the last W positions i < t,

    p_cache(w) = sum_i softmax_i(theta h_t . h_i) [w_{i+1} = w]
    p(w) = (1 - share) p_model(w) + share p_cache(w)

It needs no training.

Source: Grave et al. 2017, equations 3 and 4.
"""

import chex
import jax
import jax.numpy as jnp


def cache_probability(
    hidden: jax.Array,
    targets: jax.Array,
    counted: jax.Array,
    memory: jax.Array,
    memory_words: jax.Array,
    memory_filled: jax.Array,
    *,
    theta: float,
) -> tuple[jax.Array, jax.Array]:
    """The cache's probability of each position's target.

    Position t reads the W positions before it, of this batch and then of the memory.

    Args:
      hidden: h_t [B, T, K], float.
      targets: the words that follow [B, T] int.
      counted: [B, T] bool, False for padding, which is not read.
      memory: hidden states of the W positions before the batch, oldest first [B, W, K].
      memory_words: the words after them [B, W] int.
      memory_filled: [B, W] bool, False for positions before the start of the text.
      theta: weight of the similarity of hidden states; 0 = all positions have the same weight.

    Returns:
      p_cache(target) [B, T] float32, and whether the cache has any position [B, T] bool; otherwise p_cache is 0.
    """
    batch, positions, width = hidden.shape
    window = memory.shape[1]
    keys = jnp.concatenate([memory, hidden], axis=1).astype(jnp.float32)
    words = jnp.concatenate([memory_words, targets], axis=1)
    filled = jnp.concatenate([memory_filled, counted], axis=1)
    age = window + jnp.arange(positions)[:, None] - jnp.arange(window + positions)[None, :]
    seen = ((age >= 1) & (age <= window))[None] & filled[:, None, :]
    chex.assert_shape(keys, (batch, window + positions, width))
    chex.assert_shape((words, filled), (batch, window + positions))
    chex.assert_shape(seen, (batch, positions, window + positions))
    sees_any = seen.any(axis=-1)
    scores = jnp.where(seen, theta * jnp.einsum("btk,bsk->bts", hidden.astype(jnp.float32), keys), -jnp.inf)
    chex.assert_equal_shape((scores, seen))
    highest = jnp.where(sees_any, scores.max(axis=-1), 0.0)
    exponentials = jnp.exp(scores - highest[..., None])
    same = words[:, None, :] == targets[:, :, None]
    shares = jnp.where(same, exponentials, 0.0).sum(axis=-1) / jnp.where(sees_any, exponentials.sum(axis=-1), 1.0)
    chex.assert_shape((shares, sees_any), (batch, positions))
    return shares, sees_any


def remembered(
    hidden: jax.Array,
    targets: jax.Array,
    counted: jax.Array,
    memory: jax.Array,
    memory_words: jax.Array,
    memory_filled: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The memory after a batch: the newest W positions of each of its three arrays. Args: as `cache_probability`.

    Returns: hidden states [B, W, K], the words after them [B, W], and whether they exist [B, W].
    """
    oldest = hidden.shape[1]
    return (
        jnp.concatenate([memory, hidden.astype(memory.dtype)], axis=1)[:, oldest:],
        jnp.concatenate([memory_words, targets], axis=1)[:, oldest:],
        jnp.concatenate([memory_filled, counted], axis=1)[:, oldest:],
    )
