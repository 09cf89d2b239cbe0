"""Folders of pretrained image encoders, as Hugging Face Transformers writes and reads them."""

import dataclasses
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from jaxnlp.convert.folders import (
    CONFIG,
    PretrainedError,
    errors_name,
    find_folder,
    read_object,
    read_tensors,
    refuse_files,
    write_folder,
)
from jaxnlp.convert.image_encoder_weights import from_huggingface, has_pooler, heads_of, to_huggingface
from jaxnlp.convert.image_encoders import ImageEncoderFamily, families
from jaxnlp.convert.image_processors import PREPROCESSOR, PROCESSOR, image_settings, read_image_settings
from jaxnlp.convert.shapes import class_names, distinct, fields_of, label_settings, settings_of
from jaxnlp.images.processor import ImageProcessor
from jaxnlp.models.classifier import HEAD
from jaxnlp.models.vit import DISTILLATION_HEAD, ViTConfig, resized_positions
from jaxnlp.nn.compute import EXACT
from jaxnlp.saving.atomic_files import refuse_contents
from jaxnlp.typing import Params

_logger = logging.getLogger(__name__)


class PretrainedImageEncoder(NamedTuple):
    """A pretrained image encoder, perhaps with heads that score classes.

    Attributes:
      config: shape of the model.
      params: parameters of `ViT`, NumPy arrays.
      processor: the size and the normalisation of images, and the names of the classes; () = no head.
    """

    config: ViTConfig
    params: Params
    processor: ImageProcessor


