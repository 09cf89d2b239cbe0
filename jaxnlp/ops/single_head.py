"""One head of self-attention with its projections, and every step of its gradient, for inspection.

Models use `ops.attention.dot_product_attention`. This file has the derivation as a course assigns it: from the input to
the output, and back to the input and the three matrices; docs/attention.md explains each array. In this file V is the
width of the values.
"""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from jaxnlp.ops import masks
from jaxnlp.ops.checks import expect, expect_float


class SelfAttentionArrays(NamedTuple):
    """The arrays of the forward pass, in its order.

    Attributes:
      q: queries [B, T, K].
      k: keys [B, T, K].
      v: values [B, T, V].
      scores: [B, T, T], scaled; -inf where a position may not attend.
      weights: [B, T, T], each row sums to 1; a fully masked one is zero.
      y: [B, T, V].
    """

    q: jax.Array
    k: jax.Array
    v: jax.Array
    scores: jax.Array
    weights: jax.Array
    y: jax.Array


class SelfAttentionGradients(NamedTuple):
    """The gradient of a loss with respect to every array of the forward pass, in the order of the backward pass.

    Attributes:
      dv: [B, T, V].
      dweights: [B, T, T].
      dscores: [B, T, T].
      dq: [B, T, K].
      dk: [B, T, K].
      dx: [B, T, D].
      dw_q: [D, K], summed over the batch.
      dw_k: [D, K].
      dw_v: [D, V].
    """

    dv: jax.Array
    dweights: jax.Array
    dscores: jax.Array
    dq: jax.Array
    dk: jax.Array
    dx: jax.Array
    dw_q: jax.Array
    dw_k: jax.Array
    dw_v: jax.Array


def self_attention(
    x: jax.Array,
    w_q: jax.Array,
    w_k: jax.Array,
    w_v: jax.Array,
    *,
    causal: bool = True,
    attention_mask: jax.Array | None = None,
) -> jax.Array:
    """One head of self-attention.

    Y = softmax(X W_q (X W_k)^T / sqrt(K)) X W_v, with its gradient by hand.

    Args:
      x: [B, T, D], float.
      w_q: [D, K].
      w_k: [D, K].
      w_v: [D, V].
      causal: position t attends only to positions 0..t.
      attention_mask: broadcastable to [B, T, T]: bool, True = may attend, or float, 0 = may attend and -inf = may not;
        None = all.

    Returns:
      [B, T, V].

    Raises: ValueError when shapes do not fit, when arrays are not float, and for a mask with a bias (`masks`).

    Source: Vaswani et al. 2017, section 3.2.1, eq. 1.
    """
    _check(x, w_q, w_k, w_v)
    return _self_attention(x, w_q, w_k, w_v, _combined(attention_mask, causal, x.shape[1]))


def self_attention_gradients(
    x: jax.Array,
    w_q: jax.Array,
    w_k: jax.Array,
    w_v: jax.Array,
    dy: jax.Array,
    *,
    causal: bool = True,
    attention_mask: jax.Array | None = None,
) -> tuple[SelfAttentionArrays, SelfAttentionGradients]:
    """Every array of the forward pass and every gradient of the backward pass, to print and to compare.

    Args: as for `self_attention`, and dy [B, T, V], the gradient of the loss with respect to the output.
    """
    _check(x, w_q, w_k, w_v)
    expected = (*x.shape[:2], w_v.shape[1])
    if dy.shape != expected:
        raise ValueError(f"expected dy of the output's shape {expected}, got {dy.shape}")
    steps = _steps(x, w_q, w_k, w_v, _combined(attention_mask, causal, x.shape[1]))
    return steps, _gradients(x, w_q, w_k, w_v, steps.q, steps.k, steps.v, steps.weights, dy)


def _check(x: jax.Array, w_q: jax.Array, w_k: jax.Array, w_v: jax.Array) -> None:
    matrices = w_q.ndim == w_k.ndim == w_v.ndim == 2
    fit = x.ndim == 3 and matrices and w_q.shape == w_k.shape and x.shape[2] == w_q.shape[0] == w_v.shape[0]
    expect(fit, "x [B, T, D], w_q and w_k [D, K] and w_v [D, V]", x=x, w_q=w_q, w_k=w_k, w_v=w_v)
    expect_float(x=x, w_q=w_q, w_k=w_k, w_v=w_v)


