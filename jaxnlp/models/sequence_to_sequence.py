"""The base of configs of sequence-to-sequence models."""

import dataclasses

import flax.linen as nn

from jaxnlp.models import ModelConfig


@dataclasses.dataclass(frozen=True)
class SequenceToSequenceConfig(ModelConfig):
    """The base of configs of sequence-to-sequence models, which tasks such as TextToText require.

    The arguments of the module are (source, target inputs, source_mask). It also has `output_layer(params)`, and for
    decoding `initial_cache(params, source, source_mask)`, which returns the cache of a source, `read(tokens, cache,
    count)` and `alignment(params, source, inputs, source_mask)`; and for pages `attention_maps(params,
    source, inputs)`, which returns weights [L, B, H, T, S] by name: `encoder`, `decoder` and `cross`, or some of these.
    """

    def build(self, vocabulary_size: int, source_vocabulary_size: int | None = None) -> nn.Module:
        """The module for a target and a source vocabulary of these sizes; None = source and target share one
        vocabulary."""
        del source_vocabulary_size
        return super().build(vocabulary_size)
