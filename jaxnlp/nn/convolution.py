"""Features of windows of words, each the maximum over all windows of a text.

With x_t the vector of word t, h the number of words in a window, and one feature map for each column of W,

    y_t = relu(sum_k x_{t+k} W_k + b),   k = 0 ... h - 1
    feature = max_t y_t

A window may extend over the start and the end of a text, where it sees zeros, so that a shorter text has features, too.
Windows without any word do not count.

F is the number of feature maps. J is h times the width of the word vectors.

Source: Kim 2014, and the author's code for windows over both ends. Differs: windows of only padding do not count.
"""

import functools

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.nn.initializers import zeros

from jaxnlp.nn.compute import Compute
from jaxnlp.nn.recurrent import uniform_of_width
from jaxnlp.nn.transformer import rows
from jaxnlp.ops.matrix_products import added, matmul


class Convolution(nn.Module):
    """The maximum of each feature map over the windows of a text, and ReLU. See this module's docstring.

    Attributes:
      window: words in a window, h.
      feature_maps: F.
      compute: types.

    Parameters: kernel [J, F], the weights of a window's first word first, and bias [F].
    """

    window: int
    feature_maps: int
    compute: Compute = Compute()

    @nn.compact
    def __call__(self, x: jax.Array, attention_mask: jax.Array) -> jax.Array:
        """Args: x [B, T, D], 0 at padding; attention_mask [B, T] bool. Returns: [B, F]; 0 for a text without words."""
        chex.assert_rank(x, 3)
        chex.assert_shape(attention_mask, x.shape[:2])
        batch, positions, width = x.shape
        inputs = self.window * width
        kernel = self.param("kernel", uniform_of_width(inputs), (inputs, self.feature_maps))
        bias = self.param("bias", zeros, (self.feature_maps,))
        # Each word is multiplied by the weights of all positions in a window, and the products are added up afterwards.
        # Windows of word vectors take more memory and time: on CPU 71 ms, not 41, for the gradient at [50, 40, 300].
        w = kernel.reshape(self.window, width, self.feature_maps).swapaxes(0, 1).reshape(width, -1)
        products = matmul(rows(x), w, self.compute.operand_dtype).reshape(batch, positions, self.window, -1)
        shifts = [(self.window - 1 - index, index) for index in range(self.window)]
        y = sum(jnp.pad(products[:, :, index], ((0, 0), shift, (0, 0))) for index, shift in enumerate(shifts))
        there = functools.reduce(jnp.logical_or, [jnp.pad(attention_mask, ((0, 0), shift)) for shift in shifts])
        chex.assert_shape(y, (batch, positions + self.window - 1, self.feature_maps))
        # ReLU and the bias keep the order, so the maximum may be taken first.
        most = jnp.where(there[:, :, None], y, -jnp.inf).max(axis=1)
        return nn.relu(added(most, bias[None]))
