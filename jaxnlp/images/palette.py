"""The processor of language models of images: each pixel is a token, the nearest colour of a palette.

Further axes: I rows or columns of an image, R channels.
"""

import dataclasses
from typing import Any, ClassVar, Self

import numpy as np

from jaxnlp.images.processor import ImageProcessor

START = 0
"""The token before the first pixel. It is also a colour's id: its position distinguishes it."""
LARGEST = 2**16
"""Maximum number of colours."""
_TOGETHER = 512
"""Number of colours to compare with the palette at once: they fit in a cache."""


@dataclasses.dataclass(frozen=True)
class Palette:
    """Colours and their ids, and how images are read. Equal by value.

    Attributes:
      images: reads images of one size, without normalisation and classes.
      colours: the colour with id v at index v, with R values from 0 to 255 each.
    """

    images: ImageProcessor
    colours: tuple[tuple[int, ...], ...]

    unit: ClassVar[str] = "pixels"
    """The plural noun for tokens in metrics."""

    def __post_init__(self):
        fits = all(len(one) == self.images.channels and all(0 <= x <= 255 for x in one) for one in self.colours)
        if not fits or not 2 <= len(set(self.colours)) == len(self.colours) <= LARGEST:
            raise ValueError(
                f"palette: expected 2 to {LARGEST:,} distinct colours, with values from 0 to 255 for each of "
                f"{self.images.channels} channels"
            )

    @property
    def size(self) -> int:
        """Number of colours, V."""
        return len(self.colours)

    @property
    def pixels(self) -> int:
        """Number of pixels of an image, T."""
        return self.images.size**2

    def __call__(self, images: Any, *, resize: bool = False) -> dict[str, np.ndarray]:
        """`tokens` [B, T] int32, a model's inputs, for any input of `ImageProcessor`. Raises: as it does."""
        return {"tokens": sequences(self.encode(self.images(images, resize=resize)["images"]))["tokens"]}

    def encode(self, images: np.ndarray) -> np.ndarray:
        """The nearest colour of each pixel, row by row: images [N, I, I, R] uint8 -> ids [N, T] uint16."""
        codes = np.zeros(images.shape[:-1], np.int32)
        for channel in range(self.images.channels):
            codes = codes * 256 + images[..., channel]
        found = np.unique(codes)  # images have far fewer colours than pixels
        nearest = np.zeros(256**self.images.channels, np.uint16)
        shifts = 8 * np.arange(self.images.channels)[::-1]
        nearest[found] = _nearest(found[:, None] >> shifts & 255, np.array(self.colours))
        return nearest[codes].reshape(len(images), -1)

    def decode(self, ids: np.ndarray) -> np.ndarray:
        """The images of ids: [N, T] int -> [N, I, I, R] uint8."""
        return np.array(self.colours, np.uint8)[ids].reshape(-1, *self.images.shape)

    def to_json(self) -> dict[str, Any]:
        """Its fields as JSON."""
        return {"images": self.images.to_json(), "colours": [list(colour) for colour in self.colours]}

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        """The palette whose `to_json` this is. Raises: ValueError with the wrong fields."""
        try:
            colours = tuple(tuple(map(int, colour)) for colour in fields["colours"])
            return cls(ImageProcessor.from_json(fields["images"]), colours)
        except (KeyError, TypeError) as error:
            raise ValueError(f"palette: images or colours are missing: {str(fields)[:200]}") from error


def sequences(ids: np.ndarray) -> dict[str, np.ndarray]:
    """Pixels [B, T] as `tokens` and `targets` [B, T] int32: each pixel is predicted from START and those before it."""
    targets = ids.astype(np.int32)
    return {"tokens": np.pad(targets[:, :-1], [(0, 0), (1, 0)], constant_values=START), "targets": targets}


def _nearest(colours: np.ndarray, palette: np.ndarray) -> np.ndarray:
    """The index of the nearest of a palette [V, R] int to each colour [N, R] int, [N]; the first of equally near ones.

    All numbers are integers below 2**24, so float32 is exact.
    """
    colours, palette = colours.astype(np.float32), palette.astype(np.float32)
    squares = np.square(palette).sum(axis=1)
    parts = (colours[start : start + _TOGETHER] for start in range(0, len(colours), _TOGETHER))
    return np.concatenate([(squares - 2.0 * part @ palette.T).argmin(axis=1) for part in parts])
