"""The feed-forward parser of Chen and Manning: it concatenates the vector of a word and the vector of its tag.

18 words, 18 tags and 12 labels describe a configuration.

Source: Chen and Manning 2014. Differs: training replaces a share of the words with the unknown word; illegal
transitions have the probability 0 also in training.
"""

import dataclasses
from typing import Any, ClassVar

import chex
import jax
import jax.numpy as jnp

from jaxnlp.config import Count, Rate
from jaxnlp.models import Parameter, parameter_table
from jaxnlp.models.parser import CONFIGURATION, Parser, ParserConfig, uniform_vectors
from jaxnlp.nn.dropout import Dropout, dropout_key
from jaxnlp.nn.embedding import Embed
from jaxnlp.nn.shards import first_row_of_shard
from jaxnlp.ops.dropout_masks import keep_mask
from jaxnlp.text.word_inputs import PAD_ID, UNKNOWN_ID


@dataclasses.dataclass(frozen=True)
class FeedForwardParserConfig(ParserConfig):
    """Shape and regularisers of the feed-forward parser."""

    reads: ClassVar[tuple[str, ...]] = ("words", "tags")

    word_width: Count = 50
    """Width of the vectors of words."""
    tag_width: Count = 50
    """Width of the vectors of tags, if the data has tags."""
    word_dropout_rate: Rate = 0.0
    """Share of words replaced with the unknown word in training."""
    embedding_dropout_rate: Rate = 0.0
    """Share of the features of words and tags dropped in training."""

    def inputs(self, processor: Any) -> tuple[jax.ShapeDtypeStruct, ...]:
        del processor
        ids = jax.ShapeDtypeStruct((1, 1), jnp.int32)
        return *CONFIGURATION, ids, ids

    def build(self, processor: Any) -> "FeedForwardParser":
        words = processor.inputs.vocabulary_size
        return FeedForwardParser(self, processor.num_tags, processor.num_relations, processor.num_transitions, words)

    def parameter(self, path: tuple[str, ...]) -> Parameter:
        axes: dict[tuple[str, ...], str] = {(name, "embedding"): "VD" for name in ("words", "tags")}
        return parameter_table.find(parameter_table.entries(axes, "below") | self.scorer_parameters(), path)


class FeedForwardParser(Parser):
    """Scores transitions. The vector of ROOT is the last row of both tables.

    Attributes: as `Parser`, and vocabulary_size, V.
    """

    config: FeedForwardParserConfig
    vocabulary_size: int

    def setup(self):
        super().setup()
        config = self.config
        dtype = config.compute.activation_dtype
        self.words = Embed(self.vocabulary_size + 1, config.word_width, dtype, embedding_init=uniform_vectors)
        if self.num_tags:
            self.tags = Embed(self.num_tags + 1, config.tag_width, dtype, embedding_init=uniform_vectors)
        self.embedding_dropout = Dropout(config.embedding_dropout_rate)

    @property
    def vector_width(self) -> int:
        return self.config.word_width + (self.config.tag_width if self.num_tags else 0)

    def encode(self, *inputs: jax.Array, deterministic: bool = True) -> jax.Array:
        words, tags = inputs
        chex.assert_rank(words, 2)
        chex.assert_equal_shape([words, tags])
        rate = self.config.word_dropout_rate
        if rate and not deterministic:
            kept = keep_mask(dropout_key(self), words.shape, rate, first_row=first_row_of_shard(len(words)))
            words = jnp.where(kept, words, UNKNOWN_ID)
        parts = [self.words(_with_root(words, self.vocabulary_size))]
        if self.num_tags:
            parts.append(self.tags(_with_root(tags, self.num_tags)))
        x = jnp.concatenate(parts, axis=-1)
        chex.assert_shape(x, (words.shape[0], words.shape[1] + 2, self.vector_width))
        return self.embedding_dropout(x, deterministic=deterministic)


def _with_root(ids: jax.Array, root: int) -> jax.Array:
    """Ids [B, T + 2]; the first two are the ids of no word and of ROOT."""
    first = jnp.broadcast_to(jnp.array([[PAD_ID, root]], ids.dtype), (ids.shape[0], 2))
    return jnp.concatenate([first, ids], axis=1)
