"""Families of encoders, one a file: their settings and tensors in Transformers.

All are variants of `jaxnlp.models.bert.Bert`. A new family is a new file with a `FAMILY`, without code of its own.
"""

import types
from collections.abc import Mapping
from typing import Any, NamedTuple

from jaxnlp.convert.families import families_in
from jaxnlp.convert.tensors import BlockNames
from jaxnlp.text.foreign_settings import ForeignSettings


class EncoderNames(NamedTuple):
    """The tensors of an encoder, without `.weight` and `.bias`.

    Attributes:
      tokens, positions, segments: tables of embeddings; None = no such table.
      embedding_norm: the normalisation of their sum.
      blocks: of each block.
      pooler: the dense layer of the pooler.
      transform, norm: layers of the head of masked tokens.
      token_bias: the whole name of the bias of that head's output layer.
      output: the output layer itself, whose tensors some files store again.
      follows: the head of next sentences; None = none.
      projection: the layer from the embeddings' width to the model's, if they differ.
      replaced: both layers of the head of replaced tokens; None = none.
      final_norm, pooler_norm: normalisations after the last block, and of the pooler's output; None = none.
    """

    tokens: str
    positions: str | None
    segments: str | None
    embedding_norm: str
    blocks: BlockNames
    pooler: str
    transform: str
    norm: str
    token_bias: str
    output: str
    follows: str | None
    projection: str
    replaced: tuple[str, str] | None
    final_norm: str | None = None
    pooler_norm: str | None = None


class EncoderFamily(NamedTuple):
    """How Transformers stores the encoders of a model type.

    Attributes:
      title: its name in messages.
      prefix: of the names of its classes, such as Bert in BertModel.
      base: the encoder in a model with heads, the first part of its tensors' names.
      outside: first parts of the names of tensors that are not in the encoder.
      names: of its tensors.
      fields: settings of config.json that are fields of `BertConfig`.
      rules: for config.json.
      fixed: fields of `BertConfig` without a setting, and their values in this family.
      classifier: first part of the names of the output layer of a classifier of texts.
      classifier_pooler: the pooler in a classifier of texts.
      dropout: the setting of the dropout before a head's output layer, by the end of the name of the head's class.
      reads_segments: whether its classes take the segments of tokens.
      defaults: fields of `BertConfig` that a file may leave out, where they are not `BertConfig`'s.
      layer_kinds: whether layers are local or global, each with its rotary positions, see `jaxnlp.convert.layer_kinds`.
      answers: first part of the names of a question answering class's output layer.
      dense_heads: whether its classes for tokens and answers have only dropout and a dense layer after the encoder;
        otherwise also the pooler, as a layer of each token.
      values: our values for a setting's values that differ.
    """

    title: str
    prefix: str
    base: str
    outside: tuple[str, ...]
    names: EncoderNames
    fields: Mapping[str, str]
    rules: ForeignSettings
    fixed: Mapping[str, Any]
    classifier: str
    classifier_pooler: str
    dropout: Mapping[str, str]
    reads_segments: bool = True
    defaults: Mapping[str, Any] = types.MappingProxyType({})
    layer_kinds: bool = False
    answers: str = "qa_outputs."
    dense_heads: bool = True
    values: Mapping[str, Mapping[Any, Any]] = types.MappingProxyType({})

    @property
    def pools(self) -> bool:
        """Whether its class without a head may have a pooler, besides its classifier of texts."""
        return not f"{self.names.pooler}.".startswith(self.outside)

    @property
    def barriers(self) -> tuple[str, ...]:
        """Biases of heads. Empty ones make classes of Transformers refuse weights, instead of adding a random head."""
        return tuple(dict.fromkeys(("classifier.bias", f"{self.classifier}bias")))


def families() -> dict[str, EncoderFamily]:
    """The families, by their `model_type`."""
    return families_in(__name__)
