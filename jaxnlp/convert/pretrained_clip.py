"""Folders of a CLIP, or of only its text encoder, as Hugging Face Transformers writes and reads them."""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from jaxnlp.convert.clip import (
    ARCHITECTURE,
    HIGHEST,
    IMAGE,
    IMAGE_TYPE,
    MODEL_TYPE,
    RULES,
    TEXT,
    TEXT_ARCHITECTURES,
    TEXT_TYPE,
    TITLE,
    from_huggingface,
    to_huggingface,
)
from jaxnlp.convert.folders import (
    CONFIG,
    PretrainedError,
    errors_name,
    find_folder,
    read_object,
    read_tensors,
    read_vocabulary,
    refuse_files,
    write_folder,
)
from jaxnlp.convert.image_processors import PREPROCESSOR, PROCESSOR, image_settings
from jaxnlp.convert.pretrained_image_encoder import described_images, image_encoder_settings, with_params
from jaxnlp.convert.sentence_transformers import (
    embedding_settings,
    encoder_folder,
    input_settings,
    pooling_of,
    tokenizer_max_length,
)
from jaxnlp.convert.settings import CLIP_MODULE
from jaxnlp.convert.shapes import fields_of, settings_of
from jaxnlp.images.processor import ImageProcessor
from jaxnlp.models.clip import CLIPConfig, TextEncoderConfig
from jaxnlp.models.vit import ViTConfig
from jaxnlp.nn.compute import EXACT
from jaxnlp.saving.atomic_files import refuse_contents
from jaxnlp.text.encoder_vocabulary import EncoderVocabulary
from jaxnlp.typing import Params

TEXT_DEFAULTS = {theirs: TEXT.defaults[ours] for theirs, ours in TEXT.fields.items()} | {"vocab_size": 49_408}
"""Settings that the config of a text encoder may leave out."""
IMAGE_DEFAULTS = {theirs: IMAGE.defaults[ours] for theirs, ours in IMAGE.fields.items()} | {"image_size": 224}
"""Settings that the config of an image encoder may leave out."""
_CLASSIFIER = "CLIPForImageClassification"


class PretrainedCLIP(NamedTuple):
    """A pretrained CLIP, or only its text encoder.

    Attributes:
      config: shape of the model.
      params: parameters of `CLIP`, or of `TextEncoder`; NumPy arrays.
      vocabulary: the tokenizer.
      max_length: maximum length of a text in tokens.
      images: the size and the normalisation of images; None = no image encoder.
    """

    config: CLIPConfig | TextEncoderConfig
    params: Params
    vocabulary: EncoderVocabulary
    max_length: int
    images: ImageProcessor | None


