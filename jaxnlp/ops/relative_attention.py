"""Attention with a learned vector for each distance between a query and a key."""

import jax
import jax.numpy as jnp

from jaxnlp.ops.attention import attention_weights
from jaxnlp.ops.checks import expect, expect_float
from jaxnlp.ops.dropout_masks import dropout
from jaxnlp.ops.matrix_products import accumulator


def attend_relative(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    key_vectors: jax.Array,
    value_vectors: jax.Array,
    *,
    attention_mask: jax.Array | None = None,
    causal: bool = False,
    first_query: int | jax.Array = 0,
    dropout_rate: float = 0.0,
    dropout_key: jax.Array | None = None,
    first_row: int | jax.Array = 0,
) -> tuple[jax.Array, jax.Array]:
    """Attention with keys and values that depend on the distance, too.

    With a^K and a^V the vectors of the distance from query t to key s,

        A_ts = softmax_s(q_t . (k_s + a^K_ts) / sqrt(K))
        y_t = sum_s A_ts (v_s + a^V_ts)

    The vectors are shared by all examples and heads. Neither k + a^K nor v + a^V is built: the terms are two products
    each.

    Args:
      q, k, v: queries [B, T, H, K], keys and values [B, S, G, K], float, as for `dot_product_attention`.
      key_vectors: a^K [T, S, K], such as a table's rows at `relative_positions.clipped_distances`.
      value_vectors: a^V [T, S, K].
      attention_mask, causal, first_query, dropout_rate, dropout_key, first_row: as for `dot_product_attention`.

    Returns:
      y [B, T, H, K], dtype of q; and the weights A [B, H, T, S] before dropout, float32 at least. A fully masked row is
      zero in both.

    Raises: ValueError when shapes do not fit, arrays are not float, or the rate is outside [0, 1).

    Source: Shaw et al. 2018, section 3.1, eq. 3 and 4; section 3.3 for the products.
    """
    fit = q.ndim == k.ndim == 4 and key_vectors.shape == value_vectors.shape == (q.shape[1], k.shape[1], q.shape[3])
    expect(
        fit,
        "q [B, T, H, K], k [B, S, G, K], key_vectors and value_vectors [T, S, K]",
        q=q,
        k=k,
        key_vectors=key_vectors,
        value_vectors=value_vectors,
    )
    expect_float(key_vectors=key_vectors, value_vectors=value_vectors)
    wide = accumulator(q.dtype)
    # XLA has no bfloat16 product on CPU for these two equations, so their operands are float32.
    scores = jnp.einsum("bthk,tsk->bhts", q.astype(wide), key_vectors.astype(wide))
    weights = attention_weights(
        q,
        k,
        attention_mask=attention_mask,
        bias=scores * q.shape[3] ** -0.5,
        causal=causal,
        first_query=first_query,
    )
    kept = weights if dropout_key is None else dropout(weights, dropout_rate, dropout_key, first_row=first_row)
    v = jnp.repeat(v, q.shape[2] // v.shape[2], axis=2)
    y = jnp.einsum("bhts,bshk->bthk", kept.astype(v.dtype), v, preferred_element_type=wide)
    y += jnp.einsum("bhts,tsk->bthk", kept.astype(wide), value_vectors.astype(wide))
    return y.astype(q.dtype), weights
