import io
import struct
import tracemalloc
import zlib
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from jaxnlp.images.reading import (
    UnreadableImageError,
    eight_bits,
    is_image_file,
    open_image,
    with_channels,
)

LEVELS = np.arange(0, 2**16, 4369, dtype=np.uint16).reshape(4, 4)
"""Grey levels of 16 bits: the multiples of 17 times 257."""
GREY = np.arange(0, 256, 17, dtype=np.uint8).reshape(4, 4)
"""The same with 8 bits."""
COLOURS = np.random.default_rng(0).integers(0, 256, (4, 4, 3), dtype=np.uint8)


def saved(image, kind="PNG", **options):
    """The image after it was written and read."""
    file = io.BytesIO()
    image.save(file, kind, **options)
    return Image.open(file)


def palette(transparency=None):
    image = Image.new("P", (2, 1))
    image.putpalette([10, 20, 30, 200, 100, 50])
    image.putdata([0, 1])
    return saved(image, **({} if transparency is None else {"transparency": transparency}))


def grey_and_alpha(alpha):
    return Image.merge("LA", (Image.fromarray(GREY), Image.new("L", (4, 4), alpha)))


@pytest.mark.parametrize(
    ("image", "right"),
    [
        (saved(Image.fromarray(LEVELS)), GREY),
        (Image.fromarray(LEVELS.astype(">u2")), GREY),
        (saved(Image.fromarray(LEVELS), "TIFF"), GREY),
        (Image.fromarray(LEVELS.astype(np.int32)), GREY),
        (Image.fromarray(GREY / np.float32(255)), GREY),
        (saved(Image.fromarray(LEVELS), transparency=0), np.where(GREY == 0, 255, GREY)),
        (Image.fromarray(np.eye(3, dtype=bool)), 255 * np.eye(3)),
        (saved(Image.fromarray(np.eye(3, dtype=bool))), 255 * np.eye(3)),
        (grey_and_alpha(255), GREY),
        (grey_and_alpha(0), np.full((4, 4), 255)),
        (grey_and_alpha(51), np.rint(0.2 * GREY + 0.8 * 255)),
        (Image.fromarray(GREY).convert("RGB"), GREY),
    ],
    ids=[
        *("16-bit PNG", "16-bit big-endian", "16-bit TIFF", "mode I", "mode F", "transparent level", "bits"),
        *("1-bit PNG", "opaque", "transparent", "half transparent", "grey colours"),
    ],
)
def test_a_grey_image_of_any_mode_has_eight_bits(image, right):
    np.testing.assert_array_equal(np.asarray(with_channels(image, 1)), right)
    np.testing.assert_array_equal(np.asarray(with_channels(image, 3)), np.stack([right] * 3, axis=-1))


def png_of_16_bits(pixels):
    """A PNG file with colours of 16 bits [1, N, 3]."""

    def part(name, content):
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    header = struct.pack(">IIBBBBB", pixels.shape[1], 1, 16, 2, 0, 0, 0)
    lines = zlib.compress(b"\0" + pixels.astype(">u2").tobytes())
    parts = part(b"IHDR", header) + part(b"IDAT", lines) + part(b"IEND", b"")
    return Image.open(io.BytesIO(b"\x89PNG\r\n\x1a\n" + parts))


@pytest.mark.parametrize(
    ("image", "right"),
    [
        (palette(), [[[10, 20, 30], [200, 100, 50]]]),
        (palette(transparency=1), [[[10, 20, 30], [255, 255, 255]]]),
        (palette(transparency=b"\xff\x33"), [[[10, 20, 30], [244, 224, 214]]]),
        (Image.new("RGBA", (1, 1), (10, 20, 30, 51)), [[[206, 208, 210]]]),
        (saved(Image.new("RGB", (1, 1), (1, 2, 3)), transparency=(1, 2, 3)), [[[255, 255, 255]]]),
        (Image.new("CMYK", (1, 1), (0, 255, 255, 0)), [[[255, 0, 0]]]),
        (png_of_16_bits(257 * COLOURS[:1].astype(int)), COLOURS[:1]),
    ],
    ids=["palette", "transparent colour", "half transparent colour", "alpha", "transparent RGB", "CMYK", "16-bit PNG"],
)
def test_a_colour_image_of_any_mode_is_in_colours_on_white(image, right):
    np.testing.assert_array_equal(np.asarray(with_channels(image, 3)), right)


