"""Extractive question answering: the scores of each token as the answer's first and as its last token.

A BERT, or recurrent layers, read [CLS] question [SEP] text [SEP], and a dense layer scores the tokens. [CLS] as first
and last token means that the text has no answer.

Sources: Devlin et al. 2019, sections 4.2 and 4.3, for BERT; Chen et al. 2017, section 3.2, for the feature "this token
is also in the question", which recurrent layers need, since they do not compare tokens. Differs: one network reads both
texts, without attention to the question.
"""

import dataclasses
from typing import Any, ClassVar, Self

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxnlp.config import Count, Rate
from jaxnlp.models import Adopted, ModelConfig, Parameter, parameter_table
from jaxnlp.models.bert import Bert, BertConfig, BertModelConfig, notes_of_tokens
from jaxnlp.nn.dense import Dense
from jaxnlp.nn.dropout import Dropout
from jaxnlp.nn.embedding import Embed
from jaxnlp.nn.recurrent import CellName, Recurrent, RecurrentCompute, parameter_axes
from jaxnlp.nn.transformer import rows
from jaxnlp.text.question_contexts import QuestionProcessor

HEAD = "span"
"""Name of the layer that scores the tokens."""


@dataclasses.dataclass(frozen=True)
class AnswerSpanConfig(ModelConfig):
    """The base of configs of these models. The module returns scores [B, T, 2], float32: as first and as last token."""

    reads: ClassVar[tuple[str, ...]] = ("tokens", "segments", "attention_mask")

    def inputs(self, processor: QuestionProcessor) -> tuple[jax.ShapeDtypeStruct, ...]:
        tokens = jax.ShapeDtypeStruct((1, 1), jnp.int32)
        return tokens, tokens, jax.ShapeDtypeStruct((1, 1), bool)


@dataclasses.dataclass(frozen=True)
class BertSpanConfig(BertModelConfig, AnswerSpanConfig):
    """A BERT and a dense layer on the vector of each token."""

    def check(self, processor: QuestionProcessor) -> None:
        self.encoder.check_segments(processor.vocabulary.num_segments)

    def build(self, processor: QuestionProcessor) -> "BertSpan":
        return BertSpan(self, self.encoder.embeddings(processor.vocabulary.size))

    def with_encoder(self, encoder: BertConfig) -> Self:
        """This config with a pretrained encoder's config, as Transformers' class has it."""
        return super().with_encoder(encoder.of_tokens())

    def adopt(self, pretrained: Any) -> Adopted:
        """The encoder of any model with a BERT, and the head of a model of this class."""
        adopted = super().adopt(pretrained)
        config: Any = adopted.config
        notes = notes_of_tokens(config.encoder, adopted.params["encoder"], pretrained.name)
        adopted = adopted._replace(notes=(*adopted.notes, *notes))
        head = {HEAD: pretrained.params[HEAD]} if isinstance(pretrained.model.config, BertSpanConfig) else {}
        return adopted._replace(params=adopted.params | head)

    def frozen(self, path: tuple[str, ...]) -> bool:
        # It has no gradient, but weight decay would change it.
        return path[:1] == ("encoder",) and self.encoder.unread_by_tokens(path[1:])

    def parameter(self, path: tuple[str, ...]) -> Parameter:
        if path[:1] == ("encoder",):
            return self.encoder.parameter(path[1:])
        return parameter_table.find(parameter_table.entries(parameter_table.dense((HEAD,), "DC"), head=True), path)


class BertSpan(nn.Module):
    """Scores the tokens by BERT's vectors. Attributes: its config; vocabulary_size: V."""

    config: BertSpanConfig
    vocabulary_size: int

    def setup(self):
        """BERT and the head."""
        self.encoder = Bert(self.config.encoder, self.vocabulary_size, self.config.compute)
        self.span = Dense(2, compute=self.config.compute)

    def __call__(
        self, tokens: jax.Array, segments: jax.Array, attention_mask: jax.Array, *, deterministic: bool = True
    ) -> jax.Array:
        """The scores [B, T, 2], float32, of each token as the first and as the last one of the answer.

        Args:
          tokens: [B, T] int, in [0, V).
          segments: [B, T] int, 0 in the question and 1 in the text.
          attention_mask: [B, T] bool, False for padding, which must be at the end and never changes a result.
          deterministic: no dropout; otherwise the random stream `dropout` is needed.
        """
        x = self.encoder(tokens, segments, attention_mask, deterministic=deterministic).hidden
        return _scores(self.span, x, tokens)


