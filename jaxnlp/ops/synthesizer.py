"""Synthesizer attention: weights that each position computes from itself, without dot products."""

import jax
import jax.numpy as jnp

from jaxnlp.ops import masks
from jaxnlp.ops.dropout import dropout
from jaxnlp.ops.matmul import accumulator


def synthesize(
    z: jax.Array,
    v: jax.Array,
    *,
    w_b: jax.Array,
    b_2: jax.Array | None = None,
    causal: bool = True,
    first_query: int | jax.Array = 0,
    dropout_rate: float = 0.0,
    dropout_key: jax.Array | None = None,
    first_row: int | jax.Array = 0,
) -> jax.Array:
    """Values mixed by weights that depend on the query's position and content alone.

    Y = softmax(ReLU(Z) B + b_2) V, for each head, with Z = X A + b_1; column s of B scores the key at position s.

    Args:
      z: [B, T, H, K], the first layer's output, each head's own part.
      v: values [B, S, H, K]; S = T, unless earlier positions are cached.
      w_b: B [K, C], with C at least S: the first S columns are used.
      b_2: [C] or None.
      causal: position t attends to positions 0..t alone.
      first_query: position of the first query, not 0 when values of earlier calls are cached.
      dropout_rate: share of the weights dropped, in [0, 1).
      dropout_key: random key for it; None = no dropout.
      first_row: position in the whole batch of this shard's first example (see `ops.dropout`).

    Returns:
      [B, T, H, K], dtype of v.

    Raises:
      ValueError: when there are more keys than B has columns; the message gives both.

    Source: Tay et al. 2021, section 3.1.1 (dense Synthesizer), as in CS224N, assignment 5: B and b_2 are shared
    by the heads.
    """
    weights = synthesizer_weights(z, v.shape[1], w_b=w_b, b_2=b_2, causal=causal, first_query=first_query)
    if dropout_key is not None:
        weights = dropout(weights, dropout_rate, dropout_key, first_row=first_row)
    return jnp.einsum("bhts,bshk->bthk", weights.astype(v.dtype), v)


def synthesizer_weights(
    z: jax.Array,
    keys: int,
    *,
    w_b: jax.Array,
    b_2: jax.Array | None = None,
    causal: bool = True,
    first_query: int | jax.Array = 0,
) -> jax.Array:
    """The weights of `synthesize`, before dropout.

    A = softmax(ReLU(Z) B + b_2)

    Args:
      z: [B, T, H, K].
      keys: S.
      w_b: B [K, C].
      b_2: [C] or None.
      causal: position t attends to positions 0..t alone.
      first_query: position of the first query.

    Returns:
      [B, H, T, S], float32 at least; each row sums to 1.

    Raises:
      ValueError: as `synthesize`.
    """
    if keys > w_b.shape[1]:
        raise ValueError(f"a sequence of {keys} positions exceeds the synthesizer's {w_b.shape[1]}")
    hidden = jax.nn.relu(z).swapaxes(1, 2)  # here, where it is smaller than the scores would be
    scores = jnp.einsum("bhtk,ks->bhts", hidden, w_b[:, :keys]).astype(accumulator(z.dtype))
    if b_2 is not None:
        scores = scores + b_2[None, None, None, :keys].astype(scores.dtype)
    if causal:
        mask = masks.causal(z.shape[1], keys, first_query=first_query)
        scores = jnp.where(mask, scores, jnp.finfo(scores.dtype).min)
    return jax.nn.softmax(scores, axis=-1)