def test_a_cmyk_photo_has_its_colours():
    photo = saved(Image.new("CMYK", (8, 8), (0, 255, 255, 0)), "JPEG", quality=95)
    np.testing.assert_allclose(np.asarray(with_channels(photo, 3))[4, 4], [255, 0, 0], atol=3)


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG"])
def test_an_animation_is_its_first_frame(kind):
    first, *others = (Image.new("RGB", (4, 4), colour) for colour in ("red", "lime", "blue"))
    image = saved(first, kind, save_all=True, append_images=others, **({"lossless": True} if kind == "WEBP" else {}))
    assert image.n_frames == 3
    np.testing.assert_array_equal(np.asarray(with_channels(image, 3)), np.broadcast_to([255, 0, 0], (4, 4, 3)))


def test_a_photo_is_rotated_as_its_camera_says_from_a_file_and_from_pillow(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was on its side
    Image.fromarray(np.rot90(COLOURS)).save(tmp_path / "turned.png", exif=exif)
    for found in (open_image(tmp_path / "turned.png", 3), with_channels(Image.open(tmp_path / "turned.png"), 3)):
        np.testing.assert_array_equal(np.asarray(found), COLOURS)


@pytest.mark.parametrize(
    "array",
    [
        *(GREY, GREY[..., None], LEVELS, LEVELS.astype(">u2"), GREY / 255, (GREY / 255).astype(np.float16)),
        *(jnp.asarray(GREY), np.stack([GREY] * 3, axis=-1), np.stack([GREY] * 3 + [255 + 0 * GREY], axis=-1)),
        np.stack([GREY, 255 + 0 * GREY], axis=-1),
        np.asfortranarray(np.stack([LEVELS] * 3, axis=-1)),
    ],
    ids=lambda array: f"{type(array).__name__}-{array.dtype}-{array.shape}",
)
def test_arrays_of_any_depth_and_channels_are_images(array):
    np.testing.assert_array_equal(np.asarray(with_channels(array, 1)), GREY)
    np.testing.assert_array_equal(np.asarray(with_channels(array, 3)), np.stack([GREY] * 3, axis=-1))


@pytest.mark.thorough  # an array of JAX is an array of another library, too
def test_tensors_of_pytorch_are_images():
    import torch

    np.testing.assert_array_equal(np.asarray(with_channels(torch.tensor(COLOURS), 3)), COLOURS)


def test_levels_are_rounded_and_not_clipped():
    deep = np.array([0, 128, 129, 255, 256, 257, 32896, 65535], np.uint16)
    assert eight_bits(deep).tolist() == np.rint(deep / 257).tolist() == [0, 0, 1, 1, 1, 1, 128, 255]
    assert eight_bits(np.array([0.0, 0.1, 0.5, 1.0])).tolist() == [0, 26, 128, 255]
    assert eight_bits(np.array([False, True])).tolist() == [0, 255]


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (np.zeros((3, 8, 8), np.uint8), r"got ndarray \[3, 8, 8\]; move the channels to the last axis"),
        (np.zeros((5, 8, 8), np.uint8), r"got ndarray \[5, 8, 8\]; give several images as a list"),
        (b"\x89PNG", r"must not be the bytes of a file; give its path, or PIL\.Image\.open\(FILE\)"),
        (np.zeros((0, 8), np.uint8), r"must be an array \[rows, columns\] .* got ndarray \[0, 8\]"),
        (None, r"must be a path, .* or an array, got NoneType$"),
        (np.zeros((8, 8), np.int64), "pixels must be uint8, uint16, bool or fractions in .*, got int64; convert them"),
        (np.full((8, 8), 255.0), r"fractional pixels must be in \[0, 1\], got 255.0 to 255.0; scale them"),
        (np.full((8, 8), np.nan), r"fractional pixels must be in \[0, 1\], got nan"),
        (Image.new("I", (2, 2), 70_000), "pixels of more than 16 bits: 70000 to 70000; convert the image"),
    ],
)
def test_an_array_that_is_no_image_is_refused(image, message):
    with pytest.raises(ValueError, match=message):
        with_channels(image, 3)