def read_clip(path: str | Path, *, ignore: tuple[str, ...] = ()) -> PretrainedCLIP:
    """Reads a CLIP, or only its text encoder, from a folder of Transformers or sentence-transformers, or from the
    Hugging Face Hub.

    Positions are interpolated to the image processor's size, as by `read_image_encoder`.

    Args:
      path: a folder, or a name such as "openai/clip-vit-large-patch14", which is downloaded once.
      ignore: names, or their prefixes, of tensors to leave out.

    Raises:
      PretrainedError: when neither exists, for another model, and for weights that are not safetensors.
      WeightsError: listing tensors that are missing, unknown or have other shapes.
    """
    whole = find_folder(path)
    folder = encoder_folder(whole)
    file = folder / CONFIG
    settings = read_object(file)
    _refuse_modules(whole)
    both = settings.get("model_type") == MODEL_TYPE
    if both:
        _check(file, settings)
        fields, size = _text_fields(file, _nested(file, settings, "text_config", TEXT_DEFAULTS))
    else:
        fields, size = _text_fields(file, TEXT_DEFAULTS | settings)
    refuse_files(folder, read=(PREPROCESSOR, PROCESSOR))
    vocabulary = read_vocabulary(folder, EncoderVocabulary.of_folder, size)
    tensors = read_tensors(folder, str(path), ignore=ignore)
    if both:
        fields["projection_width"] = settings.get("projection_dim", TEXT_DEFAULTS["projection_dim"])
    elif "text_projection.weight" not in tensors:
        fields["projection_width"] = None
    with errors_name(file):
        text = TextEncoderConfig(
            **{**TEXT.fixed, **fields},
            padded_vocabulary_size=size if vocabulary.size < size else None,
            compute=EXACT,
        )
    given, lowered = input_settings(folder, CLIP_MODULE)
    vocabulary = vocabulary.lowercased() if lowered else vocabulary
    longest = tokenizer_max_length(folder, text.context_length) or text.context_length
    longest = min(longest, given or longest)
    if not both:
        with errors_name(folder):
            return PretrainedCLIP(text, from_huggingface(tensors, text, size), vocabulary, longest, None)
    nested = _nested(file, settings, "vision_config", IMAGE_DEFAULTS)
    _, fields, pixels = fields_of(
        file, {IMAGE_TYPE: IMAGE}, ViTConfig, (), default=IMAGE_TYPE, number="image_size", settings=nested
    )
    described = described_images(file, IMAGE, fields | {"projection_width": text.projection_width}, nested, pixels)
    config = CLIPConfig(text, described.config, compute=EXACT)
    patches = (pixels // config.image.patch) ** 2
    with errors_name(folder):
        params = from_huggingface(tensors, config, size, patches=patches, channels=described.processor.channels)
    image = with_params(described, params["image"], pixels, str(path))
    return PretrainedCLIP(config, {**params, "image": image.params}, vocabulary, longest, image.processor)


def _refuse_modules(folder: Path) -> None:
    """Raises: PretrainedError for modules of sentence-transformers besides the encoders."""
    strange = [] if pooling_of(folder) is None else ["the module Pooling"]
    embeddings = embedding_settings(folder)
    strange += [f"truncate_dim {embeddings.truncate_dim}"] if embeddings.truncate_dim else []
    strange += [f"the prompt {embeddings.prompt!r} before each text"] if embeddings.prompt else []
    if strange:
        raise PretrainedError(f"{folder}: not supported with a {TITLE}: {', '.join(strange)}")


def _check(file: Path, settings: Mapping[str, Any]) -> None:
    """Raises: PretrainedError for a config that is not a CLIP's."""
    strange = RULES.problems(settings)
    if _CLASSIFIER in (settings.get("architectures") or ()):
        strange.insert(0, f"the class {_CLASSIFIER}, which reads the mean of the patches, expected {ARCHITECTURE}")
    width = settings.get("projection_dim", TEXT_DEFAULTS["projection_dim"])
    if type(width) is not int:
        strange.append(f"projection_dim {width!r}, expected a whole number")
    if strange:
        raise PretrainedError(f"{file} is not the config of a supported {TITLE}: {'; '.join(strange)}")


def _nested(file: Path, settings: Mapping[str, Any], name: str, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of an encoder in the config of both; in older files NAME_dict, with defaults, has priority."""
    own, older = settings.get(name), settings.get(f"{name}_dict")
    for part in (own, older):
        if not isinstance(part, dict | None):
            raise PretrainedError(f"{file}: expected an object as {name}, got {part!r}")
    return {**defaults, **(own or {}), **({} if older is None else {**defaults, **older})}


def _text_fields(file: Path, settings: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
    """Fields of `TextEncoderConfig`, and V. Raises: PretrainedError."""
    _, fields, size = fields_of(file, {TEXT_TYPE: TEXT}, TextEncoderConfig, (), default=TEXT_TYPE, settings=settings)
    if fields["end_id"] is None:
        raise PretrainedError(f"{file}: eos_token_id None, expected the id of the token at the end of a text")
    return fields | {"end_id": None if fields["end_id"] == HIGHEST else fields["end_id"]}, size


def save_clip(folder: str | Path, pretrained: PretrainedCLIP) -> str:
    """Writes a folder that Transformers' `from_pretrained` reads, atomically, with its preprocessor_config.json.

    Args:
      folder: new or empty.
      pretrained: the model.

    Returns: the name of its class in Transformers.

    Raises:
      FileExistsError: when the folder is not empty.
      WeightsError: for variants that Transformers does not have, and parameters that do not fit the config.
    """
    config, params, vocabulary, max_length, images = pretrained
    folder = Path(folder).expanduser()
    refuse_contents(folder)
    tensors = to_huggingface(params, config)
    tokenizer = functools.partial(vocabulary.save, max_length=max_length)
    if not isinstance(config, CLIPConfig):
        architecture = TEXT_ARCHITECTURES[config.projection_width is not None]
        size = len(params["decoder"]["tokens"]["embedding"])
        settings = {"architectures": [architecture], **_text_settings(config, vocabulary, size)}
        write_folder(folder, tensors, {CONFIG: settings}, write_tokenizer=tokenizer)
        return architecture
    assert images is not None
    size = len(params["text"]["decoder"]["tokens"]["embedding"])
    settings = {
        "architectures": [ARCHITECTURE],
        "model_type": MODEL_TYPE,
        "projection_dim": config.text.vector_width,
        "text_config": _text_settings(config.text, vocabulary, size),
        "vision_config": {"model_type": IMAGE_TYPE, **image_encoder_settings(IMAGE, config.image, images)},
    }
    objects = {CONFIG: settings, PREPROCESSOR: image_settings(images, IMAGE.preprocessor)}
    write_folder(folder, tensors, objects, write_tokenizer=tokenizer)
    return ARCHITECTURE


def _text_settings(config: TextEncoderConfig, vocabulary: EncoderVocabulary, size: int) -> dict[str, Any]:
    """The settings of a text encoder. Args: size: V."""
    ours = {**vars(config), "feed_forward_width": config.hidden_width, "projection_width": config.vector_width}
    special = vocabulary.special
    return {
        "model_type": TEXT_TYPE,
        **settings_of(TEXT, ours | {"end_id": HIGHEST if config.end_id is None else config.end_id}),
        "bos_token_id": vocabulary.id_of(special.cls),
        "pad_token_id": vocabulary.id_of(special.pad),
        "initializer_range": 0.02,
        "vocab_size": size,
    }
