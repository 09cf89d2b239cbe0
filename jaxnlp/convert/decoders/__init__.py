"""Families of decoders, one a file: their settings and tensors in Transformers.

Each is a variant of `jaxnlp.models.gpt.GPT` or of `jaxnlp.models.llama.Llama`. A new family is a new file with a
`FAMILY`, without code of its own.
"""

import re
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from jaxnlp.convert.families import families_in
from jaxnlp.convert.tensors import BlockNames
from jaxnlp.models.gpt import GPTConfig
from jaxnlp.text.foreign_settings import ForeignSettings


class DecoderNames(NamedTuple):
    """The tensors of a decoder, without `.weight` and `.bias`.

    Attributes:
      tokens, positions: tables of embeddings; "" = no positions.
      blocks: of each block.
      norm: the normalisation after the last block.
      head: the output layer, which some files store although it is tied.
      buffers: whole names of unused tensors in each block, such as the mask of causal attention.
    """

    tokens: str
    positions: str
    blocks: BlockNames
    norm: str
    head: str
    buffers: tuple[str, ...]


class DecoderFamily(NamedTuple):
    """How Transformers stores the decoders of a model type.

    Attributes:
      title: its name in messages.
      config: the class of our config.
      architecture: its class with the output layer.
      base: the decoder in that class, the first part of its tensors' names.
      names: of its tensors.
      transposed: whether matrices are [outputs, inputs], as in PyTorch's Linear.
      fields: settings of config.json that are fields of our config.
      values: our values for a setting's values that differ; the first of equal ones is exported.
      rules: for config.json.
      defaults: fields of our config that a config.json may leave out.
      fixed: fields of our config without a setting, and their values in this family.
      end: the token at the end of a text, if the tokenizer has it and names no other one.
      rotary: whether settings describe rotary positions, see `jaxnlp.convert.rotary`.
      windows: whether settings give layers a sliding window, see `jaxnlp.convert.sliding_windows`.
    """

    title: str
    config: type[GPTConfig]
    architecture: str
    base: str
    names: DecoderNames
    transposed: bool
    fields: Mapping[str, str]
    values: Mapping[str, Mapping[Any, Any]]
    rules: ForeignSettings
    defaults: Mapping[str, Any]
    fixed: Mapping[str, Any]
    end: str
    rotary: bool = False
    windows: Literal["none", "some", "all"] = "none"

    @property
    def classifier(self) -> str:
        """Its class with a head for classes of texts."""
        return re.sub("(LMHeadModel|ForCausalLM)$", "ForSequenceClassification", self.architecture)


def families() -> dict[str, DecoderFamily]:
    """The families, by their `model_type`."""
    return families_in(__name__)
