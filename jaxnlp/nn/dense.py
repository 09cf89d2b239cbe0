"""Dense layers."""

import math

import chex
import flax.linen as nn
import jax
from jax.nn.initializers import Initializer, normal, zeros

from jaxnlp.nn.compute import Compute
from jaxnlp.ops.matrix_products import added, matmul, scores_of_rows, shared_matmul

INITIAL_STDDEV = 0.02
"""Standard deviation of initial weights in Transformers, as in BERT and GPT-2."""


TRANSPOSED = "transposed_kernel"
"""The name of a kernel [F, D] instead of `kernel` [D, ...]; see `jaxnlp.models.inference_params`."""
OUTPUT_ROWS = "output_rows"
"""The name of the rows [V, D] instead of a language model's output layer; see the same module."""


class Dense(nn.Module):
    """Y = X W + b.

    Attributes:
      features: width of the output, F; or several axes of kernel and bias, such as (3, H, K), so that devices can share
        the heads.
      use_bias: whether there is b.
      kernel_init: initial W; several axes are initialised as one axis of their product.
      compute: types; the output has its `dtype`.
      joined: whether the outputs have one axis. To share heads among devices, XLA needs an axis of heads.
    """

    features: int | tuple[int, ...]
    use_bias: bool = True
    kernel_init: Initializer = normal(INITIAL_STDDEV)
    compute: Compute = Compute()
    joined: bool = True

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Args: x [N, D]. Returns: [N, F], F the product of `features`; or if not `joined` [N, *features]."""
        chex.assert_rank(x, 2)
        features = self.features if isinstance(self.features, tuple) else (self.features,)
        width = math.prod(features)
        outputs = (width,) if self.joined else features

        def initial(key, shape):
            return self.kernel_init(key, (shape[0], width)).reshape(shape)

        x = x.astype(self.compute.activation_dtype)
        if self.has_variable("params", TRANSPOSED):
            y = scores_of_rows(x, self.get_variable("params", TRANSPOSED)).reshape(-1, *outputs)
        else:
            kernel = self.param("kernel", initial, (x.shape[-1], *features))
            product = matmul if self.joined else shared_matmul
            y = product(x, kernel.reshape(-1, *outputs), self.compute.operand_dtype)
        if not self.use_bias:
            return y
        return added(y, self.param("bias", zeros, features).reshape(outputs)[None])
