"""Perceiver: a decoder-only language model whose blocks transform a few latents instead of the sequence.

Source: Jaegle et al. 2021 (Perceiver), as in CS224N, assignment 5; otherwise as `models.gpt`. See `nn.perceiver`.
"""

import dataclasses
import functools
from typing import Any

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxnlp.models import Parameter, parameter_table
from jaxnlp.models.gpt import GPT, AttentionAxis, GPTConfig
from jaxnlp.nn.attention import CrossAttention
from jaxnlp.nn.cache import LayerCache
from jaxnlp.nn.compute import TransformerCompute
from jaxnlp.nn.perceiver import DownProject, LatentPlacement, UpProject, latent_positions
from jaxnlp.nn.transformer import TransformerBlock, stack


@dataclasses.dataclass(frozen=True)
class PerceiverConfig(GPTConfig):
    """Shape of a Perceiver. The projections to the latents and back are two of its `num_layers`."""

    num_latents: int = 32
    """Number of latents, M, from 1 to the context length."""
    latent_placement: LatentPlacement = "prefix"
    """prefix: latents at the first M positions, as in CS224N's assignment 5; an output sees only its own token and the
    first M. along: latents along the whole context, next to the tokens; an output sees all earlier tokens."""

    def __post_init__(self):
        super().__post_init__()
        if self.num_layers < 2:
            raise ValueError(f"model.num_layers must be at least 2 for a perceiver, got {self.num_layers}")
        if not 1 <= self.num_latents <= self.context_length:
            raise ValueError(
                f"model.num_latents must be between 1 and model.context_length, {self.context_length}, "
                f"got {self.num_latents}"
            )

    @property
    def num_blocks(self) -> int:
        """Number of blocks in the stack: all layers except the first and the last."""
        return self.num_layers - 2

    def build(self, processor: Any) -> "Perceiver":
        return Perceiver(self, self.embeddings(processor.size))

    def parameter(self, path: tuple[str, ...]) -> Parameter:
        table = dict(self.parameters_around())
        for name in ("down_project", "up_project"):
            queries = name == "down_project" or self.latent_placement == "along"
            axes = parameter_table.under("attention", parameter_table.cross_attention(use_bias=self.use_bias))
            axes |= parameter_table.feed_forward(use_bias=self.use_bias)
            for norm in ("query_norm", "memory_norm") if queries else ("memory_norm",):
                axes |= parameter_table.norm((norm,), use_bias=self.use_bias)
            axes |= {("latents",): "1MD"} if name == "down_project" else {}
            table |= parameter_table.entries(axes, "below" if name == "down_project" else "above", prefix=(name,))
        if self.num_blocks:
            table |= self.parameters_of_blocks()
        return parameter_table.find(table, path)


class Perceiver(GPT):
    """Latents read the sequence, blocks transform the latents, and the sequence reads the latents.

    Attributes: as `GPT`.
    """

    config: PerceiverConfig

    def mix(
        self,
        x: jax.Array,
        caches: tuple[LayerCache, ...] | None,
        first: jax.Array,
        compute: TransformerCompute,
        *,
        deterministic: bool,
    ) -> tuple[jax.Array, tuple[LayerCache | None, ...] | None]:
        # The cache stores the inputs, and each read computes the few latents again: only some tokens complete a latent,
        # while shapes are static.
        config = self.config
        chex.assert_shape(x, (None, None, config.width))
        inputs = x
        if caches is not None:
            ((inputs,),) = caches
            chex.assert_shape(inputs, (x.shape[0], None, config.width))
            inputs = jax.lax.dynamic_update_slice_in_dim(inputs, x.astype(inputs.dtype), first, axis=1)
            caches = ((inputs,),)
        # With a cache these are all latents. Outputs do not see the latents at inputs that are not read yet.
        positions = latent_positions(
            config.latent_placement, config.num_latents, config.context_length, inputs.shape[1]
        )
        rematerialised = nn.remat if compute.remat else lambda function: function

        @rematerialised
        def project_down(module: DownProject, inputs: jax.Array) -> jax.Array:
            return module(inputs, positions, deterministic=deterministic)

        @rematerialised
        def project_up(module: UpProject, x: jax.Array, memory: jax.Array, first: jax.Array) -> jax.Array:
            return module(x, memory, seen, first, deterministic=deterministic)

        reader = config.layers(compute, CrossAttention)
        down = DownProject(*reader, num_latents=config.num_latents, name="down_project")
        block = functools.partial(TransformerBlock, *config.layers(compute))
        latents = project_down(down, inputs)
        no_caches = None if caches is None else (None,) * config.num_blocks
        latents = stack(
            block, config.num_blocks, compute, latents, deterministic=deterministic, caches=no_caches
        ).hidden
        chex.assert_shape(latents, (x.shape[0], len(positions), config.width))
        memory, seen, along = latents, positions, config.latent_placement == "along"
        if along:
            memory, seen = jnp.concatenate([latents, inputs], axis=1), (*positions, *range(inputs.shape[1]))
        up = UpProject(*reader, normalise_queries=along, name="up_project")
        return project_up(up, x, memory, first), caches

    def attention_axes(self, positions: int) -> dict[str, tuple[AttentionAxis, AttentionAxis]]:
        config = self.config
        reached = latent_positions(config.latent_placement, config.num_latents, config.context_length, positions)
        latents, tokens = AttentionAxis(reached, len(reached)), tuple(range(positions))
        inputs = AttentionAxis(tokens[: reached[-1] + 1])
        memory = AttentionAxis((*reached, *tokens), len(reached)) if config.latent_placement == "along" else latents
        return {
            "down_project": (latents, inputs),
            "blocks": (latents, latents),
            "up_project": (AttentionAxis(tokens), memory),
        }

    def cached_shapes(self, batch: int) -> list[tuple[tuple[int, ...], ...]]:
        return [((batch, self.config.context_length, self.config.width),)]

    def with_cache_length(self, length: int) -> "Perceiver":
        """The model itself: each token reads the latents of the whole context."""
        del length
        return self
