"""The processor of image classifiers: from image files to arrays, and the classes.

Axes that the library's glossary does not have: I rows or columns of an image, R channels.
"""

import dataclasses
import math
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from jaxnlp.inference import is_one
from jaxnlp.targets import Classes

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp")
"""Suffixes of image files."""
MODES = {1: "L", 3: "RGB"}
"""Pillow's mode for each number of channels."""


@dataclasses.dataclass(frozen=True)
class ImageProcessor:
    """The size of images, the normalisation of pixels, and the names of the classes. Equal by value.

    Attributes:
      size: rows and columns, I.
      channels: R: 1 for grey images, 3 for colour.
      mean: of each channel of the training images, with pixels in [0, 1].
      stddev: of each channel.
      classes: their names, in the order of their ids.
    """

    size: int
    channels: int
    mean: tuple[float, ...]
    stddev: tuple[float, ...]
    classes: tuple[str, ...]

    counted: ClassVar[str] = "images"
    """The plural noun for examples in metrics."""

    def __post_init__(self):
        if self.size < 1 or self.channels not in MODES:
            raise ValueError(f"images: size must be at least 1 and channels 1 or 3, got {self.size}, {self.channels}")
        if not len(self.mean) == len(self.stddev) == self.channels or not all(0.0 < x < math.inf for x in self.stddev):
            raise ValueError(
                f"images: expected a mean and a positive stddev for each channel, got {self.mean}, {self.stddev}"
            )
        if len(self.classes) < 2 or len(set(self.classes)) != len(self.classes):
            raise ValueError(
                f"images: expected at least two classes with distinct names, got {', '.join(self.classes) or 'none'}"
            )

    @property
    def targets(self) -> Classes:
        """The targets: one of the classes."""
        return Classes(self.classes)

    @property
    def outputs(self) -> int:
        """Number of a classifier's outputs."""
        return len(self.classes)

    columns: ClassVar[tuple[str, ...]] = ("image",)
    """Headings of the `cells` of an example."""

    def cells(self, example: Any) -> tuple[str, ...]:
        """The columns of an example in a table: its name."""
        return (example.name,)

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape of an image: (I, I, R)."""
        return self.size, self.size, self.channels

    def read(self, path: Path, *, resize: bool = False) -> np.ndarray:
        """Reads an image file: [I, I, R] uint8.

        Args:
          path: of a PNG, JPEG or any other file that Pillow reads.
          resize: crop the middle square of an image of another size, and scale it; otherwise such an image is an error.

        Raises: FileNotFoundError; ValueError naming the file, if it is not an image or has another size.
        """
        image = open_image(path, self.channels)
        if image.size != (self.size, self.size):
            if not resize:
                width, height = image.size
                raise ValueError(
                    f"{path} has {width} x {height} pixels, but the model reads {self.size} x {self.size}; "
                    "--resize crops and scales it"
                )
            side = min(image.size)
            left, top = ((length - side) // 2 for length in image.size)
            image = image.crop((left, top, left + side, top + side)).resize((self.size, self.size))
        return np.asarray(image, np.uint8).reshape(self.shape)

    def __call__(self, images: Any, *, resize: bool = False) -> dict[str, np.ndarray]:
        """`images` [B, I, I, R] uint8, of files or arrays; one image is one row. Raises: as `array`."""
        several = [images] if is_one(images) else list(images)
        return {"images": np.stack([self.array(image, resize=resize) for image in several])}

    def array(self, image: Any, *, resize: bool = False) -> np.ndarray:
        """An image [I, I, R] uint8, from a file or from an array, which may be [I, I] for a grey image.

        Raises: as `read`; ValueError for an array of another size or type.
        """
        if not isinstance(image, np.ndarray):
            return self.read(Path(image), resize=resize)
        found = image[..., None] if image.ndim == 2 else image
        if found.dtype != np.uint8 or found.shape != self.shape:
            raise ValueError(
                f"the model reads images {list(self.shape)} of uint8, got {list(image.shape)} of {image.dtype}"
            )
        return found

    def to_json(self) -> dict[str, Any]:
        """Its fields as JSON."""
        return {name: list(x) if isinstance(x, tuple) else x for name, x in dataclasses.asdict(self).items()}

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        """The processor whose `to_json` this is. Raises: ValueError with the wrong fields."""
        try:
            numbers = {name: tuple(map(float, fields[name])) for name in ("mean", "stddev")}
            return cls(int(fields["size"]), int(fields["channels"]), **numbers, classes=tuple(fields["classes"]))
        except (KeyError, TypeError) as error:
            raise ValueError(f"images: size, channels, mean, stddev or classes are missing: {fields!r}") from error


def open_image(path: Path, channels: int) -> Image.Image:
    """Opens an image with this number of channels, rotated as its camera says; transparent pixels become white.

    Raises: FileNotFoundError; ValueError naming a file that is damaged, not an image, or has more than 8 bits a
    channel.
    """
    if not path.is_file():
        raise FileNotFoundError(f"the image {path} does not exist")
    try:
        with Image.open(path) as file:
            if file.mode.startswith(("I", "F")):
                raise ValueError(f"{path} has more than 8 bits a channel (Pillow's mode {file.mode}); convert it to 8")
            image = ImageOps.exif_transpose(file)
            if image.has_transparency_data:
                opaque = image.convert("RGBA")
                image = Image.new("RGBA", opaque.size, "white")
                image.alpha_composite(opaque)
            return image.convert(MODES[channels])
    except Image.DecompressionBombError as error:
        raise ValueError(f"{path} has too many pixels: {error}; make it smaller") from error
    except UnidentifiedImageError as error:
        raise ValueError(f"{path} is not an image that Pillow can read; replace or remove it") from error
    except (OSError, SyntaxError) as error:  # SyntaxError is Pillow's for a broken PNG
        raise ValueError(f"{path} is damaged: {error}; replace or remove it") from error


def pixel_statistics(images: np.ndarray) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel of [N, I, I, R] uint8, in units of 255; the deviation of a constant
    channel is 1."""
    counts = [np.bincount(images[..., channel].ravel(), minlength=256) for channel in range(images.shape[-1])]
    levels = np.arange(256) / 255.0
    means = [float(count @ levels / count.sum()) for count in counts]
    variances = [float(count @ (levels - mean) ** 2 / count.sum()) for count, mean in zip(counts, means, strict=True)]
    return tuple(means), tuple(math.sqrt(variance) or 1.0 for variance in variances)
