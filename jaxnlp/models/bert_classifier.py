"""A BERT, pretrained or from scratch, with a head for the classes of texts or of pairs of texts, or for numbers.

Source: Devlin et al. 2019, section 4.1; `jaxnlp.models.text_vectors` for pairs whose texts are encoded separately.
"""

import dataclasses
import functools
from typing import Any, ClassVar, Literal

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxnlp.config import ReadWhen, refuse_unread
from jaxnlp.models import Adopted, Parameter, parameter_table
from jaxnlp.models.bert import Bert
from jaxnlp.models.classifier import ClassifierConfig, heads_for
from jaxnlp.models.text_vectors import TargetHead, TextVectorsConfig, cosine, embed, pair_features
from jaxnlp.nn.dense import Dense
from jaxnlp.nn.dropout import Dropout
from jaxnlp.nn.feed_forward import gelu
from jaxnlp.targets import Classes, Scale


@dataclasses.dataclass(frozen=True)
class BertClassifierConfig(TextVectorsConfig, ClassifierConfig):
    """A BERT that encodes a text, or a pair of texts together, with a dense layer on its vector; or a BERT that encodes
    the texts of a pair separately, with a dense layer on features of both vectors."""

    reads: ClassVar[tuple[str, ...]] = ("tokens", "attention_mask", "segments")

    token_dropout_rate: float = 0.0
    """Share of the tokens hidden in training, except the first; small data sets are memorised without it."""
    pair_layer: bool = False
    """For pairs with data.pairs apart: a hidden layer between the features of both vectors and the head."""
    similarity: Literal["learned", "cosine"] = "learned"
    """For pairs with data.pairs apart that have a number: predict it with a learned head, or as the cosine of both
    vectors, without a head."""

    def __post_init__(self):
        super().__post_init__()
        if not 0.0 <= self.token_dropout_rate < 1.0:
            raise ValueError(f"model.token_dropout_rate must be in [0, 1), got {self.token_dropout_rate}")
        what = "models without model.freeze_encoder"
        head = "models with a head, not to model.similarity cosine"
        refuse_unread(
            self,
            [
                ReadWhen("token_dropout_rate", 0.0, not self.freeze_encoder, what),
                ReadWhen("head_dropout_rate", 0.1, self.has_head, head),
                ReadWhen("pair_layer", False, self.has_head, head),
                ReadWhen("cosine_logit", None, self.has_head, head),
            ],
        )
        if self.freeze_encoder and not self.has_head:
            raise ValueError(
                "model.freeze_encoder leaves nothing to train, since model.similarity cosine has no head; set "
                "model.similarity to learned"
            )

    @property
    def has_head(self) -> bool:
        """Whether the model has parameters outside the encoder."""
        return self.similarity == "learned"

    def build(self, processor: Any) -> "BertClassifier":
        return BertClassifier(self, self.encoder.embeddings(processor.vocabulary_size), processor.outputs)

    def inputs(self, processor: Any) -> tuple[jax.ShapeDtypeStruct, ...]:
        shape = (1, 2, 1) if processor.apart else (1, 1)
        tokens = jax.ShapeDtypeStruct(shape, jnp.int32)
        return tokens, jax.ShapeDtypeStruct(shape, bool), tokens

    def check(self, processor: Any) -> None:
        apart, targets = processor.apart, processor.targets
        if processor.texts == 2 and not apart and self.encoder.num_segments < 2:
            raise ValueError(
                "model.encoder.num_segments must be at least 2 for pairs of texts that are read together, got 1"
            )
        two = isinstance(targets, Classes) and targets.one_class and len(targets.names) == 2
        pairs = "pairs that are read apart (data.pairs apart)"
        refuse_unread(
            self,
            [
                ReadWhen("pair_layer", False, apart, pairs),
                ReadWhen("cosine_logit", None, apart and two, f"two classes of {pairs}"),
                ReadWhen("similarity", "learned", apart and isinstance(targets, Scale), f"numbers of {pairs}"),
            ],
        )

    def adopt(self, pretrained: Any) -> Adopted:
        """The encoder, and the head if the pretrained classifier predicts the same from the same kind of vector."""
        found = super().adopt(pretrained)
        if not isinstance(pretrained.model.config, BertClassifierConfig):
            return found
        note = self.note_on_heads(pretrained)
        if note is not None:
            return found._replace(notes=(*found.notes, note))
        heads = {name: params for name, params in pretrained.params.items() if name != "encoder"}
        names = ("targets", "texts", "pairs")
        return found._replace(params_for=functools.partial(heads_for, pretrained, heads, names))

    def only_head(self, processor: Any) -> TargetHead | None:
        return None if processor.apart else TargetHead("head", processor.targets, processor.texts)

    def parameter(self, path: tuple[str, ...]) -> Parameter:
        if path[0] == "encoder":
            return self.encoder.parameter(path[1:])
        table = parameter_table.Table()
        if self.has_head:
            table |= parameter_table.entries({("kernel",): "DC", ("bias",): "C"}, head=True, prefix=("head",))
        if self.pair_layer:
            table |= parameter_table.entries({("kernel",): "DD", ("bias",): "D"}, prefix=("pair_layer",))
        return parameter_table.find(table, path)


