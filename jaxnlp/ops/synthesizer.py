"""Synthesizer attention: weights that each position computes from itself, without comparing it to others.

For one head, with Z = X A + b_1 [T, K], the output of a first layer:

    A = softmax(ReLU(Z) B + b_2)      weights        [T, S]
    Y = A V                           mixed values   [T, K]

B is [K, C] and b_2 is [C]; in this file C is the maximum length, and only the first S columns are used.

This is attention whose keys are the columns of B, for all examples, with b_2 as one more feature: ReLU(Z) B + b_2 =
[ReLU(Z) 1] [B; b_2]. So `ops.attention` computes it, with its gradient by hand.
"""

import chex
import jax
import jax.numpy as jnp

from jaxnlp.ops.attention import attention_weights, dot_product_attention
from jaxnlp.ops.checks import expect, expect_float


def synthesize(
    z: jax.Array,
    v: jax.Array,
    *,
    w_b: jax.Array,
    b_2: jax.Array | None = None,
    attention_mask: jax.Array | None = None,
    causal: bool = True,
    first_query: int | jax.Array = 0,
    dropout_rate: float = 0.0,
    dropout_key: jax.Array | None = None,
    first_row: int | jax.Array = 0,
) -> jax.Array:
    """Values mixed by weights that depend only on the query's position and content.

    Y = softmax(ReLU(Z) B + b_2) V, for each head; column s of B scores the key at position s.

    Args:
      z: [B, T, H, K], the first layer's output, each head's own part.
      v: values [B, S, H, K]; S = T, unless earlier positions are cached.
      w_b: B [K, C], with C at least S: the first S columns are used.
      b_2: [C] or None.
      attention_mask: [B or 1, H or 1, T or 1, S] bool, True = may attend; None = all that `causal` leaves.
      causal: query t sees only the positions 0..first_query + t.
      first_query: position of the first query, see `ops.attention.dot_product_attention`.
      dropout_rate: share of the weights dropped, in [0, 1).
      dropout_key: random key for it; None = no dropout.
      first_row: position in the whole batch of this shard's first example (see `ops.dropout_masks`).

    Returns:
      [B, T, H, K], dtype of z. A fully masked row is zero.

    Raises: ValueError when there are more keys than columns of B, shapes do not fit, arrays are not float, or the rate
      is outside [0, 1).

    Source: Tay et al. 2021, section 3.1.1 (dense Synthesizer), as in CS224N, assignment 5: B and b_2 are shared by the
    heads.
    """
    fit = z.ndim == v.ndim == 4 and (z.shape[0], *z.shape[2:]) == (v.shape[0], *v.shape[2:])
    expect(fit, "z [B, T, H, K] and v [B, S, H, K]", z=z, v=v)
    q, k = _queries_and_keys(z, v.shape[1], w_b, b_2)
    extra = q.shape[3] - v.shape[3]
    y = dot_product_attention(
        q,
        k,
        jnp.pad(v, [(0, 0), (0, 0), (0, 0), (0, extra)]),  # attention's keys and values are of one width
        attention_mask=attention_mask,
        causal=causal,
        first_query=first_query,
        scale=1.0,
        dropout_rate=dropout_rate,
        dropout_key=dropout_key,
        first_row=first_row,
        implementation="vjp",
    )
    return y[..., : v.shape[3]]


def synthesizer_weights(
    z: jax.Array,
    keys: int,
    *,
    w_b: jax.Array,
    b_2: jax.Array | None = None,
    attention_mask: jax.Array | None = None,
    causal: bool = True,
) -> jax.Array:
    """The attention weights of `synthesize`, before dropout, for inspection.

    A = softmax(ReLU(Z) B + b_2)

    Args:
      z: [B, T, H, K].
      keys: S.
      w_b: B [K, C].
      b_2: [C] or None.
      attention_mask: as for `synthesize`.
      causal: position t attends only to positions 0..t.

    Returns:
      [B, H, T, S], float32 at least; each row sums to 1, and a fully masked one is zero.

    Raises: ValueError as `synthesize`.
    """
    q, k = _queries_and_keys(z, keys, w_b, b_2)
    return attention_weights(q, k, attention_mask=attention_mask, causal=causal, scale=1.0)


def _queries_and_keys(z, keys, w_b, b_2):
    """[ReLU(Z) 1], and the columns of [B; b_2] for each example and head."""
    fit = z.ndim == 4 and w_b.ndim == 2 and w_b.shape[0] == z.shape[3] and (b_2 is None or b_2.shape == w_b.shape[1:])
    expect(fit, "z [B, T, H, K], w_b [K, C] and b_2 [C] or None", z=z, w_b=w_b, b_2=b_2)
    expect_float(z=z, w_b=w_b, b_2=b_2)
    if keys > w_b.shape[1]:
        raise ValueError(f"a sequence of {keys} positions exceeds the synthesizer's {w_b.shape[1]}")
    q, columns = jax.nn.relu(z), w_b[:, :keys].T
    if b_2 is not None:
        q = jnp.concatenate([q, jnp.ones_like(z[..., :1])], axis=-1)
        columns = jnp.concatenate([columns, b_2[:keys, None].astype(w_b.dtype)], axis=-1)
    batch, positions, heads, width = z.shape
    extra = 0 if b_2 is None else 1
    chex.assert_shape((q, columns), [(batch, positions, heads, width + extra), (keys, width + extra)])
    return q, jnp.broadcast_to(columns[None, :, None], (batch, keys, heads, width + extra))