def test_files_that_cannot_be_read_are_named(tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match="does not exist"):
        open_image(tmp_path / "none.png", 3)
    with pytest.raises(IsADirectoryError, match="is a folder; give image files"):
        open_image(tmp_path, 3)
    Image.fromarray(COLOURS.repeat(50, axis=0).repeat(50, axis=1)).save(tmp_path / "whole.jpg")
    Image.fromarray(COLOURS).save(tmp_path / "whole.png")
    photo, image = (tmp_path / "whole.jpg").read_bytes(), (tmp_path / "whole.png").read_bytes()
    for name, content, message in (
        ("text.png", b"text", "is not an image that Pillow can read; replace or remove it"),
        ("empty.png", b"", "is not an image that Pillow can read"),
        ("half.jpg", photo[:-500], "is damaged: .*; replace or remove it"),
        ("half.png", image[: len(image) // 2], "is damaged: .*; replace or remove it"),
        ("changed.png", image.replace(b"IDAT", b"IDAX"), "is not an image that Pillow can read"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UnreadableImageError, match=rf"{name} {message}"):
            open_image(tmp_path / name, 3)
    Image.new("F", (4, 4), 255.0).save(tmp_path / "levels.tif")
    with pytest.raises(UnreadableImageError, match=r"levels.tif cannot be read: fractional pixels must be in \[0, 1\]"):
        open_image(tmp_path / "levels.tif", 3)
    row = struct.pack("<2sI4sIIiiHHIIiiII", b"BM", 60, b"", 54, 40, 9_000_000, 9, 1, 8, 1, 0, 0, 0, 0, 0)
    (tmp_path / "row.bmp").write_bytes(row + bytes(1024))  # compressed pixels, which Pillow fills up
    with pytest.raises(UnreadableImageError, match=r"row.bmp cannot be read: it has 9000000 x 9 pixels, at most 65535"):
        open_image(tmp_path / "row.bmp", 3)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(UnreadableImageError, match=r"whole.jpg has too many pixels: .*; make it smaller"):
        open_image(tmp_path / "whole.jpg", 3)

    def forbidden(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", forbidden)
    with pytest.raises(UnreadableImageError, match=r"whole.jpg cannot be read: permission denied; change its perm"):
        open_image(tmp_path / "whole.jpg", 3)


def test_a_file_that_claims_to_have_gigabytes_takes_no_more_memory_than_it_has(tmp_path):
    file = io.BytesIO()
    Image.fromarray(COLOURS).save(file, "PNG")
    content = bytearray(file.getvalue())
    length = content.index(b"IDAT") - 4
    content[length : length + 4] = struct.pack(">I", 2**31 - 1)
    (tmp_path / "claims.png").write_bytes(content)
    tracemalloc.start()
    try:
        np.testing.assert_array_equal(np.asarray(open_image(tmp_path / "claims.png", 3)), COLOURS)
        assert tracemalloc.get_traced_memory()[1] < 2**24
    finally:
        tracemalloc.stop()


def test_hidden_files_and_folders_are_no_image_files(tmp_path):
    (tmp_path / "folder.png").mkdir()
    for name in ("a.PNG", "b.tiff", "._a.png", ".hidden.jpg", "notes.txt"):
        (tmp_path / name).touch()
    assert sorted(path.name for path in filter(is_image_file, tmp_path.iterdir())) == ["a.PNG", "b.tiff"]
