"""Conversion of images of any size to squares of one size."""

import dataclasses
from typing import Any, Self, get_args

from PIL import Image

from jaxnlp.images.reading import Conversion

BICUBIC = int(Image.Resampling.BICUBIC)


@dataclasses.dataclass(frozen=True)
class Preprocessing:
    """Scales an image, and crops its middle. Equal by value.

    Attributes:
      size: of a scaled image: (shorter side,), or (rows, columns); () = not scaled.
      crop: rows and columns of the middle, with black pixels around a smaller image; () = not cropped.
      resample: the number of Pillow's filter.
      conversion: of colours, before the image is scaled.
    """

    size: tuple[int, ...] = ()
    crop: tuple[int, ...] = ()
    resample: int = BICUBIC
    conversion: Conversion = "opaque"

    def __post_init__(self):
        fits = len(self.size) <= 2 and len(self.crop) in (0, 2) and all(x > 0 for x in (*self.size, *self.crop))
        if not fits or self.resample not in list(Image.Resampling) or self.conversion not in get_args(Conversion):
            kinds = ", ".join(get_args(Conversion))
            raise ValueError(
                "images: expected sizes and crops of at least 1 pixel, a filter of Pillow and a conversion, one of "
                f"{kinds}; got {self}"
            )

    @classmethod
    def square(cls, size: int, conversion: Conversion = "opaque") -> Self:
        """The shorter side is scaled to `size` pixels, and the middle square cropped."""
        return cls((size,), (size, size), conversion=conversion)

    def for_size(self, size: int, old: int) -> Self:
        """The same for images of `size` pixels instead of `old`: the same share of an image is cropped."""
        if size == old and (self.size or self.crop):
            return self
        if not self.size:
            return self.square(size, self.conversion)
        scaled = tuple(round(side * size / old) for side in self.size)
        return dataclasses.replace(self, size=scaled, crop=(size, size) if self.crop else ())

    def scaled_size(self, rows: int, columns: int) -> tuple[int, int]:
        """Rows and columns of an image before it is cropped."""
        if len(self.size) != 1:
            return (self.size[0], self.size[1]) if self.size else (rows, columns)
        (shorter,) = self.size
        longer = int(shorter * max(rows, columns) / min(rows, columns))
        return (longer, shorter) if columns <= rows else (shorter, longer)

    def result_size(self, rows: int, columns: int) -> tuple[int, int]:
        """Rows and columns of an image of this size after scaling and cropping."""
        return (self.crop[0], self.crop[1]) if self.crop else self.scaled_size(rows, columns)

    def changes(self, rows: int, columns: int) -> bool:
        """Whether an image of this size is scaled or cropped."""
        return self.scaled_size(rows, columns) != (rows, columns) or self.crop not in ((), (rows, columns))

    def __call__(self, image: Image.Image) -> Image.Image:
        """The scaled and cropped image."""
        rows, columns = self.scaled_size(image.height, image.width)
        image = image.resize((columns, rows), Image.Resampling(self.resample))
        if not self.crop:
            return image
        height, width = self.crop
        top, left = (rows - height) // 2, (columns - width) // 2
        return image.crop((left, top, left + width, top + height))

    def to_json(self) -> dict[str, Any]:
        """Its fields as JSON."""
        return {name: list(x) if isinstance(x, tuple) else x for name, x in dataclasses.asdict(self).items()}

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        """The preprocessing whose `to_json` this is. Raises: ValueError with the wrong fields."""
        try:
            size, crop = (tuple(map(int, fields[name])) for name in ("size", "crop"))
            return cls(size, crop, int(fields["resample"]), fields["conversion"])
        except (KeyError, TypeError) as error:
            raise ValueError(f"images: size, crop, resample or conversion are missing: {fields!r}") from error


UNCHANGED = Preprocessing()
"""Images are not scaled or cropped."""
