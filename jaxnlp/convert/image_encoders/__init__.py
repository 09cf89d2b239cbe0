"""Families of encoders of images, one a file: what Transformers calls their settings and tensors.

All are variants of `jaxnlp.models.vit.ViT`. A new family is a new file with a `FAMILY`.
"""

import importlib
import pkgutil
from collections.abc import Mapping
from typing import Any, NamedTuple

from jaxnlp.text.foreign_settings import ForeignSettings


class ImageEncoderFamily(NamedTuple):
    """How Transformers stores the encoders of images of a model type.

    Attributes:
      title: its name in messages, and the first part of its classes' names.
      base: the encoder in its classes with heads, the first part of its tensors' names.
      heads: by the end of a class's name: the layers of its heads, in the order of the tokens that they read.
      distillation: `ViTConfig.distillation` by the number of heads.
      fields: settings of config.json that are fields of `ViTConfig`.
      values: our value for each value of a setting that is written in another way; the first of equal ones is exported.
      rules: what is done with each setting of config.json.
      defaults: fields of `ViTConfig` that a config.json may leave out.
      preprocessor: the class of image processors that a preprocessor_config.json without one has.
    """

    title: str
    base: str
    heads: Mapping[str, tuple[str, ...]]
    distillation: tuple[str, ...]
    fields: Mapping[str, str]
    values: Mapping[str, Mapping[Any, Any]]
    rules: ForeignSettings
    defaults: Mapping[str, Any]
    preprocessor: str


def families() -> dict[str, ImageEncoderFamily]:
    """The families, by their `model_type`: the names of the files of this folder."""
    names = [info.name for info in pkgutil.iter_modules(__path__)]
    return {name: importlib.import_module(f"{__name__}.{name}").FAMILY for name in names}
