"""The Perceiver's projections to a few latents and back, for a causal language model.

M learned latents C read T inputs X (down), blocks of causal self-attention transform the latents, and each position
reads the latents (up):

    Z = C + CrossAttention(LayerNorm(C), LayerNorm(X));  Z = Z + FeedForward(LayerNorm(Z))
    ...
    Y = X + CrossAttention(X, LayerNorm(Z));  Y = Y + FeedForward(LayerNorm(Y))

Every latent has a position, and no position attends to a later one. So latent m, at position e(m), sees inputs 0..e(m)
and latents 0..m; output t sees its own input and the latents with e(m) <= t. The placements are:

- "prefix", e(m) = m: the mask is lower-triangular by index, M x T on the way down and T x M on the way up, as in
  CS224N's assignment 5. Latent m sees inputs 0..m, and output t sees latents 0..min(t, M - 1), so no input at position
  M or later except its own.
- "along", e(m) = (m + 1) S // M - 1, for a context of S: each latent is at the end of one of M stretches of the
  context, and summarises everything before. An output does not see the latent of an unfinished stretch; so outputs also
  read the inputs 0..t, in the same attention. Here the queries on the way up are LayerNorm(X): inputs are small at
  first, so queries from X would give nearly uniform weights.

Source: Jaegle et al. 2021, 2022 (Perceiver, Perceiver IO); CS224N, assignment 5; Hawthorne et al. 2022 for latents
along the sequence. Differs: latents are learned, one for each stretch, so that a pass trains every position; GELU in
the tanh form.
"""

from typing import Literal

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from jaxnlp.nn.normalization import LayerNorm
from jaxnlp.nn.transformer import Layer, rows
from jaxnlp.ops import masks

LatentPlacement = Literal["prefix", "along"]


def latent_positions(
    placement: LatentPlacement, num_latents: int, context_length: int, positions: int
) -> tuple[int, ...]:
    """e(m) of the latents that some output of the sequence sees.

    Args:
      placement: see this module's docstring.
      num_latents: M.
      context_length: S, at least M.
      positions: T, length of the sequence.

    Returns: strictly increasing; the first latent is always included, so that no array is empty.
    """
    latents = np.arange(num_latents)
    ends = latents if placement == "prefix" else (latents + 1) * context_length // num_latents - 1
    return tuple(ends[: max(1, (ends < positions).sum())].tolist())


def _xavier(key, shape, dtype=jnp.float32):
    """Xavier uniform with PyTorch's fans for [1, M, D]: M D inputs, D outputs."""
    bound = (6.0 / ((shape[0] + shape[1]) * shape[2])) ** 0.5
    return jax.random.uniform(key, shape, dtype, -bound, bound)


class Reader(nn.Module):
    """Attention to a memory and a feed-forward layer, each added to its input; the base of both projections.

    Attributes:
      attention: makes the attention to the memory.
      feed_forward: makes the module that transforms each position.
      norm: makes a normalisation.
      normalise_queries: whether the queries are normalised.
    """

    attention: Layer
    feed_forward: Layer
    norm: Layer = LayerNorm
    normalise_queries: bool = True

    def read(self, x: jax.Array, memory: jax.Array, mask: jax.Array, *, deterministic: bool) -> jax.Array:
        """x [B or 1, T, D] plus what it reads in a memory [B, S, D], transformed: [B, T, D]."""
        queries = self.norm(name="query_norm")(rows(x)).reshape(x.shape) if self.normalise_queries else x
        memory = self.norm(name="memory_norm")(rows(memory)).reshape(memory.shape)
        y = self.attention(name="attention")(queries, memory, deterministic=deterministic, attention_mask=mask)
        shape, x = y.shape, rows(jnp.broadcast_to(x, y.shape)) + rows(y)
        y = self.norm(name="feed_forward_norm")(x).reshape(shape)
        y = self.feed_forward(name="feed_forward")(y, deterministic=deterministic)
        return (x + rows(y)).reshape(shape)


class DownProject(Reader):
    """Learned latents read the inputs up to their own positions.

    Attributes: as `Reader`; and num_latents, M: the parameters do not depend on the length of the sequence.
    """

    num_latents: int = 32

    @nn.compact
    def __call__(self, inputs: jax.Array, positions: tuple[int, ...], *, deterministic: bool) -> jax.Array:
        """The latents [B, M, D], after reading inputs [B, T, D].

        Args: positions: of the first latents (`latent_positions`).
        """
        chex.assert_rank(inputs, 3)
        latents = self.param("latents", _xavier, (1, self.num_latents, inputs.shape[-1]))
        latents = latents[:, : len(positions)].astype(inputs.dtype)
        inputs = inputs[:, : positions[-1] + 1]  # no latent reads the inputs after the last latent's position
        mask = masks.not_later(np.array(positions), np.arange(inputs.shape[1]))
        return self.read(latents, inputs, mask, deterministic=deterministic)


class UpProject(Reader):
    """Each position reads the latents at its own position or before. Attributes: as `Reader`."""

    @nn.compact
    def __call__(
        self,
        x: jax.Array,
        memory: jax.Array,
        positions: tuple[int, ...],
        first: int | jax.Array = 0,
        *,
        deterministic: bool,
    ) -> jax.Array:
        """Adds to each input what it reads: [B, T, D].

        Args:
          x: inputs [B, T, D].
          memory: the latents, and with the placement `along` the inputs [B, S, D].
          positions: of each entry of the memory.
          first: [] int, position of the first input.
          deterministic: no dropout.
        """
        chex.assert_shape(memory, (x.shape[0], len(positions), x.shape[2]))
        mask = masks.not_later(first + jnp.arange(x.shape[1]), np.array(positions))
        return self.read(x, memory, mask, deterministic=deterministic)
