"""One encoder, and a small head for each part of the data: classes, paraphrases, or similarities of one or two texts.

Source: Devlin et al. 2019 for classification by a dense layer; Conneau et al. 2017 for the features of a pair; Reimers
and Gurevych 2019 for means over tokens and the cosine.
"""

import dataclasses
import logging
from typing import Any, Literal

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxnlp.config import ReadWhen, refuse_unread
from jaxnlp.models import Adopted, Parameter, parameter_table
from jaxnlp.models.bert import Bert
from jaxnlp.models.text_vectors import TargetHead, TextVectorsConfig, cosine, embed, pair_features
from jaxnlp.nn.dense import Dense
from jaxnlp.nn.dropout import Dropout
from jaxnlp.nn.feed_forward import gelu
from jaxnlp.targets import Classes
from jaxnlp.text.labels import Labels, number_of_texts
from jaxnlp.typing import Params

_logger = logging.getLogger(__name__)

Parts = tuple[tuple[str, Labels], ...]
"""Names of parts and their labels."""


@dataclasses.dataclass(frozen=True)
class TextTasksConfig(TextVectorsConfig):
    """A BERT with a head for each part of the data."""

    token_dropout_rate: float = 0.0
    """Share of the tokens hidden in training, except the first; small data sets are memorised without it. Only of
    single texts: two texts may differ only in one word."""
    similarity: Literal["cosine", "learned"] = "cosine"
    """Similarity of two texts: the cosine of their vectors, or a learned layer on features of the pair."""
    pair_layer: Literal["none", "separate", "shared"] = "none"
    """A hidden layer between the features of a pair and its heads: none, one for each part, or one for all."""

    def check(self, processor: Any) -> None:
        parts: Parts = processor.parts
        kinds = {labels.kind for _, labels in parts}
        paired = any(self.has_pair_features(labels) for _, labels in parts)
        similar = "similarity" in kinds
        if not 0.0 <= self.token_dropout_rate < 1.0:
            raise ValueError(f"model.token_dropout_rate must be in [0, 1), got {self.token_dropout_rate}")
        if self.token_dropout_rate and self.freeze_encoder:
            raise ValueError("model.token_dropout_rate has no effect with model.freeze_encoder; set it to 0")
        if self.token_dropout_rate and all(labels.texts == 2 for _, labels in parts):
            raise ValueError(
                "model.token_dropout_rate applies only to single texts, but the data has pairs; set it to 0"
            )
        refuse_unread(
            self,
            [
                ReadWhen("similarity", "cosine", similar, "parts with similarities"),
                ReadWhen("pair_layer", "none", paired, "parts with features of a pair"),
                ReadWhen("cosine_logit", None, "paraphrase" in kinds, "parts with paraphrases"),
                ReadWhen("head_dropout_rate", 0.1, any(map(self.has_head, dict(parts).values())), "parts with a head"),
            ],
        )
        if self.freeze_encoder and not any(map(self.has_head, dict(parts).values())):
            raise ValueError(
                f"model.freeze_encoder leaves nothing to train: {', '.join(dict(parts))} with cosine has no head; set "
                "--model.similarity learned"
            )

    def has_head(self, labels: Labels) -> bool:
        """Whether a part has parameters of its own."""
        return labels.kind != "similarity" or self.similarity == "learned"

    def has_pair_features(self, labels: Labels) -> bool:
        """Whether a part's head reads features of a pair."""
        return labels.texts == 2 and self.has_head(labels)

    def build(self, processor: Any) -> "TextTasks":
        return TextTasks(self, self.encoder.embeddings(processor.vocabulary.size), processor.parts)

    def inputs(self, processor: Any) -> tuple[jax.ShapeDtypeStruct, ...]:
        texts = max(labels.texts for _, labels in processor.parts)
        return (jax.ShapeDtypeStruct((1, texts, 1), jnp.int32),)

    def adopt(self, pretrained: Any) -> Adopted:
        """The encoder, and the heads if the pretrained model has the same kind of heads, parts and labels."""
        found, theirs = super().adopt(pretrained), pretrained.model.config
        heads = {name: value for name, value in pretrained.params.items() if name != "encoder"}
        if not isinstance(theirs, TextTasksConfig) or not heads:
            return found
        note = self.note_on_heads(pretrained)
        if note is not None:
            return found._replace(notes=(*found.notes, note))

        def heads_for(processor: Any) -> Params:
            before, now = dict(pretrained.processor.parts), dict(processor.parts)
            if before == now:
                return heads
            if before.keys() & now.keys():
                _logger.warning("the heads of %s are not used: %s", pretrained.name, _differing_parts(before, now))
            return {}

        return found._replace(params_for=heads_for)

    def only_head(self, processor: Any) -> TargetHead | None:
        (name, labels), *others = processor.parts
        single = not others and labels.kind == "classification" and labels.texts == 1
        return TargetHead(f"heads_{name}", Classes(labels.names)) if single else None

    def parameter(self, path: tuple[str, ...]) -> Parameter:
        if path[0] == "encoder":
            return self.encoder.parameter(path[1:])
        layer = {}
        if path[0].startswith("heads_"):
            layer = parameter_table.entries({("kernel",): "DC", ("bias",): "C"}, head=True, prefix=path[:1])
        if path[0].startswith("relations_"):
            layer = parameter_table.entries({("kernel",): "DD", ("bias",): "D"}, prefix=path[:1])
        return parameter_table.find(layer, path)


