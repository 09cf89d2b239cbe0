"""GPT: a decoder-only Transformer language model.

Source: Radford et al. 2019 (GPT-2), as in karpathy/minGPT: learned positions, pre-norm blocks, final norm.
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
class GPTConfig(DecoderConfig):
    """Shape of a GPT."""

    def build(self, processor: Any) -> "GPT":
        return GPT(self, processor.size)

    def parameter(self, path: tuple[str, ...]) -> Parameter:
        blocks = parameter_table.block(use_bias=self.use_bias)
        table = self.parameters_around() | parameter_table.entries(blocks, 0, prefix=("blocks",), stacked=True)
        return parameter_table.find(table, path)


class GPT(Decoder):
    """Each position attends to itself and all earlier positions. Attributes: see `Decoder`."""

    config: GPTConfig

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
        block = functools.partial(TransformerBlock, **arguments)
        layers = self.config.num_blocks
        output = stack(block, layers, compute, x, deterministic=deterministic, caches=caches, cached_positions=first)
        return output.hidden, output.caches

    def cached_shapes(self, batch: int) -> list[tuple[tuple[int, ...], ...]]:
        keys = values = self._heads_shape(batch)
        return [(keys, values)] * self.config.num_layers