def read_image_encoder(path: str | Path, *, ignore: tuple[str, ...] = ()) -> PretrainedImageEncoder:
    """Reads an image encoder from a folder that Transformers wrote, or from the Hugging Face Hub.

    If preprocessor_config.json has another size than config.json, positions are interpolated to it, as with
    Transformers' `interpolate_pos_encoding`, with a warning in the log.

    Args:
      path: a folder, or a name such as "google/vit-base-patch16-224", which is downloaded once.
      ignore: names, or their prefixes, of tensors to leave out, such as "classifier.".

    Raises:
      PretrainedError: when neither exists, for another model, and for weights that are not safetensors.
      WeightsError: listing tensors that are missing, unknown or have other shapes.
    """
    folder = find_folder(path)
    file = folder / CONFIG
    family, fields, size = fields_of(file, families(), ViTConfig, _NEEDED, default="", number="image_size")
    refuse_files(folder, read=(PREPROCESSOR, PROCESSOR))
    tensors = read_tensors(folder, str(path), ignore=ignore)
    heads, settings = heads_of(tensors, family), read_object(file)
    classes = len(tensors[f"{heads[0]}.weight"]) if heads and f"{heads[0]}.weight" in tensors else 0
    with errors_name(file):
        names = distinct(class_names(settings, classes)) if classes else ()
    fields |= {"distillation": family.distillation[len(heads)]}
    if heads or not has_pooler(tensors, family):
        fields |= {"pooler_width": None}
    elif fields.get("pooler_width") is None:
        fields |= {"pooler_width": fields["width"]}
    if f"{family.names.projection}.weight" not in tensors:
        fields |= {"projection_width": None}
    described = described_images(file, family, fields, settings, size, names)
    shape = {"patches": (size // described.config.patch) ** 2, "channels": described.processor.channels}
    with errors_name(folder):
        params = from_huggingface(tensors, described.config, family, **shape, classes=classes)
    return with_params(described, params, size, str(path))


_NEEDED = ("num_layers", "num_heads", "width", "feed_forward_width", "patch")


class DescribedImages(NamedTuple):
    """An image encoder by its settings: the shape of the model, and the processor of its images."""

    config: ViTConfig
    processor: ImageProcessor


def described_images(
    file: Path,
    family: ImageEncoderFamily,
    fields: Mapping[str, Any],
    settings: Mapping[str, Any],
    size: int,
    names: tuple[str, ...] = (),
) -> DescribedImages:
    """An image encoder by its settings, and those of the image processor next to them.

    Args:
      file: the config.json.
      family: of the encoder.
      fields: of `ViTConfig`, from the config.
      settings: of the encoder, in the config.
      size: of an image in the config, I.
      names: of the classes.

    Raises: PretrainedError for settings that are unsupported, or do not fit each other.
    """
    channels = settings.get("num_channels", 3)
    if type(channels) is not int or channels not in (1, 3):
        raise PretrainedError(f"{file}: num_channels must be 1 or 3, got {channels!r}")
    preprocessing, given_size, mean, stddev = read_image_settings(file.parent, family.preprocessor, channels)
    with errors_name(file):
        config = ViTConfig(**{**family.defaults, **family.fixed, **fields}, compute=EXACT)
        processor = ImageProcessor(size, channels, mean, stddev, names, preprocessing)
        resized = dataclasses.replace(processor, size=given_size or size)
        for one in (processor, resized):
            config.check(one)
    return DescribedImages(config, resized)


def with_params(described: DescribedImages, params: Params, size: int, name: str) -> PretrainedImageEncoder:
    """The encoder with these parameters, their positions interpolated to the processor's images.

    Args:
      described: the encoder by its settings.
      params: of `ViT`, for images of `size`.
      size: of an image in the config, I.
      name: of the folder, for a warning in the log.
    """
    config, processor = described
    if processor.size != size:
        _logger.warning(
            "%s: images have %d x %d pixels by %s, but %d x %d by %s: the positions are interpolated",
            *(name, processor.size, processor.size, PREPROCESSOR, size, size, CONFIG),
        )
        params = {**params, "positions": resized_positions(params["positions"], config, processor.size)}
    return PretrainedImageEncoder(config, params, processor)


def save_image_encoder(folder: str | Path, pretrained: PretrainedImageEncoder) -> str:
    """Writes a folder that Transformers' `from_pretrained` reads, atomically, with its preprocessor_config.json.

    Args:
      folder: new or empty.
      pretrained: the encoder. With a distillation token it becomes a DeiT; with a normalisation before the first block
        a CLIP's; otherwise a ViT.

    Returns: the name of its class in Transformers.

    Raises:
      FileExistsError: when the folder is not empty.
      WeightsError: for variants that Transformers does not have, and parameters that do not fit the config.
    """
    config, params, processor = pretrained
    model_type = "vit" if config.distillation == "none" else "deit"
    model_type = "clip_vision_model" if config.embedding_norm else model_type
    family = families()[model_type]
    folder = Path(folder).expanduser()
    refuse_contents(folder)
    tensors = to_huggingface(params, config, family)
    heads = [name for name in (HEAD, DISTILLATION_HEAD) if name in params]
    kinds = {len(names): f"{family.title}{name}" for name, names in family.heads.items()}
    architecture = kinds[len(heads)] if heads else family.architectures[config.projection_width is not None]
    settings = {
        "architectures": [architecture],
        "model_type": model_type,
        **image_encoder_settings(family, config, processor),
    }
    if heads:
        settings |= {"problem_type": "single_label_classification"} | label_settings(processor.classes)
    kind = family.preprocessor if config.embedding_norm else ""  # both of the others crop as their files say
    write_folder(folder, tensors, {CONFIG: settings, PREPROCESSOR: image_settings(processor, kind)})
    return architecture


def image_encoder_settings(family: ImageEncoderFamily, config: ViTConfig, processor: ImageProcessor) -> dict[str, Any]:
    """The config.json settings of an image encoder, in this family."""
    ours = {**vars(config), "feed_forward_width": config.hidden_width}
    ours["pooler_width"] = config.pooler_width or config.width
    ours["projection_width"] = config.vector_width
    return {
        **settings_of(family, ours),
        **({"pooler_act": "tanh", "encoder_stride": config.patch} if family.names.pooler else {}),
        "image_size": processor.size,
        "num_channels": processor.channels,
        "initializer_range": 0.02,
    }
