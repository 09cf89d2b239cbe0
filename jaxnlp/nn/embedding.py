"""Tables of vectors."""

import flax.linen as nn
import jax

from jaxnlp.ops.embeddings import embed


class Embed(nn.Embed):
    """Rows of a table: `flax.linen.Embed` with the gradient of `ops.embeddings`.

    Rows are rounded to `dtype`, but not the table: its gradient sums in float32 also with bfloat16 activations.

    Attributes:
      num_embeddings: V.
      features: D.
      dtype: of the rows.

    Parameters: embedding [V, D].
    """

    def __call__(self, inputs: jax.Array) -> jax.Array:
        """Args: inputs [...] int, see `ops.embeddings.embed`. Returns: [..., D]."""
        return embed(self.embedding, inputs, self.dtype)
