"""The feed-forward parser of Chen and Manning: a word's vector is that of the word beside that of its tag.

18 words, 18 tags and 12 labels describe a configuration.

Source: Chen and Manning 2014. Differs: words that occur once are unknown words in training, and a share of the others is
so at random; transitions that are not allowed have no probability in training either.
"""

import dataclasses
from typing import Any, ClassVar

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxnlp.models import Parameter, parameter_table
from jaxnlp.models.parser import Parser, ParserConfig, uniform_vectors
from jaxnlp.nn.dropout import Dropout, first_row_of_shard
from jaxnlp.ops.dropout import keep_mask
from jaxnlp.text.parser_processor import ABSENT_ID, ROOT_ID, UNKNOWN_ID


@dataclasses.dataclass(frozen=True)
class FeedForwardParserConfig(ParserConfig):
    """Shape and regularisers of the feed-forward parser."""

    inputs: ClassVar[tuple[str, ...]] = ("words", "tags")

    word_width: int = 50
    """Width of the vectors of words."""
    tag_width: int = 50
    """Width of the vectors of tags, where the data has tags."""
    word_dropout_rate: float = 0.0
    """Share of the words that are read as unknown words in training."""
    embedding_dropout_rate: float = 0.0
    """Share of the numbers in the vectors of words and tags that is dropped in training."""

    def __post_init__(self):
        super().__post_init__()
        for name in ("word_width", "tag_width"):
            if getattr(self, name) < 1:
                raise ValueError(f"model.{name} must be at least 1, got {getattr(self, name)}")

    def build_parser(self, processor: Any) -> "FeedForwardParser":
        tags = processor.num_tags if processor.tags else 0
        return FeedForwardParser(
            self, processor.vocabulary_size, tags, processor.num_relations, processor.num_transitions
        )

    def parameter(self, path: tuple[str, ...]) -> Parameter:
        axes = {(name, "embedding"): "VD" for name in ("words", "tags")}
        return parameter_table.find(parameter_table.entries(axes, "below") | self.scorer_parameters(), path)


class FeedForwardParser(Parser):
    """Scores of transitions. Attributes: as `Parser`."""

    config: FeedForwardParserConfig

    def setup(self):
        """The vectors of words and tags."""
        super().setup()
        config = self.config
        dtype = config.compute.dtype
        self.words = nn.Embed(self.vocabulary_size, config.word_width, dtype=dtype, embedding_init=uniform_vectors)
        if self.num_tags:
            self.tags = nn.Embed(self.num_tags, config.tag_width, dtype=dtype, embedding_init=uniform_vectors)
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
            kept = keep_mask(self.make_rng("dropout"), words.shape, rate, first_row=first_row_of_shard(len(words)))
            words = jnp.where(kept, words, UNKNOWN_ID)
        first = jnp.broadcast_to(jnp.array([[ABSENT_ID, ROOT_ID]], words.dtype), (len(words), 2))
        parts = [self.words(jnp.concatenate([first, words], axis=1))]
        if self.num_tags:
            parts.append(self.tags(jnp.concatenate([first, tags], axis=1)))
        x = jnp.concatenate(parts, axis=-1)
        chex.assert_shape(x, (len(words), words.shape[1] + 2, self.vector_width))
        return self.embedding_dropout(x, deterministic=deterministic)