@dataclasses.dataclass(frozen=True)
class RecurrentSpanConfig(AnswerSpanConfig):
    """Bidirectional recurrent layers and a dense layer on the output at each token, trained from scratch."""

    compute: RecurrentCompute = dataclasses.field(default_factory=RecurrentCompute, kw_only=True)
    embedding_width: Count = 64
    """Width of the token embeddings, D."""
    feature_width: Count = 8
    """Width of the embedding of whether a token is in the question, in the text, or in both."""
    widths: tuple[Count, ...] = (64, 64)
    """Width of each recurrent layer in each direction, K, first to last."""
    cell: CellName = "lstm"
    """Type of the recurrent layers: Elman network with tanh or ReLU, GRU, or LSTM."""
    embedding_dropout_rate: Rate = 0.2
    """Share of the features of the embeddings dropped in training."""
    hidden_dropout_rate: Rate = 0.0
    """Share of the features between layers dropped in training, the same ones at all positions."""
    output_dropout_rate: Rate = 0.2
    """Share of the features of the last layer dropped in training."""

    def __post_init__(self):
        super().__post_init__()
        if not self.widths:
            raise ValueError("model.widths needs at least one layer, got none")
        self.only_if(len(self.widths) > 1, "models with several layers", "hidden_dropout_rate")

    @property
    def usual(self) -> tuple[str, ...]:
        return ("embedding_width", "widths")

    def build(self, processor: QuestionProcessor) -> "RecurrentSpan":
        return RecurrentSpan(self, processor.vocabulary.size)

    def parameter(self, path: tuple[str, ...]) -> Parameter:
        table = parameter_table.entries({("tokens", "embedding"): "VD", ("features", "embedding"): "3D"}, "below")
        table |= parameter_table.recurrent(parameter_axes(self.cell), len(self.widths))
        table |= parameter_table.entries(parameter_table.dense((HEAD,), "EC"), head=True)
        return parameter_table.find(table, path)


class RecurrentSpan(nn.Module):
    """Scores the tokens by the outputs of recurrent layers. Attributes: its config; vocabulary_size: V."""

    config: RecurrentSpanConfig
    vocabulary_size: int

    def setup(self):
        """Embeddings, recurrent layers and the head."""
        config, dtype = self.config, self.config.compute.activation_dtype
        self.tokens = Embed(self.vocabulary_size, config.embedding_width, dtype)
        self.features = Embed(3, config.feature_width, dtype)
        self.embedding_dropout = Dropout(config.embedding_dropout_rate)
        self.recurrent = Recurrent(
            config.cell,
            config.widths,
            bidirectional=True,
            hidden_dropout_rate=config.hidden_dropout_rate,
            compute=config.compute,
        )
        self.output_dropout = Dropout(config.output_dropout_rate)
        self.span = Dense(2, compute=config.compute)

    def __call__(
        self, tokens: jax.Array, segments: jax.Array, attention_mask: jax.Array, *, deterministic: bool = True
    ) -> jax.Array:
        """The scores [B, T, 2], float32. Args: as for `BertSpan`."""
        x = jnp.concatenate([self.tokens(tokens), self.features(_kinds(tokens, segments, attention_mask))], axis=-1)
        x = self.embedding_dropout(x, deterministic=deterministic)
        x, _ = self.recurrent(x, deterministic=deterministic, lengths=attention_mask.sum(axis=1))
        return _scores(self.span, self.output_dropout(x, deterministic=deterministic), tokens)


def _kinds(tokens: jax.Array, segments: jax.Array, attention_mask: jax.Array) -> jax.Array:
    """0 for a token of the question, 1 for one of the text that is also in the question, 2 for the others [B, T]."""
    chex.assert_equal_shape([tokens, segments, attention_mask])
    asked = (segments == 0) & attention_mask
    common = ((tokens[:, :, None] == tokens[:, None]) & asked[:, None]).any(axis=-1)
    return jnp.where(segments == 0, 0, jnp.where(common, 1, 2))


def _scores(head: Dense, x: jax.Array, tokens: jax.Array) -> jax.Array:
    scores = head(rows(x)).reshape(*tokens.shape, 2).astype(jnp.float32)
    chex.assert_shape(scores, (*tokens.shape, 2))
    return scores
