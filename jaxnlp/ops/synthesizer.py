"""Synthesizer attention: weights that each position computes from itself, without dot products."""

import jax
import jax.numpy as jnp

from jaxnlp.ops import masks
from jaxnlp.ops.dropout import dropout
from jaxnlp.ops.matmul import accumulator


def synthesize(
    x: jax.Array,
    v: jax.Array,
    *,
    w_a: jax.Array,
    b_1: jax.Array,
    w_b: jax.Array,
    b_2: jax.Array,
    causal: bool = True,
    dropout_rate: float = 0.0,
    dropout_key: jax.Array | None = None,
    first_row: int | jax.Array = 0,
) -> jax.Array:
    """Values mixed by weights that depend on the query's position and content alone.

    Y = softmax(ReLU(X A + b_1) B + b_2) V, for each head; column s of B scores the key at position s.

    Args:
      x: [B, T, H, K], the input as each head sees it.
      v: values [B, T, H, K].
      w_a: A [K, K].
      b_1: [K].
      w_b: B [K, S], with S at least T: the first T columns are used.
      b_2: [S].
      causal: position t attends to positions 0..t alone.
      dropout_rate: share of the weights dropped, in [0, 1).
      dropout_key: random key for it; None = no dropout.
      first_row: position in the whole batch of this shard's first example (see `ops.dropout`).

    Returns:
      [B, T, H, K].

    Raises:
      ValueError: when the sequence is longer than B has columns; the message gives both.

    Source: Tay et al. 2021, section 3.1.1 (dense Synthesizer). A and B are shared by the heads.
    """
    positions = x.shape[1]
    if positions > w_b.shape[1]:
        raise ValueError(f"a sequence of {positions} positions exceeds the synthesizer's {w_b.shape[1]}")
    hidden = jax.nn.relu(jnp.einsum("bthk,kj->bthj", x, w_a) + b_1[None, None, None])
    scores = jnp.einsum("bthk,ks->bhts", hidden, w_b[:, :positions]) + b_2[None, None, None, :positions]
    scores = scores.astype(accumulator(x.dtype))
    if causal:
        scores = jnp.where(masks.causal(positions, positions), scores, jnp.finfo(scores.dtype).min)
    weights = jax.nn.softmax(scores, axis=-1)
    if dropout_key is not None:
        weights = dropout(weights, dropout_rate, dropout_key, first_row=first_row)
    return jnp.einsum("bhts,bshk->bthk", weights.astype(v.dtype), v)
