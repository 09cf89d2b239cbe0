"""The decoder of the attention LSTM over a whole target: one scan, with the gradients of its large matrices by hand.

With x_t the part of the LSTM's gates that depends on the target's tokens, and m_s the memory, the encoder's outputs:

    h_t, c_t = lstm(x_t + [o_{t-1}; h_{t-1}] W_h, c_{t-1})
    a_t = sum_s softmax_s(score(h_t, k_s)) m_s
    o_t = r_t * tanh([a_t; h_t] W_o)

r_t is the dropout of o_t, which the output layer and the next step read (input feeding). With du_t and dv_t the
gradients of the arguments of lstm and tanh, over all positions and the batch,

    dx = du,   dW_h = [o; h]_before^T du,   dW_o = [a; h]^T dv

are one product each, after the scan. Autodiff of a scan would add up T products of small matrices instead.

E is the width of the memory.

Source: Luong et al. 2015, sections 3.1 and 3.3; the order of the steps is that of CS224N, assignment 4.
"""

import functools
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import chex
import jax
import jax.numpy as jnp

from jaxnlp.ops import scores
from jaxnlp.ops.checks import expect
from jaxnlp.ops.lstm import lstm_cell
from jaxnlp.ops.matrix_products import accumulator, product, transposed

ScoreName = Literal["multiplicative", "dot", "additive"]


class Memory(NamedTuple):
    """The memory that the decoder attends to.

    Attributes:
      keys: [B, S, K] for the scores: W m for multiplicative ones, m for dot, W m + b for additive ones.
      values: m [B, S, E].
      mask: [B, S] bool, True = may attend. A row of False gets uniform weights.
    """

    keys: jax.Array
    values: jax.Array
    mask: jax.Array


class DecoderState(NamedTuple):
    """The state between two steps: h, c and o, each [B, K]."""

    h: jax.Array
    c: jax.Array
    o: jax.Array


class Decoded(NamedTuple):
    """The outputs of all steps.

    Attributes:
      o: [B, T, K].
      weights: of attention [B, T, S].
      state: after the last position.
    """

    o: jax.Array
    weights: jax.Array
    state: DecoderState


def decode(
    x: jax.Array,
    memory: Memory,
    state: DecoderState,
    *,
    w_h: jax.Array,
    w_o: jax.Array,
    score: ScoreName = "multiplicative",
    score_params: Mapping[str, jax.Array] | None = None,
    dropout: jax.Array | None = None,
    count: jax.Array | int | None = None,
    matmul_dtype: jax.typing.DTypeLike | None = None,
) -> Decoded:
    """All steps over a target, see this module's docstring.

    Args:
      x: [B, T, 4 K], the bias included; gates in the order of `ops.lstm.lstm_cell`.
      memory: see `Memory`.
      state: before the first position.
      w_h: [2 K, 4 K]: the rows of o, then those of h.
      w_o: [E + K, K]: the rows of a, then those of h.
      score: name of the score of a query and a key.
      score_params: of additive scores: `w_q` [K, K] and `v` [K], see `ops.scores.additive`; None for the others.
      dropout: r [B, T, K]; None = all ones.
      count: [] int: return the state after the first `count` positions; None = after all.
      matmul_dtype: dtype for the operands of the products with w_h and w_o; None = the dtype of x.

    Raises: ValueError for shapes that do not fit, and for an unknown score.
    """
    width, (_, _, encoder_width) = state.h.shape[-1], memory.values.shape
    fits = x.shape[2:] == (4 * width,) and w_h.shape == (2 * width, 4 * width)
    fits = fits and w_o.shape == (encoder_width + width, width) and memory.keys.shape[2] == width
    expect(
        fits,
        "x [B, T, 4 K], keys [B, S, K], values [B, S, E], w_h [2 K, 4 K], w_o [E + K, K], states [B, K]",
        x=x,
        keys=memory.keys,
        values=memory.values,
        w_h=w_h,
        w_o=w_o,
        h=state.h,
    )
    if score not in ("multiplicative", "dot", "additive"):
        raise ValueError(f"score must be one of multiplicative, dot, additive, got {score!r}")
    positions = x.shape[1]
    dropout = jnp.ones((*x.shape[:2], width), x.dtype) if dropout is None else dropout
    valid = jnp.arange(positions) < (positions if count is None else count)
    dtype = jnp.dtype(matmul_dtype or x.dtype).name
    # Time first, so that each step of the scan reads one block of memory.
    steps = x.swapaxes(0, 1), dropout.swapaxes(0, 1)
    outputs = _decode(score, dtype, *steps, memory, state, dict(score_params or {}), w_h, w_o, valid)
    return Decoded(outputs.o.swapaxes(0, 1).astype(x.dtype), outputs.weights.swapaxes(0, 1), outputs.state)


