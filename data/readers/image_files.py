"""The user's images: a folder of image files for each class, or NumPy arrays.

Axes: I rows or columns of an image, R channels.
"""

import logging
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np

from data import DataError, errors_as
from data.readers.object_arrays import read_arrays
from jaxnlp.images.preprocessing import UNCHANGED, Preprocessing
from jaxnlp.images.reading import (
    SUFFIXES,
    UnreadableImageError,
    is_image_file,
    open_image,
    printable,
    with_channels,
)
from jaxnlp.input_files.web_addresses import absence

_logger = logging.getLogger(__name__)


class LabelledImages(NamedTuple):
    """N images [N, I, I, R] uint8, their classes [N] int, the names of the classes, and the images' own names."""

    images: np.ndarray
    labels: np.ndarray
    classes: tuple[str, ...]
    names: tuple[str, ...]

    def part(self, rows: np.ndarray) -> "LabelledImages":
        """The images of these rows [N] bool, with their names."""
        chosen = tuple(self.names[row] for row in np.flatnonzero(rows))
        return LabelledImages(self.images[rows], self.labels[rows], self.classes, chosen)

    def in_order(self, classes: tuple[str, ...]) -> "LabelledImages":
        """The same with the classes in this order, if they are the same classes."""
        if sorted(classes) != sorted(self.classes):
            return self
        ids = np.array([classes.index(name) for name in self.classes])
        return self._replace(labels=ids[self.labels], classes=classes)


def numbered(count: int) -> tuple[str, ...]:
    """Names of images without names: their indices."""
    return tuple(f"image {index}" for index in range(count))


def read_images(
    path: Path,
    classes: tuple[str, ...] | None = None,
    *,
    channels: int | None = None,
    preprocessing: Preprocessing = UNCHANGED,
    skip_broken: bool = False,
) -> LabelledImages:
    """Reads a folder with a folder of image files for each class, or a .npz file with the arrays images and labels.

    Args:
      path: of the folder or the file.
      classes: the allowed classes; None = those in the data.
      channels: of the images; None = 3 for files, and those of arrays.
      preprocessing: scales and crops each image, to squares of one size.
      skip_broken: skip unreadable files, with a warning that counts them; otherwise they are errors.

    Raises: FileNotFoundError; DataError naming the file, for images of several sizes and for unknown classes.
    """
    if path.is_dir():
        return _read_folder(path, classes, channels or 3, preprocessing, skip_broken)
    if path.suffix == ".npz":
        return _read_npz(path, classes, channels, preprocessing)
    if not path.exists():
        raise FileNotFoundError(
            f"{path} {absence(path, 'images')}; expected a folder with a folder for each class, or a .npz file"
        )
    raise DataError(f"{path}: expected a folder with a folder for each class, or a .npz file with images and labels")


def _read_folder(
    path: Path, classes: tuple[str, ...] | None, channels: int, preprocessing: Preprocessing, skip_broken: bool
) -> LabelledImages:
    folders = sorted(folder for folder in path.iterdir() if folder.is_dir() and not folder.name.startswith("."))
    names = tuple(printable(folder.name) for folder in folders) if classes is None else classes
    if len(names) < 2:
        raise DataError(f"{path}: expected at least two folders, one for each class, got {len(names)}")
    files = [
        (file, printable(folder.name)) for folder in folders for file in sorted(filter(is_image_file, folder.iterdir()))
    ]
    read = {*folders, *(file for file, _ in files)}
    others = sorted(file for parent in (path, *folders) for file in parent.iterdir() if file not in read)
    left_out = [file for file in others if not file.name.startswith(".")]
    if left_out:
        _logger.warning(
            "%s: files and folders that are ignored, because they are not images (%s) in the folder of a class: "
            "%d, such as %s",
            *(path, ", ".join(SUFFIXES), len(left_out), left_out[0].relative_to(path)),
        )
    unknown = sorted({name for _, name in files} - set(names))
    if unknown:
        raise DataError(f"{path / unknown[0]}: unknown class; the model has {', '.join(names[:10])}")
    required = names if classes is None else ()
    _require_images(path, [name for _, name in files], required, "")
    kept, images = _read_files([file for file, _ in files], channels, preprocessing, skip_broken)
    files = [files[row] for row in kept]
    _require_images(path, [name for _, name in files], required, " that can be read")
    labels = np.array([names.index(name) for _, name in files])
    return LabelledImages(images, labels, names, tuple(f"{name}/{printable(file.name)}" for file, name in files))


def _require_images(path: Path, classes: list[str], names: tuple[str, ...], what: str) -> None:
    """Raises: DataError naming a class without images, or the folder without any."""
    counts = Counter(classes)
    empty = [name for name in names if not counts[name]]
    if empty or not classes:
        folder = path / (empty[0] if empty else "")
        inside = folder.is_dir() and any(entry.is_dir() for entry in folder.iterdir())
        remedy = f"; if its folders are the classes, give --data.path {folder}" if empty and inside else ""
        raise DataError(
            f"{folder}: no image files{what} ({', '.join(SUFFIXES)}); add some, or remove the folder{remedy}"
        )


