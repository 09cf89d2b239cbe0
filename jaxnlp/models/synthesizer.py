"""Synthesizer: a decoder-only language model with attention weights without dot products.

Source: Tay et al. 2021 (dense Synthesizer), as in CS224N, assignment 5; otherwise as `models.gpt`.
"""

import dataclasses
import functools
from typing import Any

from jaxnlp.models import Parameter, parameter_table
from jaxnlp.models.gpt import GPT, GPTConfig
from jaxnlp.nn.synthesizer import SynthesizerAttention
from jaxnlp.nn.transformer import Layer


@dataclasses.dataclass(frozen=True)
class SynthesizerConfig(GPTConfig):
    """Shape of a Synthesizer."""

    def __post_init__(self):
        super().__post_init__()
        if self.compute.attention not in ("auto", "vjp"):
            raise ValueError(
                f"model.compute.attention must be auto or vjp for a synthesizer, got {self.compute.attention}"
            )

    @property
    def mixer(self) -> Layer:
        return functools.partial(SynthesizerAttention, context_length=self.context_length)

    def build(self, processor: Any) -> "Synthesizer":
        return Synthesizer(self, self.embeddings(processor.size))

    def parameter(self, path: tuple[str, ...]) -> Parameter:
        axes = parameter_table.dense(("zv",), "D2HK", use_bias=self.use_bias)
        axes |= parameter_table.dense(("out",), "OD", use_bias=self.use_bias)
        axes |= parameter_table.affine((), "KS", use_bias=self.use_bias)
        return parameter_table.find(self.parameters_around() | self.parameters_of_blocks(axes), path)


class Synthesizer(GPT):
    """Mixes each position with all earlier ones, by weights computed from itself. Attributes: as `GPT`."""

    config: SynthesizerConfig

    def cached_shapes(self, batch: int) -> list[tuple[tuple[int, ...], ...]]:
        values = self._heads_shape(batch)
        return [(values,)] * self.config.num_layers

    def with_cache_length(self, length: int) -> "Synthesizer":
        """The model itself: the weights of a token have the length of the context."""
        del length
        return self
