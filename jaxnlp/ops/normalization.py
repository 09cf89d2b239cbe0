"""Layer normalisation with its gradient by hand, and normalisation by the root mean square, and to length 1."""

import functools

import chex
import jax
import jax.numpy as jnp

from jaxnlp.ops.checks import expect, expect_float
from jaxnlp.ops.devices import target_platform
from jaxnlp.ops.matrix_products import accumulator, column_sums, stored


def layer_norm(x: jax.Array, scale: jax.Array, bias: jax.Array | None = None, *, epsilon: float = 1e-5) -> jax.Array:
    """Normalises each row to mean 0 and variance 1, then scales and shifts it.

    n = (x - mean(x)) r,  r = 1 / sqrt(var(x) + epsilon),  y = n * scale + bias

    With g = dy * scale, the gradient is

        dx = r (g - mean(g) - n mean(g * n)),  dscale = sum(dy * n),  dbias = sum(dy):

    moving x along 1 or along n does not change y, so these two directions are projected out of g. The backward keeps x,
    and a mean and r of each row, and computes n again.

    Args:
      x: [..., D], float.
      scale: [D].
      bias: [D] or None.
      epsilon: keeps a constant row finite.

    Returns:
      [..., D], dtype of x; statistics in float32 at least.

    Raises: ValueError when shapes do not fit, or arrays are not float.

    Source: Ba et al. 2016, section 3, eq. 4.
    """
    fit = x.ndim > 0 and scale.shape == x.shape[-1:] and (bias is None or bias.shape == scale.shape)
    expect(fit, "x [..., D], scale [D] and bias [D] or None", x=x, scale=scale, bias=bias)
    expect_float(x=x, scale=scale, bias=bias)
    rows = x.reshape(-1, x.shape[-1])
    return _layer_norm(rows, scale, bias, epsilon).reshape(x.shape)


def rms_norm(x: jax.Array, scale: jax.Array, *, epsilon: float = 1e-6) -> jax.Array:
    """Divides each row by its root mean square, then scales it.

    y = x / sqrt(mean(x^2) + epsilon) * scale

    >>> rms_norm(jnp.array([[3.0, 4.0]]), jnp.ones(2), epsilon=0.0).round(3)
    Array([[0.849, 1.131]], dtype=float32)

    Args:
      x: [..., D], float.
      scale: [D].
      epsilon: keeps a row of zeros finite.

    Returns:
      [..., D], dtype of x; the mean is computed in float32 at least.

    Raises: ValueError when shapes do not fit, or arrays are not float.

    Source: Zhang and Sennrich 2019, section 4.
    """
    expect(x.ndim > 0 and scale.shape == x.shape[-1:], "x [..., D] and scale [D]", x=x, scale=scale)
    expect_float(x=x, scale=scale)
    wide = x.reshape(-1, x.shape[-1]).astype(accumulator(x.dtype))
    r = jax.lax.rsqrt(_row_means(jnp.square(wide)) + epsilon)
    chex.assert_shape(r, (wide.shape[0], 1))
    return (wide * r * scale.astype(wide.dtype)[None]).astype(x.dtype).reshape(x.shape)


def unit_vectors(x: jax.Array) -> jax.Array:
    """Divides each row by its length.

    y = x / sqrt(sum(x^2))

    >>> unit_vectors(jnp.array([[3.0, 4.0], [0.0, 0.0]])).round(3)
    Array([[0.6, 0.8],
           [0. , 0. ]], dtype=float32)

    Args:
      x: [..., D], float.

    Returns:
      [..., D], dtype of x; a row of zeros stays zero, with a gradient of zero. The sum is computed in float32 at least.

    Raises: ValueError when x is not float.
    """
    expect_float(x=x)
    wide = x.astype(accumulator(x.dtype))
    squares = jnp.square(wide).sum(axis=-1, keepdims=True)
    r = jnp.where(squares > 0.0, jax.lax.rsqrt(jnp.where(squares > 0.0, squares, 1.0)), 0.0)
    return (wide * r).astype(x.dtype)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def _layer_norm(x, scale, bias, epsilon):
    return _forward(x, scale, bias, epsilon)[0]


def _forward(x, scale, bias, epsilon):
    rows, width = x.shape
    wide = x.astype(accumulator(x.dtype))
    mean = _row_means(wide)
    # From the centred values: the mean of squares minus the squared mean loses digits if the mean is large.
    r = jax.lax.rsqrt(_row_means(jnp.square(wide - mean)) + epsilon)
    chex.assert_shape((mean, r), (rows, 1))
    y = (wide - mean) * r * scale.astype(wide.dtype)[None]
    if bias is not None:
        y = y + bias.astype(wide.dtype)[None]
    chex.assert_shape(y, (rows, width))
    if target_platform() != "cpu":
        # They are kept in memory, and the backward pass is two loops over x and dy. Otherwise XLA computes them again
        # in each loop, and then writes the product dy * n to memory in float32.
        mean, r = jax.lax.optimization_barrier((mean, r))
    return y.astype(x.dtype), (x, scale, bias, mean, r)


def _backward(epsilon, residuals, dy):
    del epsilon
    x, scale, bias, mean, r = residuals
    rows, width = x.shape
    n = (x.astype(mean.dtype) - mean) * r
    wide, wide_scale = dy.astype(mean.dtype), scale.astype(mean.dtype)
    dy_n = stored(wide * n)
    dx = r * (wide * wide_scale[None] - _row_means(wide, wide_scale) - n * _row_means(dy_n, wide_scale))
    dscale = column_sums(dy_n).astype(scale.dtype)
    dbias = None if bias is None else column_sums(wide).astype(bias.dtype)
    chex.assert_shape((n, dy_n, dx), (rows, width))
    chex.assert_shape([d for d in (dscale, dbias) if d is not None], (width,))
    return dx.astype(x.dtype), dscale, dbias


def _row_means(x, weights=None):
    """The mean of each row [N, 1]. On CPU it is a product with one column: a reduction would break up the loops."""
    if target_platform() != "cpu":
        return (x if weights is None else x * weights[None]).mean(axis=-1, keepdims=True)
    weights = jnp.ones(x.shape[-1], x.dtype) if weights is None else weights
    return x @ (weights / x.shape[-1])[:, None]


_layer_norm.defvjp(_forward, _backward)