def _read_files(
    files: list[Path], channels: int, preprocessing: Preprocessing, skip_broken: bool
) -> tuple[list[int], np.ndarray]:
    """The rows of the readable files, and their images [N, I, I, R]."""
    kept, broken, images = list[int](), list[Exception](), np.empty((0, 0, 0, channels), np.uint8)
    for row, file in enumerate(files):
        try:
            image = preprocessing(open_image(file, channels, preprocessing.conversion))
        except (UnreadableImageError, FileNotFoundError) as error:
            broken.append(error)
            continue
        if not kept:
            images = np.empty((len(files), image.height, image.width, channels), np.uint8)
        if image.width != image.height or image.width != images.shape[2]:
            other = f", and {files[kept[0]]} has {images.shape[2]} x {images.shape[1]}" if kept else ""
            raise DataError(
                f"{file}: {image.width} x {image.height} pixels; all images must be square and of one size{other}; "
                "crop and scale them first, or train with --data.resize N"
            )
        images[len(kept)] = np.asarray(image).reshape(images.shape[1:])
        kept.append(row)
    if broken and not skip_broken:
        count = f"; {len(broken):,} of {len(files):,} files cannot be read" if len(broken) > 1 else ""
        raise DataError(f"{broken[0]}, or skip such files with --data.skip-broken{count}") from broken[0]
    if broken:
        _logger.warning(
            "files that are skipped, because they cannot be read: %d of %d; the first: %s",
            *(len(broken), len(files), broken[0]),
        )
    return kept, images[: len(kept)]


def _read_npz(
    path: Path, classes: tuple[str, ...] | None, channels: int | None, preprocessing: Preprocessing
) -> LabelledImages:
    held = read_arrays(path, ("images", "labels"))
    images, labels = fitted_pixels(path, held["images"], channels, preprocessing), held["labels"]
    if labels.shape != (len(images),) or labels.dtype.kind not in "iu" or labels.min() < 0:
        raise DataError(
            f"{path}: labels must be whole numbers from 0, one for each of {len(images)} images, got {labels.dtype} "
            f"{labels.shape}{f', the lowest {labels.min()}' if labels.dtype.kind in 'iu' and labels.size else ''}"
        )
    present, places = np.unique(labels, return_inverse=True)
    if classes is None:
        missing = next((number for number, label in enumerate(present) if number != label), None)
        if missing is not None or len(present) < 2:
            raise DataError(
                f"{path}: no image has the label {1 if missing is None else missing}; each class needs images"
            )
        classes = tuple(map(str, present.tolist()))
    return LabelledImages(images, _ids(path, present.tolist(), classes)[places], classes, numbered(len(images)))


def _ids(path: Path, labels: list[int], classes: tuple[str, ...]) -> np.ndarray:
    """The ids of labels [L]: of the classes that have them as names, or, if no names are numbers, by place.

    Raises: DataError for a label without a class.
    """
    numbers = [int(name) for name in classes if name.isdecimal()]
    if len({*numbers}) == len(classes):
        ids = {number: index for index, number in enumerate(numbers)}
    else:
        ids = {label: label for label in range(len(classes))}
        shown = ", ".join(f"{label} = {name}" for label, name in enumerate(classes[:3]))
        _logger.warning("%s: the labels are read as places in the list of classes: %s", path, shown)
    unknown = [label for label in labels if label not in ids]
    if unknown:
        raise DataError(f"{path}: the label {unknown[0]} has no class; the model has {', '.join(classes[:10])}")
    return np.array([ids[label] for label in labels])


def fitted_pixels(
    path: Path | str, images: np.ndarray, channels: int | None, preprocessing: Preprocessing
) -> np.ndarray:
    """Images [N, I, I] or [N, I, I, R], with R from 1 to 4, as [N, I, I, R] uint8 of these channels and this size.

    Args:
      path: of their file, or another name for messages.
      images: other dtypes than uint8 are converted as by `with_channels`.
      channels: R; None = 1 for fewer than 3 channels, otherwise 3.
      preprocessing: scales and crops each image, to squares.

    Raises: DataError, with the path, for another shape, and for unconvertible pixels.
    """
    if images.ndim == 3:
        images = images[..., None]
    fits = images.ndim == 4 and images.size and images.shape[3] <= 4
    size = preprocessing.result_size(*images.shape[1:3]) if fits else (0, 0)
    if not fits or size[0] != size[1]:
        remedy = "; crop them first, or train with --data.resize N" if fits else ""
        raise DataError(
            f"{path}: images must have the shape [N, I, I] or [N, I, I, R] with 1 to 4 channels, got {images.dtype} "
            f"{images.shape}{remedy}"
        )
    if images.dtype == np.uint16 and images.max() <= 255:
        _logger.warning(
            "%s: pixels of 16 bits that are at most %d: they are read as almost black; save 8 bits as uint8",
            *(path, images.max()),
        )
    channels = channels or (1 if images.shape[3] < 3 else 3)
    if images.dtype == np.uint8 and images.shape[3] == channels and not preprocessing.changes(*images.shape[1:3]):
        return images
    pixels = np.empty((len(images), *size, channels), np.uint8)
    for row, image in enumerate(images):
        with errors_as(DataError, f"{path}, image {row}"):
            fitted = preprocessing(with_channels(image, channels, preprocessing.conversion))
            pixels[row] = np.asarray(fitted).reshape(pixels.shape[1:])
    return pixels
