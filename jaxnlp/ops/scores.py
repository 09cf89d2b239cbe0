"""Scores of a query and each key for recurrent attention, all with one signature.

score(q [B, T, Q], k [B, S, K], **parameters) -> [B, T, S]
"""

import chex
import jax
import jax.numpy as jnp


def dot(q: jax.Array, k: jax.Array) -> jax.Array:
    """q^T k of q [B, T, K] and k [B, S, K]: [B, T, S].

    Source: Luong et al. 2015, section 3.1, "dot".
    """
    chex.assert_shape((q, k), (q.shape[0], None, None))
    return jnp.einsum("btk,bsk->bts", q, k)


def scaled_dot(q: jax.Array, k: jax.Array) -> jax.Array:
    """q^T k / sqrt(K) of q [B, T, K] and k [B, S, K]: [B, T, S].

    Source: Vaswani et al. 2017, eq. 1.
    """
    return dot(q, k) * k.shape[-1] ** -0.5


def multiplicative(q: jax.Array, k: jax.Array, *, w: jax.Array) -> jax.Array:
    """q^T W k.

    Args:
      q: [B, T, Q].
      k: [B, S, K].
      w: [Q, K].

    Source: Luong et al. 2015, section 3.1, "general".
    """
    return dot(jnp.einsum("btq,qk->btk", q, w), k)


def additive(
    q: jax.Array, k: jax.Array, *, w_q: jax.Array, w_k: jax.Array | None, b: jax.Array | None = None, v: jax.Array
) -> jax.Array:
    """v^T tanh(W_q q + W_k k + b).

    Args:
      q: [B, T, Q].
      k: [B, S, K].
      w_q: [Q, D].
      w_k: [K, D]; W_k k of all keys is the same for each query, and computed once. None: k is already W_k k.
      b: [D] or None.
      v: [D].

    Source: Bahdanau et al. 2015, appendix A.1.2.
    """
    chex.assert_shape((q, k), (q.shape[0], None, None))
    queries = jnp.einsum("btq,qd->btd", q, w_q)
    if b is not None:
        queries = queries + b[None, None]
    keys = k if w_k is None else jnp.einsum("bsk,kd->bsd", k, w_k)
    chex.assert_shape((queries, keys), [(*q.shape[:2], len(v)), (*k.shape[:2], len(v))])
    return jnp.einsum("btsd,d->bts", jnp.tanh(queries[:, :, None] + keys[:, None]), v)
