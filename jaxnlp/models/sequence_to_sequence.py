"""The base of configs of sequence-to-sequence models."""

import dataclasses
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp

from jaxnlp.models import ModelConfig


@dataclasses.dataclass(frozen=True)
class SequenceToSequenceConfig(ModelConfig):
    """The base of configs of sequence-to-sequence models, which tasks such as TextToText require.

    Their processor has the vocabularies `source` and `target`. The module takes the arrays of `reads`. It has
    `output_layer(params)`; for decoding `initial_cache(params, source, source_mask)`, the cache of a source,
    `read(tokens, cache, count)` and `alignment(params, source, inputs, source_mask)`; and for pages
    `attention_maps(params, source, inputs)`, weights [L, B, H, T, S] by name: some of `encoder`, `decoder` and `cross`.
    """

    reads: ClassVar[tuple[str, ...]] = ("source", "inputs", "source_mask")

    embeddings: Literal["separate", "tied", "shared", "shared_inputs"] = "tied"
    """Whether source embeddings, target embeddings and output layer share a matrix: none do (separate), the last two
    (tied), all (shared), or the first two (shared_inputs). The last two options need one vocabulary and equal
    widths."""

    @property
    def attends(self) -> bool:
        return True

    @property
    def one_table(self) -> bool:
        """Whether source and target have one matrix of embeddings."""
        return self.embeddings in ("shared", "shared_inputs")

    @property
    def ties_output(self) -> bool:
        """Whether the output layer is a matrix of embeddings."""
        return self.embeddings in ("tied", "shared")

    def check(self, processor: Any) -> None:
        if self.one_table and not processor.shared:
            raise ValueError(
                f"model.embeddings {self.embeddings} needs one vocabulary of source and target, but the data has two; "
                "set --model.embeddings tied"
            )

    def inputs(self, processor: Any) -> tuple[jax.ShapeDtypeStruct, ...]:
        del processor
        tokens = jax.ShapeDtypeStruct((1, 1), jnp.int32)
        return tokens, tokens
