"""The position-wise feed-forward layer of a Transformer block."""

import functools
from collections.abc import Callable
from typing import Literal

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.nn.initializers import normal

from jaxnlp.nn.compute import Compute
from jaxnlp.nn.dense import INITIAL_STDDEV, Dense
from jaxnlp.nn.dropout import Dropout
from jaxnlp.ops.checks import expect
from jaxnlp.ops.devices import target_platform
from jaxnlp.ops.matrix_products import accumulator


def relu_squared(x: jax.Array) -> jax.Array:
    """max(x, 0)^2 of each element of x [...]. Source: So et al. 2021."""
    return jnp.square(nn.relu(x))


def gelu(x: jax.Array) -> jax.Array:
    """x [...] times the normal distribution function at x, x (1 + erf(x / sqrt(2))) / 2.

    Flax computes it with erfc, which takes twice the time for more digits near 0. It is computed in float32 at least.
    """
    wide = x.astype(accumulator(x.dtype))
    return (0.5 * wide * (1.0 + jax.lax.erf(wide * 0.5**0.5))).astype(x.dtype)


def quick_gelu(x: jax.Array) -> jax.Array:
    """x [...] times the sigmoid of 1.702 x, an approximation of GELU.

    Source: Hendrycks and Gimpel 2016, section 2.
    """
    return x * jax.nn.sigmoid(1.702 * x)


Activation = Literal["gelu", "gelu_tanh", "relu", "relu_squared", "silu", "quick_gelu"]
"""GELU (as in BERT); its tanh approximation (as in GPT-2), twice as fast on CPU; ReLU; its square; x times its sigmoid
(as in Llama); or x times the sigmoid of 1.702 x (as in CLIP)."""
ACTIVATIONS: dict[Activation, Callable[[jax.Array], jax.Array]] = {
    "gelu": gelu,
    "gelu_tanh": functools.partial(nn.gelu, approximate=True),
    "relu": nn.relu,
    "relu_squared": relu_squared,
    "silu": nn.silu,
    "quick_gelu": quick_gelu,
}


class FeedForward(nn.Module):
    """Two dense layers with an activation between, applied to each position separately.

    Attributes:
      feed_forward_width: F.
      dropout_rate: share of outputs dropped in training, in [0, 1).
      activation: see `Activation`.
      gated: whether the activation of a third dense layer multiplies the output of the first: activation(gate(x)) *
        up(x).
      use_bias: whether the dense layers have biases.
      output_stddev: standard deviation of the output layer's initial weights.
      compute: types.

    Source: Vaswani et al. 2017, section 3.3. Differs: GELU (Hendrycks and Gimpel 2016) unless ReLU is chosen.
    Shazeer 2020 for the gate.
    """

    feed_forward_width: int
    dropout_rate: float = 0.0
    activation: Activation = "gelu"
    gated: bool = False
    use_bias: bool = True
    output_stddev: float = INITIAL_STDDEV
    compute: Compute = Compute()

    @nn.compact
    def __call__(self, x: jax.Array, *, deterministic: bool) -> jax.Array:
        """[B, T, D] -> [B, T, D]. Raises: ValueError when x has another rank."""
        expect(x.ndim == 3, "x [B, T, D]", x=x)
        batch, positions, width = x.shape
        x = x.reshape(batch * positions, width)  # see nn.transformer
        up = Dense(self.feed_forward_width, self.use_bias, compute=self.compute, name="up")(x)
        activate = ACTIVATIONS[self.activation]
        if target_platform() != "cpu":
            # The backward pass computes it again: faster than to read what the forward pass would have kept.
            activate = jax.checkpoint(activate)
        if self.gated:
            x = activate(Dense(self.feed_forward_width, self.use_bias, compute=self.compute, name="gate")(x)) * up
        else:
            x = activate(up)
        chex.assert_shape(x, (batch * positions, self.feed_forward_width))
        x = Dense(width, self.use_bias, normal(self.output_stddev), self.compute, name="down")(x)
        chex.assert_shape(x, (batch * positions, width))
        x = Dropout(self.dropout_rate)(x, deterministic=deterministic)
        return x.reshape(batch, positions, width)
