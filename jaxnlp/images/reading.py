"""Reads files, Pillow's images of any mode, and arrays as Pillow's images with 8 bits a channel.

Axes: I rows or columns of an image, R channels.
"""

import io
import os
from pathlib import Path
from typing import Any, Literal

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from jaxnlp.input_files.web_addresses import absence

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff")
"""Suffixes of image files."""
MOST_SIDE = 65_535
"""Maximum pixels of a side, as in JPEG. Pillow takes seconds for a damaged file with a row of a hundred million."""
MODES = {1: "L", 3: "RGB"}
"""Pillow's mode for each number of channels."""
Conversion = Literal["opaque", "pillow", "pillow_rgb"]
"""Conversion of colours: transparent pixels become white (opaque); Pillow's, which ignores transparency, as
Transformers does with files (pillow); or then also Transformers' do_convert_rgb, which whitens the colour that a file
without alpha marks as transparent (pillow_rgb)."""


class UnreadableImageError(ValueError):
    """A file that cannot be read, is not an image, or is damaged; the message names it."""


def is_image_file(path: Path) -> bool:
    """Whether a folder's entry is an image, by its suffix. Hidden files and folders are not."""
    return path.suffix.lower() in SUFFIXES and not path.name.startswith(".") and not path.is_dir()


def printable(path: Path | str) -> str:
    """The path as a text; bytes that are not UTF-8 become `\\xff`."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def open_image(path: Path, channels: int, conversion: Conversion = "opaque") -> Image.Image:
    """Reads an image file as `with_channels` does; for an animation its first frame.

    Raises: FileNotFoundError; IsADirectoryError; UnreadableImageError naming the file.
    """
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; give image files")
    if not path.is_file():
        raise FileNotFoundError(f"the image {path} {absence(path, 'image')}")
    try:
        # From memory, since Pillow asks a file for as many bytes as a damaged header names, and Python reserves them.
        with Image.open(io.BytesIO(path.read_bytes())) as image:
            if max(image.size) > MOST_SIDE:
                raise ValueError(
                    f"it has {image.width} x {image.height} pixels, at most {MOST_SIDE} a side; make it smaller"
                )
            return with_channels(image, channels, conversion)
    except Image.DecompressionBombError as error:
        raise UnreadableImageError(f"{path} has too many pixels: {error}; make it smaller") from error
    except UnidentifiedImageError as error:
        raise UnreadableImageError(f"{path} is not an image that Pillow can read; replace or remove it") from error
    except ValueError as error:
        raise UnreadableImageError(f"{path} cannot be read: {error}") from error
    except PermissionError as error:
        raise UnreadableImageError(f"{path} cannot be read: permission denied; change its permissions") from error
    except MemoryError:
        raise
    except Exception as error:  # Pillow's decoders raise a dozen unrelated types for damaged files
        cause = str(error) or type(error).__name__
        raise UnreadableImageError(f"{path} is damaged: {cause}; replace or remove it") from error


def with_channels(image: Any, channels: int, conversion: Conversion = "opaque") -> Image.Image:
    """An image with this number of channels and 8 bits a channel.

    It is rotated as its camera says, and 16 bits become 8 as in `eight_bits`; Pillow itself reduces files with 16-bit
    colours to the upper 8 bits.

    Args:
      image: Pillow's, or an array [I, I] or [I, I, R] with R from 1 to 4: grey, grey and alpha, colours, colours and
        alpha, in the dtypes of `eight_bits`.
      channels: 1 for grey, 3 for colours.
      conversion: of the rotated image.

    Raises: ValueError for another array; OSError or another error of Pillow for an undecodable image.
    """
    picture = ImageOps.exif_transpose(image) if isinstance(image, Image.Image) else _from_array(image)
    if picture.mode.startswith(("I", "F")):  # Pillow would cut off all above 255
        picture = _from_deep(picture)
    if conversion != "opaque":
        picture = picture.convert(MODES[channels])
    if conversion != "pillow" and picture.has_transparency_data:
        opaque = picture.convert("RGBA")
        picture = Image.new("RGBA", opaque.size, "white")
        picture.alpha_composite(opaque)
    return picture.convert(MODES[channels])


def eight_bits(pixels: np.ndarray) -> np.ndarray:
    """Pixels as uint8, rounded: uint16 divided by 257, fractions in [0, 1] multiplied by 255; True is 255.

    Raises: ValueError for fractions out of range, and for another dtype.
    """
    kind, width = pixels.dtype.kind, pixels.dtype.itemsize
    if pixels.dtype == np.uint8:
        return pixels
    if kind == "b":
        return pixels * np.uint8(255)
    if kind == "u" and width == 2:
        return ((pixels.astype(np.uint32) + 128) // 257).astype(np.uint8)
    if kind != "f":
        raise ValueError(f"pixels must be uint8, uint16, bool or fractions in [0, 1], got {pixels.dtype}; convert them")
    if not ((pixels >= 0.0) & (pixels <= 1.0)).all():
        raise ValueError(
            f"fractional pixels must be in [0, 1], got {pixels.min()} to {pixels.max()}; scale them, or convert them "
            "to uint8"
        )
    return np.rint(pixels * 255.0).astype(np.uint8)


def _from_array(image: Any) -> Image.Image:
    if isinstance(image, bytes | bytearray | memoryview):
        raise ValueError("an image must not be the bytes of a file; give its path, or PIL.Image.open(FILE)")
    array = np.asarray(image)
    grey = array[..., 0] if array.ndim == 3 and array.shape[2] == 1 else array
    if not array.ndim:
        raise ValueError(f"an image must be a path, one of Pillow's images or an array, got {type(image).__name__}")
    if not grey.size or not (grey.ndim == 2 or (grey.ndim == 3 and grey.shape[2] <= 4)):
        first = array.ndim == 3 and array.shape[0] in (1, 3, 4)
        raise ValueError(
            "an image must be an array [rows, columns] or [rows, columns, channels] with 1 to 4 channels, got "
            f"{type(image).__name__} {list(array.shape)}; "
            + ("move the channels to the last axis" if first else "give several images as a list")
        )
    return Image.fromarray(np.ascontiguousarray(eight_bits(grey)))


def _from_deep(image: Image.Image) -> Image.Image:
    """A grey image of 16 bits, or of fractions, with 8 bits. Pillow's mode I has 16-bit pixels in 32 bits."""
    deep = np.asarray(image)
    if image.mode == "I":
        if not ((deep >= 0) & (deep < 2**16)).all():
            raise ValueError(f"pixels of more than 16 bits: {deep.min()} to {deep.max()}; convert the image to 16 bits")
        deep = deep.astype(np.uint16)
    pixels = eight_bits(deep)
    if "transparency" in image.info:
        pixels = np.where(deep == image.info["transparency"], np.uint8(255), pixels)
    return Image.fromarray(pixels)
