"""The processor of image classifiers: from image files to arrays, and the classes.

Further axes: I rows or columns of an image, R channels.
"""

import dataclasses
import math
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from jaxnlp.images.preprocessing import UNCHANGED, Preprocessing
from jaxnlp.images.reading import MODES, open_image, with_channels
from jaxnlp.inference.arguments import is_one
from jaxnlp.targets import OneClass


@dataclasses.dataclass(frozen=True)
class ImageProcessor:
    """The size of images, the normalisation of pixels, and the names of the classes. Equal by value.

    Attributes:
      size: rows and columns, I.
      channels: R: 1 for grey images, 3 for colour.
      mean, stddev: of each channel of the training images, with pixels in [0, 1].
      classes: their names, in the order of their ids; () = a pretrained model without a head.
      preprocessing: scaling and cropping, as in training; results of another size are errors.
    """

    size: int
    channels: int
    mean: tuple[float, ...]
    stddev: tuple[float, ...]
    classes: tuple[str, ...]
    preprocessing: Preprocessing = UNCHANGED

    counted: ClassVar[str] = "images"
    """The plural noun for examples in metrics."""

    def __post_init__(self):
        if self.size < 1 or self.channels not in MODES:
            raise ValueError(f"images: size must be at least 1 and channels 1 or 3, got {self.size}, {self.channels}")
        if not len(self.mean) == len(self.stddev) == self.channels or not all(0.0 < x < math.inf for x in self.stddev):
            raise ValueError(
                f"images: expected a mean and a positive stddev for each channel, got {self.mean}, {self.stddev}"
            )
        if len(self.classes) == 1 or len(set(self.classes)) != len(self.classes):
            raise ValueError(
                f"images: expected at least two classes with distinct names, got {', '.join(self.classes)}"
            )

    @property
    def targets(self) -> OneClass:
        """The targets: one of the classes. Raises: ValueError without classes."""
        if not self.classes:
            raise ValueError("these weights have no head that predicts classes; train one with --init-from")
        return OneClass(self.classes)

    @property
    def by_part(self) -> dict[str, Self]:
        """The processor by part: itself, with an empty name."""
        return {"": self}

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
          resize: scale an image of another size, and crop its middle square.

        Raises: FileNotFoundError; ValueError naming the file, if it is not an image or has another size.
        """
        return self._fitted(open_image(path, self.channels, self.preprocessing.conversion), str(path), resize)

    def __call__(self, images: Any, *, resize: bool = False) -> dict[str, np.ndarray]:
        """`images` [B, I, I, R] uint8, from any input of `array`; one image is one row. Raises: as `array`."""
        several = [images] if is_one(images) else list(images)
        return {"images": np.stack([self.array(image, resize=resize) for image in several])}

    def array(self, image: Any, *, resize: bool = False) -> np.ndarray:
        """An image [I, I, R] uint8, from a file, or from any input of `with_channels`.

        Raises: as `read`; ValueError for another array.
        """
        if isinstance(image, str) and not image:
            raise ValueError("expected the name of an image file, got an empty one")
        if isinstance(image, str | Path):
            return self.read(Path(image).expanduser(), resize=resize)
        return self._fitted(with_channels(image, self.channels, self.preprocessing.conversion), "the image", resize)

    def _fitted(self, image: Any, name: str, resize: bool) -> np.ndarray:
        fitted = self.preprocessing(image)
        if fitted.size != (self.size, self.size) and resize:
            fitted = Preprocessing.square(self.size)(image)
        if fitted.size != (self.size, self.size):
            width, height = image.size
            raise ValueError(
                f"{name} has {width} x {height} pixels, but the model reads {self.size} x {self.size}; --resize, in "
                "Python resize=True, crops and scales it, as a model that was trained with --data.resize "
                f"{self.size} does without it"
            )
        return np.asarray(fitted, np.uint8).reshape(self.shape)

    def to_json(self) -> dict[str, Any]:
        """Its fields as JSON."""
        fields = {name: getattr(self, name) for name in ("size", "channels", "mean", "stddev", "classes")}
        plain = {name: list(x) if isinstance(x, tuple) else x for name, x in fields.items()}
        return plain | {"preprocessing": self.preprocessing.to_json()}

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        """The processor whose `to_json` this is. Raises: ValueError with the wrong fields."""
        try:
            mean, stddev = (tuple(map(float, fields[name])) for name in ("mean", "stddev"))
            size, channels, classes = int(fields["size"]), int(fields["channels"]), tuple(fields["classes"])
            preprocessing = Preprocessing.from_json(fields["preprocessing"])
            return cls(size, channels, mean, stddev, classes, preprocessing)
        except (KeyError, TypeError) as error:
            raise ValueError(
                f"images: size, channels, mean, stddev, classes or preprocessing are missing: {fields!r}"
            ) from error


def pixel_statistics(images: np.ndarray) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel of [N, I, I, R] uint8, in units of 255; 1 for a constant channel."""
    counts = [np.bincount(images[..., channel].ravel(), minlength=256) for channel in range(images.shape[-1])]
    levels = np.arange(256) / 255.0
    means = [float(count @ levels / count.sum()) for count in counts]
    variances = [float(count @ (levels - mean) ** 2 / count.sum()) for count, mean in zip(counts, means, strict=True)]
    return tuple(means), tuple(math.sqrt(variance) or 1.0 for variance in variances)
