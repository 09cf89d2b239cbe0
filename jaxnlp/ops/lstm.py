"""The step of an LSTM, with its gradient by hand; `ops.recurrent_layers` has the layer."""

import chex
import jax
import jax.numpy as jnp

from jaxnlp.ops.checks import expect, expect_float


def lstm_cell(z: jax.Array, c: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The new output and the new cell state, from the four gates before their nonlinearities.

    i, f, g, o = z;   c' = sigmoid(f) * c + sigmoid(i) * tanh(g);   h' = sigmoid(o) * tanh(c')

    The caller computes z = x W_x + h W_h + b, with one matrix product x W_x for all time steps. With s the sigmoid, t =
    tanh(c'), and dc'_next the gradient of c' from the next step,

        dc' = dc'_next + dh' s(o) (1 - t^2)
        di = dc' tanh(g) s(i) (1 - s(i))        df = dc' c s(f) (1 - s(f))
        dg = dc' s(i) (1 - tanh(g)^2)           do = dh' t s(o) (1 - s(o))
        dc = dc' s(f)

    The backward keeps the gates after their nonlinearities, c and t, and computes no exponential again.

    Args:
      z: [B, 4 D], float: input, forget, candidate, output gate, in the order of PyTorch.
      c: [B, D], cell state before the step.

    Returns:
      h' and c', each [B, D].

    Raises: ValueError when shapes do not fit, or arrays are not float.

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
    chex.assert_shape((i, f, g, o, new_c, t), c.shape)
    return (o * t, new_c), (i, f, g, o, c, t)


def _backward(residuals, cotangents):
    i, f, g, o, c, t = residuals
    dh, dc_next = cotangents
    dc = dc_next + dh * o * (1.0 - t * t)
    di = dc * g * i * (1.0 - i)
    df = dc * c * f * (1.0 - f)
    dg = dc * i * (1.0 - g * g)
    do = dh * t * o * (1.0 - o)
    chex.assert_shape((dc, di, df, dg, do), c.shape)
    return jnp.concatenate([di, df, dg, do], axis=-1), dc * f


_lstm_cell.defvjp(_forward, _backward)
