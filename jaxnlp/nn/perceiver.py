"""The Perceiver's way into few latents and out of them again, for a language model that must not see the future.

M learned latents C read T inputs X (down), blocks of causal self-attention work on the latents alone, and each
position reads what they found (up):

    Z = C + CrossAttention(LayerNorm(C), LayerNorm(X));  Z = Z + FeedForward(LayerNorm(Z))
    ...
    Y = X + CrossAttention(X, LayerNorm(Z));  Y = Y + FeedForward(LayerNorm(Y))

Every latent stands at a position, and nothing attends to what stands at a later one. So latent m, at position e(m),
sees inputs 0..e(m) and latents 0..m; output t sees its own input and the latents with e(m) <= t. Where they stand:

- "prefix", e(m) = m: the mask is lower-triangular by index, M x T on the way down and T x M on the way up, as in
  CS224N's assignment 5. Latent m then sees inputs 0..m, and output t sees latents 0..min(t, M - 1). Of all
  that stands at position M or later an output thus sees its own input, and nothing else.
- "along", e(m) = (m + 1) S // M - 1, for a context of S: each latent ends one of M stretches of the context, and sums
  up all that came before. Latents of stretches that have not ended tell an output nothing; so that nothing is lost,
  outputs read the inputs 0..t beside the latents, in the same attention. Here the queries are LayerNorm(X) on the way
  up too: inputs are small at first, so queries made of them would weigh all alike.

Source: Jaegle et al. 2021, 2022 (Perceiver, Perceiver IO); CS224N, assignment 5; Hawthorne et al. 2022 for latents
along the sequence. Differs: latents are learned, one for each stretch, not taken from the last inputs, so that a pass
trains every position; GELU in the tanh form of the other blocks.
"""

from typing import Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from jaxnlp.nn.attention import CrossAttention
from jaxnlp.nn.feed_forward import FeedForward
from jaxnlp.nn.normalization import LayerNorm
from jaxnlp.nn.transformer import rows
from jaxnlp.ops import masks
from jaxnlp.ops.attention import Implementation

LatentPlacement = Literal["prefix", "along"]


def latent_positions(
    placement: LatentPlacement, num_latents: int, context_length: int, positions: int
) -> tuple[int, ...]:
    """e(m) of the latents that a sequence reaches: those further on are seen by none of its outputs.

    Args:
      placement: see this module's docstring.
      num_latents: M.
      context_length: S, at least M.
      positions: T, length of the sequence.

    Returns:
      Strictly increasing; the first latent's at least, if only for arrays that are not empty.
    """
    latents = np.arange(num_latents)
    ends = latents if placement == "prefix" else (latents + 1) * context_length // num_latents - 1
    return tuple(ends[: max(1, (ends < positions).sum())].tolist())


def _xavier(key, shape, dtype=jnp.float32):
    """Xavier uniform as PyTorch takes it of [1, M, D]: M D inputs, D outputs."""
    bound = (6.0 / ((shape[0] + shape[1]) * shape[2])) ** 0.5
    return jax.random.uniform(key, shape, dtype, -bound, bound)


class _Projection(nn.Module):
    """What both ways share: a block with cross-attention in self-attention's place. Attributes: as DecoderBlock's."""

    num_heads: int
    hidden_width: int
    attention_dropout_rate: float
    residual_dropout_rate: float
    use_bias: bool
    residual_stddev: float
    dtype: str
    deterministic: bool
    matmul_dtype: str | None = None
    attention_implementation: Implementation = "auto"

    def _attend(
        self, x: jax.Array, memory: jax.Array, attention_mask: jax.Array, *, normalise_queries: bool = True
    ) -> jax.Array:
        """Args: x [B or 1, T, D], memory [B, S, D], mask [1, 1, T, S]. Returns: [B, T, D]."""
        shape = (memory.shape[0], *x.shape[1:])
        queries = x
        if normalise_queries:
            queries = LayerNorm(1e-5, self.dtype, self.use_bias, name="query_norm")(rows(x)).reshape(x.shape)
        seen = LayerNorm(1e-5, self.dtype, self.use_bias, name="memory_norm")(rows(memory)).reshape(memory.shape)
        branch = CrossAttention(
            num_heads=self.num_heads,
            attention_dropout_rate=self.attention_dropout_rate,
            dropout_rate=self.residual_dropout_rate,
            use_bias=self.use_bias,
            output_stddev=self.residual_stddev,
            dtype=self.dtype,
            matmul_dtype=self.matmul_dtype,
            implementation=self.attention_implementation,
            name="attention",
        )(queries, seen, deterministic=self.deterministic, attention_mask=attention_mask)
        x = rows(jnp.broadcast_to(x, shape)) + rows(branch)
        branch = LayerNorm(1e-5, self.dtype, self.use_bias, name="feed_forward_norm")(x)
        branch = FeedForward(
            hidden_width=self.hidden_width,
            dropout_rate=self.residual_dropout_rate,
            approximate_gelu=True,
            use_bias=self.use_bias,
            output_stddev=self.residual_stddev,
            dtype=self.dtype,
            matmul_dtype=self.matmul_dtype,
            name="feed_forward",
        )(branch.reshape(shape), deterministic=self.deterministic)
        return (x + rows(branch)).reshape(shape)


class DownProject(_Projection):
    """Learned latents read the inputs, each those up to its own position.

    Attributes:
      num_latents: M; there are as many parameters, however short the sequence.

    The others are those of `nn.transformer.DecoderBlock`.
    """

    num_latents: int = 32

    @nn.compact
    def __call__(self, inputs: jax.Array, positions: tuple[int, ...]) -> jax.Array:
        """Args: inputs [B, T, D], and where the first latents stand (`latent_positions`). Returns: these, [B, M, D]."""
        latents = self.param("latents", _xavier, (1, self.num_latents, inputs.shape[-1]))
        latents = latents[:, : len(positions)].astype(self.dtype)
        inputs = inputs[:, : positions[-1] + 1]  # no latent sees those after the last
        mask = masks.not_later(np.array(positions), np.arange(inputs.shape[1]))
        return self._attend(latents, inputs, mask)


class UpProject(_Projection):
    """Each position reads the latents that stand at its own position or before.

    Attributes:
      normalise_queries: queries are made of LayerNorm(X), not of X itself.

    The others are those of `nn.transformer.DecoderBlock`.
    """

    normalise_queries: bool = False

    @nn.compact
    def __call__(
        self, x: jax.Array, memory: jax.Array, positions: tuple[int, ...], first: int | jax.Array = 0
    ) -> jax.Array:
        """Mixes what is remembered into the inputs.

        Args:
          x: inputs [B, T, D].
          memory: the latents, and what else may be read [B, S, D].
          positions: where each of the S stands.
          first: [] int, position of the first input.

        Returns:
          [B, T, D] in `dtype`.
        """
        mask = masks.not_later(first + jnp.arange(x.shape[1]), np.array(positions))
        return self._attend(x, memory, mask, normalise_queries=self.normalise_queries)