def _differing_parts(before: dict[str, Labels], now: dict[str, Labels]) -> str:
    """The differences between the parts of a pretrained model and those of the data."""
    return ", ".join(
        [f"{name} has other labels" for name in before if name in now and before[name] != now[name]]
        + [f"this data does not have {name}" for name in before if name not in now]
        + [f"the model does not have {name}" for name in now if name not in before]
    )


class TextTasks(nn.Module):
    """Predicts the labels of texts.

    Attributes:
      config: encoder and heads.
      vocabulary_size: V.
      parts: names and labels.
    """

    config: TextTasksConfig
    vocabulary_size: int
    parts: Parts

    def setup(self):
        """The encoder, the heads and the pair layers."""
        config, parts = self.config, dict(self.parts)
        self.encoder = Bert(config.encoder, self.vocabulary_size, config.compute)
        self.dropout = Dropout(config.head_dropout_rate)
        pairs = [name for name, labels in parts.items() if config.has_pair_features(labels)]
        self.heads = {
            name: Dense(len(labels.names) if labels.kind == "classification" else 1, compute=config.compute)
            for name, labels in parts.items()
            if config.has_head(labels)
        }
        layers = {"none": [], "separate": pairs, "shared": ["pairs"] if pairs else []}[config.pair_layer]
        self.relations = {name: Dense(config.encoder.width, compute=config.compute) for name in layers}

    def __call__(
        self, tokens: jax.Array, attention_mask: jax.Array | None = None, *, deterministic: bool = True
    ) -> dict[str, jax.Array]:
        """Predictions of all parts that need at most S texts.

        Args:
          tokens: [B, S, T] int, S texts a row.
          attention_mask: bool, shaped as `tokens`, False for padding; None = no padding.
          deterministic: no dropout; otherwise the random stream `dropout` is needed.

        Returns:
          By the parts' names, the results of `predict`; parts with one text read the first of each row.
        """
        chex.assert_rank(tokens, 3)
        vectors = self.embed(tokens, attention_mask, deterministic=deterministic)
        return {
            name: self._answer(vectors[:, : labels.texts], name, labels, deterministic)
            for name, labels in self.parts
            if labels.texts <= tokens.shape[1]
        }

    def predict(
        self, tokens: jax.Array, attention_mask: jax.Array | None, part: str, *, deterministic: bool = True
    ) -> jax.Array:
        """One part's predictions.

        Args:
          tokens: [B, S, T] int, S the part's number of texts.
          attention_mask: as for `__call__`.
          part: its name.
          deterministic: as for `__call__`.

        Returns:
          Classification: the logits of the classes [B, C]. Paraphrase: the logit of equal meaning [B]. Similarity: a
            score from 0 to 1 [B]; the cosine may be negative. All float32.

        Raises: ValueError for another number of texts.
        """
        labels = dict(self.parts)[part]
        if tokens.ndim != 3 or tokens.shape[1] != labels.texts:
            raise ValueError(f"{part} takes {number_of_texts(labels.texts)}, got tokens {tokens.shape}")
        vectors = self.embed(tokens, attention_mask, deterministic=deterministic)
        return self._answer(vectors, part, labels, deterministic)

    def embed(
        self, tokens: jax.Array, attention_mask: jax.Array | None = None, *, deterministic: bool = True
    ) -> jax.Array:
        """The vector of each text: from tokens and mask [B, S, T] to [B, S, D]."""
        chex.assert_rank(tokens, 3)
        batch, texts, positions = tokens.shape
        mask = jnp.ones(tokens.shape, bool) if attention_mask is None else attention_mask
        chex.assert_shape(mask, (batch, texts, positions))
        rows, seen = tokens.reshape(-1, positions), mask.reshape(-1, positions)
        vectors = embed(
            self,
            self.encoder,
            self.config,
            rows,
            None,
            seen,
            token_dropout_rate=self.config.token_dropout_rate if texts == 1 else 0.0,
            deterministic=deterministic,
        )
        return vectors.reshape(batch, texts, -1)

    def _answer(self, vectors: jax.Array, name: str, labels: Labels, deterministic: bool) -> jax.Array:
        config = self.config
        if not config.has_head(labels):
            return cosine(vectors[:, 0], vectors[:, 1])
        if labels.texts == 1:
            x = self.dropout(vectors[:, 0], deterministic=deterministic)
        else:
            x = self.dropout(pair_features(vectors[:, 0], vectors[:, 1]), deterministic=deterministic)
            layer = self.relations.get("pairs" if config.pair_layer == "shared" else name)
            if layer is not None:
                x = self.dropout(gelu(layer(x)), deterministic=deterministic)
        logits = self.heads[name](x).astype(jnp.float32)
        if labels.kind == "classification":
            chex.assert_shape(logits, (len(vectors), len(labels.names)))
            return logits
        logit = logits[:, 0]
        if labels.kind == "paraphrase" and config.cosine_logit is not None:
            slope, threshold = config.cosine_logit
            logit += slope * (cosine(vectors[:, 0], vectors[:, 1]) - threshold)
        return jax.nn.sigmoid(logit) if labels.kind == "similarity" else logit