def _combined(attention_mask: jax.Array | None, causal: bool, positions: int) -> jax.Array:
    """The boolean mask [1 or B, T, T] of `attention_mask` and `causal` together."""
    mask = masks.causal(positions, positions)[0] if causal else jnp.ones((1, positions, positions), bool)
    if attention_mask is None:
        return mask
    attention_mask = attention_mask.reshape((1,) * (3 - attention_mask.ndim) + attention_mask.shape)
    chex.assert_rank(attention_mask, 3)
    return mask & (attention_mask if attention_mask.dtype == jnp.bool_ else masks.from_additive(attention_mask))


def _steps(x, w_q, w_k, w_v, mask) -> SelfAttentionArrays:
    batch, positions, _ = x.shape
    q = jnp.einsum("btd,dk->btk", x, w_q)
    k = jnp.einsum("bsd,dk->bsk", x, w_k)
    v = jnp.einsum("bsd,dv->bsv", x, w_v)
    scores = jnp.einsum("btk,bsk->bts", q, k) * w_q.shape[1] ** -0.5
    # A finite number for the softmax, because a row of -inf would give NaN.
    weights = jnp.where(mask, jax.nn.softmax(jnp.where(mask, scores, jnp.finfo(scores.dtype).min), axis=-1), 0.0)
    chex.assert_shape((q, k), (batch, positions, w_q.shape[1]))
    chex.assert_shape((scores, weights), (batch, positions, positions))
    y = jnp.einsum("bts,bsv->btv", weights, v)
    chex.assert_shape((v, y), (batch, positions, w_v.shape[1]))
    return SelfAttentionArrays(q, k, v, jnp.where(mask, scores, -jnp.inf), weights, y)


def _gradients(x, w_q, w_k, w_v, q, k, v, weights, dy) -> SelfAttentionGradients:
    scale = w_q.shape[1] ** -0.5
    dv = jnp.einsum("bts,btv->bsv", weights, dy)
    dweights = jnp.einsum("btv,bsv->bts", dy, v)
    dscores = weights * (dweights - (weights * dweights).sum(axis=-1, keepdims=True))
    dq = jnp.einsum("bts,bsk->btk", dscores, k) * scale
    dk = jnp.einsum("bts,btk->bsk", dscores, q) * scale
    dw_q = jnp.einsum("btd,btk->dk", x, dq)
    dw_k = jnp.einsum("bsd,bsk->dk", x, dk)
    dw_v = jnp.einsum("bsd,bsv->dv", x, dv)
    # x reaches the loss in three ways.
    dx = jnp.einsum("btk,dk->btd", dq, w_q) + jnp.einsum("bsk,dk->bsd", dk, w_k) + jnp.einsum("bsv,dv->bsd", dv, w_v)
    chex.assert_equal_shape((dx, x))
    chex.assert_shape((dq, dk, dv, dweights, dscores), [q.shape, k.shape, v.shape, weights.shape, weights.shape])
    chex.assert_shape((dw_q, dw_k, dw_v), [w_q.shape, w_k.shape, w_v.shape])
    return SelfAttentionGradients(dv, dweights, dscores, dq, dk, dx, dw_q, dw_k, dw_v)


@jax.custom_vjp
def _self_attention(x, w_q, w_k, w_v, mask):
    return _steps(x, w_q, w_k, w_v, mask).y


def _forward(x, w_q, w_k, w_v, mask):
    steps = _steps(x, w_q, w_k, w_v, mask)
    return steps.y, (x, w_q, w_k, w_v, steps.q, steps.k, steps.v, steps.weights)


def _backward(residuals, dy):
    x, w_q, w_k, w_v, q, k, v, weights = residuals
    g = _gradients(x, w_q, w_k, w_v, q, k, v, weights, dy)
    return g.dx, g.dw_q, g.dw_k, g.dw_v, None


_self_attention.defvjp(_forward, _backward)
