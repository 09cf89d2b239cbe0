"""Dense layers."""

import flax.linen as nn
import jax
from jax.nn.initializers import Initializer, normal, zeros

from jaxnlp.ops.matmul import matmul


class Dense(nn.Module):
    """Y = X W + b.

    Attributes:
      features: F, width of the output.
      use_bias: whether there is b.
      dtype: of the input, the bias and the output; parameters stay float32.
      matmul_dtype: what the product's operands are rounded to, see `ops.matmul`; None = dtype.
      kernel_init: initial W.
    """

    features: int
    use_bias: bool = True
    dtype: str = "float32"
    matmul_dtype: str | None = None
    kernel_init: Initializer = normal(0.02)

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Args: x [N, D]. Returns: [N, F], in `dtype`."""
        kernel = self.param("kernel", self.kernel_init, (x.shape[-1], self.features))
        y = matmul(x.astype(self.dtype), kernel, self.matmul_dtype)
        if self.use_bias:
            y = y + self.param("bias", zeros, (self.features,)).astype(self.dtype)[None]
        return y
