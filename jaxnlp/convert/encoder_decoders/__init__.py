"""Families of encoder-decoders, one a file: their settings and tensors in Transformers.

All are variants of `jaxnlp.models.encoder_decoder.EncoderDecoder`. A new family is a new file with a `FAMILY`.
"""

import types
from collections.abc import Mapping
from typing import Any, NamedTuple

from jaxnlp.convert.families import families_in
from jaxnlp.convert.tensors import BlockNames
from jaxnlp.text.foreign_settings import ForeignSettings
from jaxnlp.text.pretrained_subwords import PretrainedSubwords


class StackNames(NamedTuple):
    """The tensors of the encoder, or of the decoder, without `.weight`.

    Attributes:
      blocks: of each block with a gated feed-forward layer.
      up: the first feed-forward layer of a block without a gate.
      relative_bias: the table of the relative bias, in the first block for all.
      norm: the normalisation after the last block.
      positions: the table of learned positions, or of sines, which a file may leave out.
      embedding_norm: the normalisation of the embeddings.
    """

    blocks: BlockNames
    up: str
    relative_bias: str = ""
    norm: str = ""
    positions: str = ""
    embedding_norm: str = ""


class EncoderDecoderFamily(NamedTuple):
    """How Transformers stores the encoder-decoders of a model type.

    Attributes:
      title: its name in messages.
      architecture: its class with the output layer.
      tokens: the table of embeddings, without `.weight`.
      copies: further names of this table in files; or the tables of sources and of targets.
      head: the output layer, which some files store although it is tied.
      encoder, decoder: the other tensors.
      buffers: whole names of unused tensors.
      fields: settings of config.json that are fields of `EncoderDecoderConfig`; `feed_forward` is the activation, and
        whether there is a gate. Settings of one field must be equal.
      values: our values for a setting's values that differ; the first of equal ones is exported.
      rules: for config.json.
      defaults: fields that a config.json may leave out.
      fixed: fields of `EncoderDecoderConfig` without a setting, and their values in this family.
      scales_logits: whether logits may be scaled.
      prefix: of all tensors but the output layer, in the class with it.
      output_bias: the biases of the logits, [1, V]; a file may leave them out if they are 0.
      separates_copies: whether a model with an untied output layer also has the copies of the table.
      mask_is_optional: whether a model may lack the embedding of the tokenizer's last token, `mask_token`.
      two_tables: whether sources and targets may have separate tables: `share_encoder_decoder_embeddings` false.
      aliases: further names of fields in config.json.
      special: ids of special tokens that a config.json may leave out.
      tokenizer: the class of its tokenizer here.
    """

    title: str
    architecture: str
    tokens: str
    copies: tuple[str, ...]
    head: str
    encoder: StackNames
    decoder: StackNames
    buffers: tuple[str, ...]
    fields: Mapping[str, str]
    values: Mapping[str, Mapping[Any, Any]]
    rules: ForeignSettings
    defaults: Mapping[str, Any]
    fixed: Mapping[str, Any]
    scales_logits: bool
    prefix: str = ""
    output_bias: str = ""
    separates_copies: bool = False
    mask_is_optional: bool = False
    two_tables: bool = False
    aliases: Mapping[str, str] = types.MappingProxyType({})
    special: Mapping[str, int] = types.MappingProxyType({"pad_token_id": 0})
    tokenizer: type[PretrainedSubwords] = PretrainedSubwords

    def setting(self, field: str) -> str:
        """The setting of config.json for this field."""
        return next(theirs for theirs, ours in self.fields.items() if ours == field)


def families() -> dict[str, EncoderDecoderFamily]:
    """The families, by their `model_type`."""
    return families_in(__name__)
