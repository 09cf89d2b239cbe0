"""Normalisation layers."""

import chex
import flax.linen as nn
import jax
from jax.nn.initializers import ones, zeros

from jaxnlp.nn.compute import Compute
from jaxnlp.ops.normalization import layer_norm, rms_norm


class LayerNorm(nn.Module):
    """Normalises each position to mean 0 and variance 1, then scales and shifts it.

    Attributes:
      epsilon: keeps a constant row finite.
      use_bias: whether there is a shift.
      compute: types; the statistics are computed in float32 or wider.

    Source: Ba et al. 2016. Parameters are named as Flax names them.
    """

    epsilon: float = 1e-5
    use_bias: bool = True
    compute: Compute = Compute()

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Args: x [..., D]. Returns: [..., D], in the `dtype` of `compute`."""
        chex.assert_shape(x, (..., None))
        width = x.shape[-1]
        scale = self.param("scale", ones, (width,))
        bias = self.param("bias", zeros, (width,)) if self.use_bias else None
        return layer_norm(x.astype(self.compute.activation_dtype), scale, bias, epsilon=self.epsilon)


class RMSNorm(nn.Module):
    """Divides each position by its root mean square, then scales it.

    Attributes:
      epsilon: keeps a row of zeros finite.
      compute: types; the mean is computed in float32 or wider.

    Source: Zhang and Sennrich 2019.
    """

    epsilon: float = 1e-6
    compute: Compute = Compute()

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Args: x [..., D]. Returns: [..., D], in the `dtype` of `compute`."""
        chex.assert_shape(x, (..., None))
        scale = self.param("scale", ones, (x.shape[-1],))
        return rms_norm(x.astype(self.compute.activation_dtype), scale, epsilon=self.epsilon)
