"""preprocessor_config.json: scaling, cropping and normalisation by Transformers' image processors of ViT, DeiT and
CLIP.

A processor of images and texts has the same settings in processor_config.json.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from jaxnlp.convert.folders import PretrainedError, read_object, refuse_settings
from jaxnlp.corpus import errors_as
from jaxnlp.images.preprocessing import Preprocessing
from jaxnlp.images.processor import ImageProcessor
from jaxnlp.text.foreign_settings import ForeignSettings

PREPROCESSOR, PROCESSOR = "preprocessor_config.json", "processor_config.json"
MOST_PIXELS = 16_384
"""Maximum number of pixels in a row or a column of an image."""
MOST = 1e30
"""Upper bound on numbers in settings."""
_COMMON: Mapping[str, Any] = {
    **{"do_resize": True, "do_rescale": True, "do_normalize": True, "default_to_square": True},
    **{"do_convert_rgb": False},
    **{"rescale_factor": 1.0 / 255.0, "image_mean": [0.5], "image_std": [0.5]},
}
DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "ViTImageProcessor": {**_COMMON, "size": 224, "resample": 2, "do_center_crop": False},
    "DeiTImageProcessor": {**_COMMON, "size": 256, "resample": 3, "do_center_crop": True, "crop_size": 224},
    "CLIPImageProcessor": {
        **{**_COMMON, "size": 224, "resample": 3, "do_center_crop": True, "crop_size": 224},
        **{"default_to_square": False, "do_convert_rgb": True},
        "image_mean": [0.48145466, 0.4578275, 0.40821073],
        "image_std": [0.26862954, 0.26130258, 0.27577711],
    },
}
"""Settings that a file may leave out, or have as null, by the class of its image processor."""
_SUFFIXES = ("ImageProcessor", "ImageProcessorFast", "ImageProcessorPil", "FeatureExtractor")
_TYPES = {f"{base}{suffix}": f"{base}ImageProcessor" for base in ("ViT", "DeiT", "CLIP") for suffix in _SUFFIXES}

SETTINGS = ForeignSettings(
    applied=(
        *("image_processor_type", "feature_extractor_type", "do_resize", "size", "default_to_square", "resample"),
        *("do_center_crop", "crop_size", "do_rescale", "rescale_factor", "do_normalize", "image_mean", "image_std"),
        "do_convert_rgb",
    ),
    supported={"do_pad": (False, None), "use_square_size": (False, None)},
    ignored={
        "the layout of arrays": ("data_format", "input_data_format"),
        "the same numbers, computed or returned in another way": ("device", "return_tensors", "disable_grouping"),
        "only do_pad reads it": ("pad_size",),
        "texts": ("image_seq_length",),
        "where the files came from": ("processor_class", "_processor_class", "_valid_processor_keys"),
    },
)
"""Rules for preprocessor_config.json."""
_NESTED = "image_processor"
PROCESSOR_SETTINGS = ForeignSettings(
    applied=(_NESTED,), supported={}, ignored={"where the files came from": ("processor_class",)}
)
"""Rules for processor_config.json."""


class ImageSettings(NamedTuple):
    """The content of a preprocessor_config.json.

    Attributes:
      preprocessing: how images are scaled and cropped.
      size: rows and columns of a preprocessed image, I; None = images stay unchanged.
      mean, stddev: of each channel, in units of 255.
    """

    preprocessing: Preprocessing
    size: int | None
    mean: tuple[float, ...]
    stddev: tuple[float, ...]


def read_image_settings(folder: Path, default: str, channels: int) -> ImageSettings:
    """Reads the file of a folder.

    Args:
      folder: of the weights.
      default: the class of the image processor if the file names none.
      channels: of the model's images, R.

    Raises: PretrainedError when the file is missing, listing unsupported settings, and for images that would not be
      squares of one size.
    """
    file, settings = _read(folder)
    given = {name: value for name, value in settings.items() if value is not None}
    kind = given.get("image_processor_type", given.get("feature_extractor_type", default))
    strange = SETTINGS.problems(given)
    if kind not in tuple(_TYPES):
        strange.append(f"image_processor_type {kind!r}, expected {' or '.join(_TYPES)}")
        raise PretrainedError(f"{file}: not supported: {'; '.join(strange)}")
    held = {**DEFAULTS[_TYPES[kind]], **given}
    strange += [
        f"{name} {held[name]!r}, expected true or false"
        for name in held
        if name.startswith(("do_", "default_to_square"))
        if type(held[name]) is not bool
    ]
    if strange:
        raise PretrainedError(f"{file}: not supported: {'; '.join(strange)}")
    with errors_as(PretrainedError, f"{file}: not supported"):
        return _settings(held, channels)


def _read(folder: Path) -> tuple[Path, dict[str, Any]]:
    """The file that Transformers reads, and its settings of an image processor. Raises: PretrainedError."""
    file = folder / PROCESSOR
    if not file.is_file():
        return folder / PREPROCESSOR, read_object(folder / PREPROCESSOR)
    whole = read_object(file)
    refuse_settings(file, whole, PROCESSOR_SETTINGS)
    if _NESTED not in whole:
        return folder / PREPROCESSOR, read_object(folder / PREPROCESSOR)
    if not isinstance(whole[_NESTED], dict):
        raise PretrainedError(f"{file}: expected an object as {_NESTED}, got {whole[_NESTED]!r}")
    return file, whole[_NESTED]


def _settings(held: Mapping[str, Any], channels: int) -> ImageSettings:
    size = _size("size", held["size"], square=held["default_to_square"]) if held["do_resize"] else ()
    crop = _size("crop_size", held.get("crop_size")) if held["do_center_crop"] else ()
    if type(held["resample"]) is not int:
        raise ValueError(f"resample {held['resample']!r}, expected the number of a filter of Pillow")
    if held["do_convert_rgb"] and channels == 1:
        raise ValueError("do_convert_rgb True, expected False for grey images (num_channels 1)")
    preprocessing = Preprocessing(size, crop, held["resample"], "pillow_rgb" if held["do_convert_rgb"] else "pillow")
    if len(crop or size) == 1 or len({*(crop or size)}) > 1:
        raise ValueError(
            f"size {held['size']!r} and crop_size {held.get('crop_size')!r} with do_center_crop "
            f"{held['do_center_crop']}, expected squares of one size"
        )
    scale = 255.0 * (_number("rescale_factor", held["rescale_factor"]) if held["do_rescale"] else 1.0)
    mean, stddev = (0.0,) * channels, (1.0,) * channels
    if held["do_normalize"]:
        mean, stddev = (_of_channels(name, held[name], channels) for name in ("image_mean", "image_std"))
    scaled = (tuple(x / scale for x in values) for values in (mean, stddev))
    return ImageSettings(preprocessing, (crop or size or (None,))[0], *scaled)


def _size(name: str, value: Any, *, square: bool = True) -> tuple[int, ...]:
    """Rows and columns, or the shorter side. Raises: ValueError for another value."""
    sides: tuple[Any, ...] = ()
    if type(value) is int:
        sides = (value, value) if square else (value,)
    elif isinstance(value, list):
        sides = tuple(value)
    elif isinstance(value, dict) and value.keys() == {"height", "width"}:
        sides = (value["height"], value["width"])
    elif isinstance(value, dict) and value.keys() == {"shortest_edge"} and name == "size":
        sides = (value["shortest_edge"],)
    if not sides or not all(type(side) is int and 0 < side <= MOST_PIXELS for side in sides):
        edge = ", or shortest_edge" * (name == "size")
        raise ValueError(f"{name} {value!r:.200}, expected height and width{edge}, at most {MOST_PIXELS:,} pixels")
    return sides


def _number(name: str, value: Any) -> float:
    if type(value) not in (int, float) or not 0.0 < value < MOST:
        raise ValueError(f"{name} {value!r:.200}, expected a positive number")
    return float(value)


def _of_channels(name: str, value: Any, channels: int) -> tuple[float, ...]:
    values = value if isinstance(value, list) else [value]
    values = values * channels if len(values) == 1 else values
    if len(values) != channels or not all(type(x) in (int, float) and -MOST < x < MOST for x in values):
        raise ValueError(f"{name} {value!r:.200}, expected a number for each of {channels} channels")
    return tuple(map(float, values))


def image_settings(processor: ImageProcessor, kind: str = "") -> dict[str, Any]:
    """The preprocessor_config.json that does to images what a processor does.

    The class is `kind`, or without it one that crops in every version of Transformers. Files with alpha differ if the
    processor makes transparent pixels white: Transformers ignores alpha in files.
    """
    size, crop = processor.preprocessing.size, processor.preprocessing.crop
    cropped = {"crop_size": dict(zip(("height", "width"), crop, strict=True))} if crop else {}
    scaled = dict(zip(("height", "width") if len(size) == 2 else ("shortest_edge",), size, strict=False))
    return {
        **cropped,
        "do_center_crop": bool(crop),
        **({"do_convert_rgb": processor.preprocessing.conversion != "pillow"} if processor.channels == 3 else {}),
        "do_normalize": True,
        "do_rescale": True,
        "do_resize": bool(size),
        "image_mean": list(processor.mean),
        "image_processor_type": kind or ("DeiTImageProcessor" if crop else "ViTImageProcessor"),
        "image_std": list(processor.stddev),
        "resample": processor.preprocessing.resample,
        "rescale_factor": 1.0 / 255.0,
        "size": scaled or {"height": processor.size, "width": processor.size},
    }
