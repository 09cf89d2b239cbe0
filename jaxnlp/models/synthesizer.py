"""Synthesizer: a decoder-only language model with attention weights that are computed without dot products.

Source: Tay et al. 2021 (dense Synthesizer), as in CS224N, assignment 5; otherwise as `models.gpt`.
"""

import dataclasses
import functools
from typing import Any

import chex
import jax

from jaxnlp.models import Parameter, parameter_table
from jaxnlp.models.decoder import Decoder, DecoderConfig
from jaxnlp.nn.cache import LayerCache
from jaxnlp.nn.compute import Compute
from jaxnlp.nn.transformer import TransformerBlock, stack


@dataclasses.dataclass(frozen=True)
class SynthesizerConfig(DecoderConfig):
    """Shape of a Synthesizer."""

    def __post_init__(self):
        super().__post_init__()
        if self.compute.attention in ("xla", "cudnn"):
            raise ValueError(
                f"model.compute.attention must be auto or vjp for a synthesizer, got {self.compute.attention}"
            )

    def build(self, processor: Any) -> "Synthesizer":
        return Synthesizer(self, processor.size)

    def parameter(self, path: tuple[str, ...]) -> Parameter:
        blocks = parameter_table.block("synthesizer", use_bias=self.use_bias)
        table = self.parameters_around() | parameter_table.entries(blocks, 0, prefix=("blocks",), stacked=True)
        return parameter_table.find(table, path)


class Synthesizer(Decoder):
    """Mixes each position with all earlier ones, by weights computed from itself. Attributes: as `Decoder`."""

    config: SynthesizerConfig

    def mix(
        self,
        x: jax.Array,
        caches: tuple[LayerCache, ...] | None,
        first: jax.Array,
        compute: Compute,
        *,
        deterministic: bool,
    ) -> tuple[jax.Array, tuple[LayerCache | None, ...] | None]:
        chex.assert_shape(x, (None, None, self.config.width))
        arguments = self.config.block_arguments(compute)
        arguments |= {"mixer": "synthesizer", "context_length": self.config.context_length}
        block = functools.partial(TransformerBlock, **arguments)
        layers = self.config.num_blocks
        output = stack(block, layers, compute, x, deterministic=deterministic, caches=caches, cached_positions=first)
        return output.hidden, output.caches

    def cached_shapes(self, batch: int) -> list[tuple[tuple[int, ...], ...]]:
        values = self._heads_shape(batch)
        return [(values,)] * self.config.num_layers
