"""The mogrifier: the input and the state of an LSTM gate each other in turns before each step.

The gated input depends on the state, so the input products of all time steps cannot be one product before the scan, as
in `ops.recurrent_layers`. A layer of K features that reads K features multiplies 8 K^2 numbers a word; r rounds add r
K^2, or 2 r K R with matrices of rank R. The time grows by more: a step's products are small, wait for each other, and
the gradients of the weights are added up step by step.
"""

import itertools
from collections.abc import Sequence
from typing import Any

import chex
import jax
import jax.numpy as jnp

from jaxnlp.ops.checks import expect, expect_float
from jaxnlp.ops.lstm import lstm_cell
from jaxnlp.ops.matrix_products import accumulator, matmul

Gate = tuple[jax.Array, ...]
"""The matrix of a round, or its factors: [K, D] or [K, R], [R, D] in odd rounds, [D, K] or [D, R], [R, K] in even ones;
R is the rank."""


def mogrify(
    x: jax.Array, h: jax.Array, gates: Sequence[Gate], matmul_dtype: jax.typing.DTypeLike | None = None
) -> tuple[jax.Array, jax.Array]:
    """The input and the state of a step after mutual gating, in rounds i = 1, 2, ...

    x <- 2 sigmoid(h Q_i) * x for odd i;   h <- 2 sigmoid(x Q_i) * h for even i

    Matrices of zeros change nothing.

    >>> x, h = jnp.ones((1, 2)), jnp.ones((1, 3))
    >>> gated, same = mogrify(x, h, [(jnp.full((3, 2), 9.0),)])
    >>> gated.tolist(), same.tolist()
    ([[2.0, 2.0]], [[1.0, 1.0, 1.0]])

    Args:
      x: [B, D], float.
      h: [B, K], float: the output before the step.
      gates: Q_i of each round.
      matmul_dtype: dtype that the products' operands are rounded to; None = no rounding.

    Returns:
      x' [B, D] and h' [B, K].

    Raises: ValueError when shapes do not fit, or arrays are not float.

    Source: Melis et al. 2020, section 2.
    """
    expect(x.ndim == h.ndim == 2 and len(x) == len(h), "x [B, D] and h [B, K]", x=x, h=h)
    for index, gate in enumerate(gates):
        read, gated = (x, h) if index % 2 else (h, x)
        sizes = [read.shape[1], *(array.shape[-1] for array in gate)]
        shapes = [array.shape for array in gate]
        fits = bool(gate) and shapes == list(itertools.pairwise(sizes)) and sizes[-1] == gated.shape[1]
        arrays = {f"gate_{index + 1}_{number}": array for number, array in enumerate(gate)}
        expect(fits, "gates [K, D] in odd rounds and [D, K] in even ones, or their factors", x=x, h=h, **arrays)
        expect_float(x=x, h=h, **arrays)
        z = read
        for array in gate:
            z = matmul(z, array, matmul_dtype)
        gated = 2.0 * jax.nn.sigmoid(z) * gated
        x, h = (read, gated) if index % 2 else (gated, read)
    return x, h


def mogrified_lstm(
    x: jax.Array,
    state: tuple[jax.Array, ...],
    gates: Sequence[Gate],
    *,
    w_x: jax.Array,
    w_h: jax.Array,
    b: jax.Array,
    lengths: jax.Array | None,
    reverse: bool,
    matmul_dtype: jax.typing.DTypeLike | None,
) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    """An LSTM over a whole sequence, with input and state mogrified before each step. The cell state is not gated.

    Its gradient is autodiff's, which adds up the products of all steps for the weights.

    Args, Returns: as `ops.recurrent_layers.recurrent`, which checks the arguments; gates as for `mogrify`.
    """
    batch, positions, _ = x.shape
    width, wide = w_h.shape[0], accumulator(x.dtype)
    dtype = jnp.dtype(matmul_dtype or x.dtype)
    weights = jnp.concatenate([w.reshape(len(w), 4 * width) for w in (w_x, w_h)])  # one product a step
    bias = b.reshape(1, 4 * width).astype(wide)
    valid = None if lengths is None else (jnp.arange(positions)[:, None] < lengths[None, :])[:, :, None]

    def step(state: tuple[jax.Array, ...], now: Any) -> tuple[tuple[jax.Array, ...], jax.Array]:
        x, valid = now
        gated = jnp.concatenate(mogrify(x, state[0], gates, dtype), axis=1)
        new: tuple[jax.Array, ...] = lstm_cell(matmul(gated, weights, dtype) + bias, state[1])
        if valid is not None:
            new = tuple(jnp.where(valid, after, before) for after, before in zip(new, state, strict=True))
        return new, new[0]

    first = tuple(array.astype(wide) for array in state)
    final, h = jax.lax.scan(step, first, (x.swapaxes(0, 1).astype(wide), valid), reverse=reverse)
    chex.assert_shape(h, (positions, batch, width))
    outputs = h if valid is None else jnp.where(valid, h, jnp.zeros_like(h))
    return outputs.swapaxes(0, 1).astype(x.dtype), tuple(
        after.astype(before.dtype) for after, before in zip(final, state, strict=True)
    )
