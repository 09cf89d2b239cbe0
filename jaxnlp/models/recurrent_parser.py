"""A transition-based parser with word vectors from a bidirectional LSTM over the whole sentence.

The LSTM reads the embedding, the characters and the tag of each word, or vectors of a BERT. So a few nodes suffice to
describe a configuration: three words of the stack, the first word of the buffer, and optionally the dependents of the
two words that an arc can connect.

Source: Kiperwasser and Goldberg 2016, section 4. Differs: characters; arc-standard or arc-eager with cross-entropy, not
arc-hybrid with a dynamic oracle and a hinge loss.
"""

import dataclasses
from typing import Any, Literal

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxnlp.config import Count, Natural
from jaxnlp.models import Parameter, parameter_table
from jaxnlp.models.parser import CONFIGURATION, Activation, Parser, ParserConfig
from jaxnlp.models.word_encoder import WordEncoder, WordEncoderConfig
from jaxnlp.nn.embedding import Embed

STACK_AND_BUFFER = (0, 1, 2, 3)
WITH_DEPENDENTS = (*STACK_AND_BUFFER, 6, 7, 12, 13)
"""Nodes of `Configuration.nodes`: the stack, the buffer, and their leftmost and rightmost dependents."""


@dataclasses.dataclass(frozen=True)
class RecurrentParserConfig(WordEncoderConfig, ParserConfig):
    """Shape and regularisers of a transition-based parser on a word encoder."""

    tag_width: Count = 25
    """Width of the vectors of tags, if the data has tags."""
    described_by: Literal["stack_and_buffer", "with_dependents"] = "with_dependents"
    """Nodes that describe a configuration: three words of the stack and one of the buffer; or also the leftmost and
    rightmost dependents of the two words that the next arc can connect."""
    activation: Activation = "relu"
    """Function of the hidden layer: x^3, ReLU or tanh."""
    label_width: Natural = 0
    """Width of the vectors of labels; 0 = labels are not read."""

    @property
    def nodes(self) -> tuple[int, ...]:
        return STACK_AND_BUFFER if self.described_by == "stack_and_buffer" else WITH_DEPENDENTS

    @property
    def reads(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("tags", *super().reads)

    def inputs(self, processor: Any) -> tuple[jax.ShapeDtypeStruct, ...]:
        tags = jax.ShapeDtypeStruct((1, 1), jnp.int32)
        return *CONFIGURATION, tags, *super().inputs(processor)

    def build(self, processor: Any) -> "RecurrentParser":
        sizes = self.sizes(processor.inputs)
        return RecurrentParser(self, processor.num_tags, processor.num_relations, processor.num_transitions, *sizes)

    def parameter(self, path: tuple[str, ...]) -> Parameter:
        table = parameter_table.entries({("tags", "embedding"): "VD"}) | parameter_table.entries({("special",): "2E"})
        parameter: Parameter = self.find_parameter(table | self.scorer_parameters(), path)
        return parameter


class RecurrentParser(Parser):
    """Scores transitions.

    Attributes: as `Parser`, and the sizes of the encoder: vocabulary_size, num_characters and num_pieces.
    """

    config: RecurrentParserConfig
    vocabulary_size: int
    num_characters: int
    num_pieces: int = 0

    def setup(self):
        super().setup()
        config = self.config
        self.encoder = WordEncoder(config, self.vocabulary_size, self.num_characters, self.num_pieces)
        if self.num_tags:
            initial = nn.initializers.normal(config.tag_width**-0.5)
            self.tags = Embed(self.num_tags, config.tag_width, config.compute.activation_dtype, embedding_init=initial)
        self.special = self.param("special", nn.initializers.normal(0.1), (2, self.vector_width))

    @property
    def vector_width(self) -> int:
        config = self.config
        return config.width + (config.tag_width if self.num_tags and not config.recurrent_widths else 0)

    def encode(self, *inputs: jax.Array, deterministic: bool = True) -> jax.Array:
        tags, *words = inputs
        chex.assert_rank(tags, 2)
        further = self.tags(tags) if self.num_tags else None
        x = self.encoder(*words, further=further, deterministic=deterministic)
        first = jnp.broadcast_to(self.special.astype(x.dtype)[None], (x.shape[0], 2, x.shape[-1]))
        return jnp.concatenate([first, x], axis=1)
