"""Families of image encoders, one a file: their settings and tensors in Transformers.

All are variants of `jaxnlp.models.vit.ViT`. A new family is a new file with a `FAMILY`.
"""

import types
from collections.abc import Mapping
from typing import Any, NamedTuple

from jaxnlp.convert.families import families_in
from jaxnlp.convert.tensors import BlockNames
from jaxnlp.text.foreign_settings import ForeignSettings


class ImageEncoderNames(NamedTuple):
    """The tensors of an image encoder.

    Attributes:
      tokens: whole names of the tokens before the patches, by their names in `ViT`.
      positions: the whole name of the table of positions.
      patches: the layer on patches, without `.weight` and `.bias`; the others too.
      blocks: of each block.
      final_norm: the normalisation after the last block.
      pooler: the dense layer of the pooler; "" = none.
      unused: whole names of unused tensors.
      first_axes: number of axes of length 1 before those of a token, and of the table of positions.
      embedding_norm: the normalisation before the first block; "" = none.
      projection: the layer after the last normalisation, outside the encoder; "" = none.
    """

    tokens: Mapping[str, str]
    positions: str
    patches: str
    blocks: BlockNames
    final_norm: str
    pooler: str
    unused: tuple[str, ...]
    first_axes: tuple[int, int] = (2, 1)
    embedding_norm: str = ""
    projection: str = ""


class ImageEncoderFamily(NamedTuple):
    """How Transformers stores the image encoders of a model type.

    Attributes:
      title: its name in messages, and the first part of its classes' names.
      base: the encoder in its classes with heads, the first part of its tensors' names.
      names: of its tensors.
      architectures: its classes without heads: without a projection, and with one if it has such a class.
      heads: the layers of a class's heads, in the order of their tokens, by the end of its name.
      distillation: `ViTConfig.distillation` by the number of heads.
      fields: settings of config.json that are fields of `ViTConfig`.
      values: our values for a setting's values that differ; the first of equal ones is exported.
      rules: for config.json.
      defaults: fields of `ViTConfig` that a config.json may leave out.
      preprocessor: the class of image processor for a preprocessor_config.json without one.
      fixed: fields of `ViTConfig` without a setting, and their values in this family.
    """

    title: str
    base: str
    names: ImageEncoderNames
    architectures: tuple[str, ...]
    heads: Mapping[str, tuple[str, ...]]
    distillation: tuple[str, ...]
    fields: Mapping[str, str]
    values: Mapping[str, Mapping[Any, Any]]
    rules: ForeignSettings
    defaults: Mapping[str, Any]
    preprocessor: str
    fixed: Mapping[str, Any] = types.MappingProxyType({})


def families() -> dict[str, ImageEncoderFamily]:
    """The families, by their `model_type`."""
    return families_in(__name__)
