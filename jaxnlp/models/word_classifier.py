"""The base of classifiers that look up a vector for each word of a text. E is the width of the features."""

import dataclasses
from typing import Any, Literal

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxnlp.config import Count, Rate, UserPath
from jaxnlp.corpus import Corpus
from jaxnlp.models import parameter_table
from jaxnlp.models.classifier import TokenClassifierConfig
from jaxnlp.models.parameter_table import Table
from jaxnlp.nn.dense import Dense
from jaxnlp.nn.dropout import Dropout
from jaxnlp.nn.embedding import Embed
from jaxnlp.text.word_vectors import initial_word_vectors
from jaxnlp.typing import Params

EMBEDDING_BOUND = 0.25
"""Random initial word vectors are uniform between minus and plus this (Kim 2014, in the author's code)."""


@dataclasses.dataclass(frozen=True)
class WordClassifierConfig(TokenClassifierConfig):
    """The base of configs of word classifiers. Their processor has the `words` of its vocabulary, by id."""

    embedding_width: Count = 128
    """Width of the word vectors, D."""
    vectors: Literal["random", "static", "non_static", "two_channels"] = "random"
    """Word vectors: random and trained; from a file and not trained (static); from a file and trained (non_static); or
    both of the last two (two_channels)."""
    vectors_path: UserPath | None = None
    """Text file of word vectors in the format of word2vec or GloVe; needed unless vectors are random."""
    embedding_dropout_rate: Rate = 0.0
    """Dropout rate of the word vectors."""
    dropout_rate: Rate = 0.5
    """Dropout rate of the features."""

    def __post_init__(self):
        super().__post_init__()
        given = self.vectors != "random"
        self.only_if(given, "vectors that are not random", "vectors_path")
        if given and not self.vectors_path:
            raise ValueError(f"model.vectors {self.vectors} needs a file of word vectors: set model.vectors_path")

    @property
    def channels(self) -> int:
        """Number of vectors of a word, which are concatenated."""
        return 2 if self.vectors == "two_channels" else 1

    def frozen(self, path: tuple[str, ...]) -> bool:
        return path[0] == "static_tokens" or (path[0] == "tokens" and self.vectors == "static")

    def initial_params(self, corpus: Corpus) -> Params:
        if self.vectors_path is None:
            return {}
        words, width = corpus.processor.words, self.embedding_width
        vectors = initial_word_vectors(self.vectors_path, words, width, "embedding_width")
        names = ("tokens", "static_tokens")[: self.channels]
        return {name: {"embedding": vectors} for name in names}

    def architecture(self) -> dict[str, Any]:
        fields = super().architecture()
        del fields["vectors_path"]  # it decides only initial parameters
        return fields | {"vectors": "two_channels" if self.channels == 2 else "one channel"}

    def parameters_around(self, features: str) -> Table:
        """Table entries of the word vectors and of the output layer, whose kernel has these axes."""
        names = ("tokens", "static_tokens")[: self.channels]
        table = parameter_table.entries({(name, "embedding"): "VD" for name in names}, "below")
        return table | parameter_table.entries(parameter_table.dense(("head",), features), head=True)


class WordClassifier(nn.Module):
    """Scores the classes of texts from features of their word vectors; a subclass defines `features`.

    Attributes:
      config: shape and variants.
      vocabulary_size: V.
      outputs: number of logits, C.
    """

    config: WordClassifierConfig
    vocabulary_size: int
    outputs: int

    def setup(self):
        """Tables of word vectors, dropout and the output layer."""
        config = self.config

        def table() -> Embed:
            initial = nn.initializers.uniform(2 * EMBEDDING_BOUND)
            return Embed(
                self.vocabulary_size,
                config.embedding_width,
                dtype=config.compute.activation_dtype,
                embedding_init=lambda *arguments: initial(*arguments) - EMBEDDING_BOUND,
            )

        self.tokens = table()
        if config.channels == 2:
            self.static_tokens = table()
        self.embedding_dropout = Dropout(config.embedding_dropout_rate)
        self.dropout = Dropout(config.dropout_rate)
        self.head = Dense(self.outputs, compute=config.compute)

    def __call__(self, tokens: jax.Array, attention_mask: jax.Array, *, deterministic: bool = True) -> jax.Array:
        """Scores the classes.

        Args:
          tokens: [B, T] int, in [0, V).
          attention_mask: [B, T] bool, False for padding, which never changes a result.
          deterministic: no dropout; otherwise the random stream `dropout` is needed.

        Returns:
          Logits [B, C], float32.
        """
        x = self.embed(tokens, attention_mask, deterministic=deterministic)
        pooled = self.features(x, attention_mask, deterministic=deterministic)
        chex.assert_shape(pooled, (tokens.shape[0], None))
        return self.head(self.dropout(pooled, deterministic=deterministic)).astype(jnp.float32)

    def embed(self, tokens: jax.Array, attention_mask: jax.Array, *, deterministic: bool) -> jax.Array:
        """Word vectors [B, T, D], or [B, T, 2 D] with two channels; 0 at padding. Arguments: as for `__call__`."""
        chex.assert_rank(tokens, 2)
        chex.assert_equal_shape([tokens, attention_mask])
        x = self.tokens(tokens)
        if self.config.vectors == "static":
            x = jax.lax.stop_gradient(x)
        if self.config.channels == 2:
            x = jnp.concatenate([x, jax.lax.stop_gradient(self.static_tokens(tokens))], axis=-1)
        x = self.embedding_dropout(x, deterministic=deterministic)
        return jnp.where(attention_mask[:, :, None], x, jnp.zeros_like(x))

    def features(self, x: jax.Array, attention_mask: jax.Array, *, deterministic: bool) -> jax.Array:
        """Features [B, E] of texts, from their word vectors as `embed` returns them; 0 for a text without words."""
        raise TypeError(f"{type(self).__name__} does not define features()")
