"""Softmax with its gradient by hand."""

import jax
import jax.numpy as jnp

from jaxnlp.ops.checks import expect_float


def softmax(z: jax.Array) -> jax.Array:
    """Turns each row into weights that sum to 1.

    a_s = exp(z_s - max(z)) / sum_r exp(z_r - max(z))

    The Jacobian of a row is J = diag(a) - a a^T, symmetric, so the gradient is

        dz = J da = a * (da - sum_s(a_s da_s)):

    J is never built; only a is kept.

    Args:
      z: scores [..., S], float.

    Returns:
      [..., S], dtype of z.

    Raises: ValueError when z is not float.

    Source: Bridle 1990.
    """
    expect_float(z=z)
    return _softmax(z)


@jax.custom_vjp
def _softmax(z):
    e = jnp.exp(z - z.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def _forward(z):
    a = _softmax(z)
    return a, a


def _backward(a, da):
    return (a * (da - (a * da).sum(axis=-1, keepdims=True)),)


_softmax.defvjp(_forward, _backward)