class _Steps(NamedTuple):
    """Arrays [T, B, ...] of the steps, and the last state."""

    o: jax.Array
    weights: jax.Array
    state: DecoderState
    h: jax.Array
    a: jax.Array


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _decode(score, dtype, x, dropout, memory, state, score_params, w_h, w_o, valid):
    before_tanh = jnp.zeros(dropout.shape, accumulator(x.dtype))
    return _scan(score, dtype, w_h, w_o, valid, x, before_tanh, dropout, memory, state, score_params)


def _forward(score, dtype, x, dropout, memory, state, score_params, w_h, w_o, valid):
    scan = functools.partial(_scan, score, dtype, w_h, w_o, valid)
    # Added before tanh: its gradient is dv. That of x is du.
    nothing = jnp.zeros(dropout.shape, accumulator(x.dtype))
    outputs, pull = jax.vjp(scan, x, nothing, dropout, memory, state, score_params)
    return outputs, (pull, outputs, state, w_h, w_o)


def _backward(score, dtype, residuals, cotangents):
    del score
    pull, outputs, state, w_h, w_o = residuals
    du, dv, d_dropout, d_memory, d_state, d_score_params = pull(cotangents)

    def before(first, later):
        return jnp.concatenate([first[None].astype(later.dtype), later[:-1]])

    def gradient(parts, d, like):
        rows = jnp.concatenate(parts, axis=-1)
        rows, d = (array.reshape(-1, array.shape[-1]).astype(dtype) for array in (rows, d))
        return product(transposed(rows), d, "dn,nf->df").astype(like.dtype)

    dw_h = gradient([before(state.o, outputs.o), before(state.h, outputs.h)], du, w_h)
    dw_o = gradient([outputs.a, outputs.h], dv, w_o)
    chex.assert_equal_shape([dw_h, w_h])
    chex.assert_equal_shape([dw_o, w_o])
    return du, d_dropout, d_memory, d_state, d_score_params, dw_h, dw_o, None


_decode.defvjp(_forward, _backward)


def _scan(score, dtype, w_h, w_o, valid, x, before_tanh, dropout, memory, state, score_params) -> _Steps:
    wide = accumulator(x.dtype)
    short_w_h, short_w_o = w_h.astype(dtype), w_o.astype(dtype)
    keys, values = memory.keys.astype(wide), memory.values.astype(wide)
    hidden = jnp.where(memory.mask, 0.0, jnp.finfo(wide).min / 2)

    def step(state: DecoderState, now: Any) -> tuple[DecoderState, Any]:
        x, before_tanh, dropout, valid = now
        recurrent = product(jnp.concatenate([state.o, state.h], axis=-1).astype(dtype), short_w_h, "bk,kg->bg")
        h, c = lstm_cell(x.astype(wide) + recurrent, state.c)
        query = h[:, None]
        if score == "additive":
            attention_scores = scores.additive(query, keys, w_q=score_params["w_q"], w_k=None, v=score_params["v"])
        else:
            attention_scores = scores.dot(query, keys)
        weights = jax.nn.softmax(attention_scores[:, 0] + hidden, axis=-1)
        a = jnp.einsum("bs,bse->be", weights, values)
        chex.assert_shape([h, c], state.h.shape)
        v = product(jnp.concatenate([a, h], axis=-1).astype(dtype), short_w_o, "bk,kd->bd") + before_tanh
        new = DecoderState(h, c, dropout * jnp.tanh(v))
        kept = DecoderState(*(jnp.where(valid, after, before) for after, before in zip(new, state, strict=True)))
        return kept, (new.o, weights, h, a)

    first = DecoderState(*(array.astype(wide) for array in state))
    final, (o, weights, h, a) = jax.lax.scan(step, first, (x, before_tanh, dropout.astype(wide), valid))
    last = DecoderState(*(after.astype(like.dtype) for after, like in zip(final, state, strict=True)))
    return _Steps(o, weights, last, h, a)