class BertClassifier(nn.Module):
    """Scores the classes of texts, or of pairs of texts.

    Attributes:
      config: encoder and head.
      vocabulary_size: V.
      outputs: C, the number of classes, or 1 for a number.
    """

    config: BertClassifierConfig
    vocabulary_size: int
    outputs: int

    def setup(self):
        """The encoder and the layers of the head."""
        config = self.config
        self.encoder = Bert(config.encoder, self.vocabulary_size, config.compute)
        self.dropout = Dropout(config.head_dropout_rate)
        if config.pair_layer:
            self.pair_layer = Dense(config.encoder.width, compute=config.compute)
        if config.has_head:
            self.head = Dense(self.outputs, compute=config.compute)

    def __call__(
        self, tokens: jax.Array, attention_mask: jax.Array, segments: jax.Array, *, deterministic: bool = True
    ) -> jax.Array:
        """The scores of the classes.

        Args:
          tokens: [B, T] int; [B, 2, T] for pairs whose texts are encoded separately.
          attention_mask: bool, shaped as `tokens`, False for padding.
          segments: int, shaped as `tokens`, 0 in the first text and 1 in the second; 0 in both if encoded separately.
          deterministic: no dropout; otherwise the random stream `dropout` is needed.

        Returns: logits [B, C], float32; or the cosine [B, 1].
        """
        config, batch = self.config, len(tokens)
        chex.assert_equal_shape([tokens, attention_mask, segments])
        chex.assert_shape(tokens, (batch, 2, None) if tokens.ndim == 3 else (batch, None))
        vectors = embed(
            self,
            self.encoder,
            config,
            *(x.reshape(-1, x.shape[-1]) for x in (tokens, segments, attention_mask)),
            token_dropout_rate=config.token_dropout_rate,
            deterministic=deterministic,
        )
        if tokens.ndim == 2:
            logits = self.head(self.dropout(vectors, deterministic=deterministic))
        else:
            logits = self._compare(*vectors.reshape(batch, 2, -1).swapaxes(0, 1), deterministic=deterministic)
        chex.assert_shape(logits, (batch, self.outputs))
        return logits.astype(jnp.float32)

    def _compare(self, u: jax.Array, v: jax.Array, *, deterministic: bool) -> jax.Array:
        """The scores [B, C] of pairs, from the vectors [B, D] of their texts."""
        config = self.config
        if not config.has_head:
            return cosine(u, v)[:, None]
        x = self.dropout(pair_features(u, v), deterministic=deterministic)
        if config.pair_layer:
            x = self.dropout(gelu(self.pair_layer(x)), deterministic=deterministic)
        logits = self.head(x).astype(jnp.float32)
        if config.cosine_logit is None:
            return logits
        slope, threshold = config.cosine_logit
        return logits.at[:, 1].add(slope * (cosine(u, v) - threshold))
