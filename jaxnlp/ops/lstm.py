"""LSTM: one step and one layer, with their gradients by hand."""

import jax
import jax.numpy as jnp

from jaxnlp.ops.checks import expect, expect_float


def lstm_cell(z: jax.Array, c: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The new output and the new cell state, from the four gates before their nonlinearities.

    i, f, g, o = z;   c' = sigmoid(f) * c + sigmoid(i) * tanh(g);   h' = sigmoid(o) * tanh(c')

    z = x W_x + h W_h + b is the caller's: the part x W_x of all time steps is one matrix product. With s = sigmoid and
    t = tanh(c'), and dc' the gradient that reaches c' from h' and from the next step together,

        dc' = dc'_next + dh' s(o) (1 - t^2)
        di = dc' tanh(g) s(i) (1 - s(i))        df = dc' c s(f) (1 - s(f))
        dg = dc' s(i) (1 - tanh(g)^2)           do = dh' t s(o) (1 - s(o))
        dc = dc' s(f)

    The backward keeps the gates after their nonlinearities, c and t, and computes no exponential anew.

    Args:
      z: [B, 4 D], float: input, forget, candidate, output gate, in the order of PyTorch.
      c: [B, D], cell state before the step.

    Returns:
      h' and c', each [B, D].

    Raises:
      ValueError: when shapes do not fit, or arrays are not float.

    Source: Hochreiter and Schmidhuber 1997; Gers et al. 2000 for the forget gate.
    """
    fit = z.ndim == c.ndim == 2 and z.shape == (c.shape[0], 4 * c.shape[1])
    expect(fit, "z [B, 4 D] and c [B, D]", z=z, c=c)
    expect_float(z=z, c=c)
    return _lstm_cell(z, c)


@jax.custom_vjp
def _lstm_cell(z, c):
    return _forward(z, c)[0]


def _forward(z, c):
    i, f, g, o = jnp.split(z, 4, axis=-1)
    i, f, g, o = jax.nn.sigmoid(i), jax.nn.sigmoid(f), jnp.tanh(g), jax.nn.sigmoid(o)
    new_c = f * c + i * g
    t = jnp.tanh(new_c)
    return (o * t, new_c), (i, f, g, o, c, t)


def _backward(residuals, cotangents):
    i, f, g, o, c, t = residuals
    dh, dc_next = cotangents
    dc = dc_next + dh * o * (1.0 - t * t)
    di = dc * g * i * (1.0 - i)
    df = dc * c * f * (1.0 - f)
    dg = dc * i * (1.0 - g * g)
    do = dh * t * o * (1.0 - o)
    return jnp.concatenate([di, df, dg, do], axis=-1), dc * f


_lstm_cell.defvjp(_forward, _backward)


def lstm(
    x: jax.Array, state: tuple[jax.Array, jax.Array], *, w_x: jax.Array, w_h: jax.Array, b: jax.Array
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    """One layer over a whole sequence: `lstm_cell` at each position t, with z_t = x_t W_x + h_{t-1} W_h + b.

    dz_t is the cell's gradient, with dh_t = dy_t + dz_{t+1} W_h^T. Over all t and the batch,

        dx = dz W_x^T,   dW_x = x^T dz,   dW_h = h_before^T dz,   db = sum(dz).

    Args:
      x: [B, T, D], float; the others are of its dtype.
      state: h and c before the sequence, each [B, K].
      w_x: [D, 4 K]; the input's part of all time steps is one product.
      w_h: [K, 4 K].
      b: [4 K].

    Returns:
      The outputs [B, T, K], and h and c after the sequence, dtype of x.

    Raises:
      ValueError: when shapes do not fit, or arrays are not float or not of one dtype.
    """
    h, c = state
    arrays = {"x": x, "h": h, "c": c, "w_x": w_x, "w_h": w_h, "b": b}
    fit = (
        x.ndim == 3
        and h.ndim == w_h.ndim == 2
        and h.shape == c.shape == (x.shape[0], w_h.shape[0])
        and w_h.shape[1] == 4 * w_h.shape[0]
        and w_x.shape == (x.shape[2], w_h.shape[1])
        and b.shape == w_h.shape[1:]
    )
    expect(fit, "x [B, T, D], h and c [B, K], w_x [D, 4 K], w_h [K, 4 K] and b [4 K]", **arrays)
    expect_float(**arrays)
    if len({array.dtype for array in arrays.values()}) > 1:
        dtypes = ", ".join(f"{name} {array.dtype}" for name, array in arrays.items())
        raise ValueError(f"expected arrays of one dtype, got {dtypes}")
    return _lstm(x, state, w_x, w_h, b)


@jax.custom_vjp
def _lstm(x, state, w_x, w_h, b):
    return _lstm_forward(x, state, w_x, w_h, b)[0]


def _lstm_forward(x, state, w_x, w_h, b):
    batch, positions, width = x.shape
    # Time first, so that the scan cuts whole blocks of memory.
    rows = x.swapaxes(0, 1).reshape(positions * batch, width)
    gates = (rows @ w_x + b[None]).reshape(positions, batch, -1)

    def step(state, gates):
        h, c = state
        state, cell = _forward(gates + h @ w_h, c)
        return state, (state[0], cell)

    final, (outputs, cells) = jax.lax.scan(step, state, gates)
    return (outputs.swapaxes(0, 1), final), (rows, state[0], outputs, cells, w_x, w_h)


def _lstm_backward(residuals, cotangents):
    rows, first_h, outputs, cells, w_x, w_h = residuals
    d_outputs, d_final = cotangents
    positions, batch, width = outputs.shape

    def step(d_state, now):
        (dh, dc), (dy, cell) = d_state, now
        dz, dc = _backward(cell, (dh + dy, dc))
        return (dz @ w_h.T, dc), dz

    d_state, dz = jax.lax.scan(step, d_final, (d_outputs.swapaxes(0, 1), cells), reverse=True)
    # What the weights get from all time steps is one product each, as is what the input gets.
    dz = dz.reshape(positions * batch, 4 * width)
    before = jnp.concatenate([first_h[None], outputs[:-1]]).reshape(positions * batch, width)
    dx = (dz @ w_x.T).reshape(positions, batch, -1).swapaxes(0, 1)
    return dx, d_state, rows.T @ dz, before.T @ dz, dz.sum(axis=0)


_lstm.defvjp(_lstm_forward, _lstm_backward)
