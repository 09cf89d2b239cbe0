"""The position-wise feed-forward layer of a Transformer block."""

import flax.linen as nn
import jax
from jax.nn.initializers import normal

from jaxnlp.nn.dense import Dense
from jaxnlp.nn.dropout import Dropout
from jaxnlp.ops.checks import expect


def gelu(x: jax.Array) -> jax.Array:
    """x times the normal distribution function at x, x (1 + erf(x / sqrt(2))) / 2.

    Flax writes it with erfc, which keeps digits of values near 0 that nothing here needs, at twice the time.
    """
    return 0.5 * x * (1.0 + jax.lax.erf(x * 0.5**0.5))


class FeedForward(nn.Module):
    """Two dense layers with GELU between, applied to each position alone.

    Attributes:
      hidden_width: F.
      dropout_rate: share of outputs dropped in training, in [0, 1).
      approximate_gelu: the tanh approximation of GELU, twice as fast on CPU; GPT-2 was trained with it, BERT without.
      use_bias: whether the dense layers have biases.
      output_stddev: standard deviation of the output layer's initial weights.
      dtype: of the computation; parameters stay float32.
      matmul_dtype: what the operands of matrix products are rounded to; None = dtype.

    Source: Vaswani et al. 2017, section 3.3. Differs: GELU (Hendrycks and Gimpel 2016), not ReLU.
    """

    hidden_width: int
    dropout_rate: float = 0.0
    approximate_gelu: bool = False
    use_bias: bool = True
    output_stddev: float = 0.02
    dtype: str = "float32"
    matmul_dtype: str | None = None

    @nn.compact
    def __call__(self, x: jax.Array, *, deterministic: bool) -> jax.Array:
        """Args: x [B, T, D]. Returns: [B, T, D], in `dtype`. Raises: ValueError when x has another rank."""
        expect(x.ndim == 3, "x [B, T, D]", x=x)
        batch, positions, width = x.shape
        x = x.reshape(batch * positions, width)  # see nn.transformer
        x = Dense(self.hidden_width, self.use_bias, self.dtype, self.matmul_dtype, normal(0.02), name="up")(x)
        x = nn.gelu(x, approximate=True) if self.approximate_gelu else gelu(x)
        x = Dense(width, self.use_bias, self.dtype, self.matmul_dtype, normal(self.output_stddev), name="down")(x)
        x = Dropout(self.dropout_rate)(x, deterministic=deterministic)
        return x.reshape(batch, positions, width)
