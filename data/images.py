"""Images with classes: scikit-learn's digits, CIFAR-10, folders of image files, or NumPy arrays.

Axes: I rows or columns of an image, R channels.
"""

import dataclasses
import functools
import hashlib
import os
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from data import (
    Corpus,
    DataConfig,
    DataError,
    LazyBatch,
    NumpyBatch,
    Split,
    refuse_path,
    require_batch,
    require_processor,
    short_reason,
)
from data.download import locate_folder
from data.pipelines.endless import batched, iterable
from data.pipelines.fingerprints import fingerprint
from data.pipelines.image_augmentation import cutmix, erased, flip, mixup, shift
from data.pipelines.orders import BATCH_CHANGED, generators, shuffled_order
from data.readers.image_files import LabelledImages, fitted_pixels, numbered, read_images
from jaxnlp.config import BatchSize, Count, Fraction, Natural, Positive, ProperFraction, UserPath
from jaxnlp.images.preprocessing import UNCHANGED, Preprocessing
from jaxnlp.images.processor import ImageProcessor, pixel_statistics
from jaxnlp.inference.caches import cache_folder

OWN_IMAGES = "for your own images, set --data.source files and give their folder with --data.path"
"""The alternative to the files of a known data set."""
CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CIFAR10_ARCHIVE = "train_jpeg.tar.xz"
CIFAR10_IMAGES = 5_000
"""Number of images of each class."""
CIFAR10_HELD_OUT = 4_900
"""Files of each class from this number on are held out."""


@dataclasses.dataclass(frozen=True)
class ImageExample:
    """An image [I, I, R] uint8, the id of its class, and its name."""

    image: np.ndarray
    label: int
    name: str
    heading: ClassVar[str] = "image"
    """Heading of the names in a table."""


@dataclasses.dataclass(frozen=True)
class Images(DataConfig):
    """Images of one size, and their classes.

    Batches have `images` [B, I, I, R] uint8, `labels` [B] int32 and `loss_mask` [B] bool; with `mix` also
    `other_labels` [B] int32 and `share` [B] float32.
    """

    source: Literal["digits", "cifar10", "files"] = "digits"
    """Scikit-learn's digits, 8 x 8 pixels; CIFAR-10's archive of JPEG files; or your own."""
    path: UserPath | None = None
    """For your own images: a folder with a folder of image files for each class, or a .npz file with images and labels.
    For CIFAR-10: its folder; None = $JAXNLP_DATA/cifar10."""
    validation_path: UserPath | None = None
    """Folder or file of the validation images, like path; None = a part of the images in path is held out."""
    validation_fraction: ProperFraction = 0.1
    """Share of each class that is held out."""
    split_seed: Natural = 0
    """Seed of the choice of held-out images."""
    resize: Count | None = None
    """Scale images to a shorter side of N pixels, and crop the middle N x N, in prediction too. None = all images must
    be square and of one size. With --init-from: scale and crop them as the pretrained model does, but to N pixels; None
    = to its size, if they are your own."""
    skip_broken: bool = False
    """Skip your own files that are damaged or not images, and count them; otherwise they are errors."""
    drop_duplicates: bool = False
    """Remove training images that are also in validation."""
    flip: bool = False
    """Flip half of the training images horizontally."""
    shift: Natural = 0
    """Shift training images by up to N pixels."""
    erase_rate: Fraction = 0.0
    """Share of training images in which a rectangle is erased."""
    mix: Literal["none", "mixup", "cutmix"] = "none"
    """Mix pairs of training images: their weighted mean (mixup), or a rectangle of one in the other (cutmix)."""
    mix_alpha: Positive = 1.0
    """Parameter of the beta distribution of the shares: small values mix little."""
    evaluation_batch_size: BatchSize = 256
    """Number of images in an evaluation step."""

    def __post_init__(self):
        super().__post_init__()
        own = self.source == "files"
        held_out = self.source == "digits" or (own and self.validation_path is None)
        if self.source == "digits":
            refuse_path(self.source, self.path, OWN_IMAGES)
        self.only_if(own, "data.source files", "validation_path")
        self.only_if(held_out, "images without a separate validation set", "validation_fraction", "split_seed")
        self.only_if(own, "data.source files", "skip_broken")
        self.only_if(self.mix != "none", "data.mix mixup and cutmix", "mix_alpha")

    @property
    def needs(self) -> str:
        return {"digits": "", "cifar10": "cifar10", "files": "your images"}[self.source]

    def load(self, seed: int, processor: Any = None) -> Corpus:
        """Reads the images; the split `validation` has the held-out images.

        Args:
          seed: decides the order and the augmentation of training images.
          processor: of the weights in `init_from`, for scaling, cropping and normalisation; size and classes may
            differ.

        Raises: FileNotFoundError, DataError: when images are not found or unreadable, have several sizes or fewer than
          two classes, or other channels than the processor.
        """
        earlier = None if processor is None else require_processor(processor, ImageProcessor)
        preprocessing = self._preprocessing(earlier)
        train, validation = self.labelled_parts(None if earlier is None else earlier.channels, preprocessing)
        if earlier is not None:
            train, validation = (part.in_order(earlier.classes) for part in (train, validation))
        train, dropped = _without_duplicates(train, validation) if self.drop_duplicates else (train, "")
        mean, stddev = pixel_statistics(train.images)
        _, size, _, channels = train.images.shape
        if earlier is not None and earlier.channels != channels:
            raise DataError(f"the model reads images with {earlier.channels} channels, but these have {channels}")
        if earlier is not None:
            mean, stddev = earlier.mean, earlier.stddev
        fitted = ImageProcessor(size, channels, mean, stddev, train.classes, preprocessing)
        require_batch(len(train.images), self.batch_size, "images")
        fields = fitted.to_json()
        del fields["preprocessing"]  # the images below are scaled already
        arrays = [array for part in (train, validation) for array in (part.images, part.labels.astype(np.int32))]
        seen = set(map(_digest, train.images))
        repeated = sum(_digest(image) in seen for image in validation.images)
        note = f"\nimages of validation that are also in training: {repeated:,}" if repeated else ""
        missing = sorted(set(range(len(train.classes))) - set(validation.labels.tolist()))
        if missing:
            note += f"\nvalidation has no image of {len(missing):,} of the classes, such as {train.classes[missing[0]]}"
        counts = np.bincount(train.labels, minlength=len(train.classes))
        return Corpus(
            train=self._training_batches(train, seed),
            splits={"validation": self._split(validation)},
            processor=fitted,
            description=(
                f"{len(train.images):,} images of {size} x {size} pixels for training, {len(validation.images):,} for "
                f"validation; {_class_sizes(train.classes, counts)}{note}{dropped}"
            ),
            fingerprint=fingerprint(repr((fields, train.images.shape)), *arrays),
            token_counts=counts,
        )

    def read_file(self, path: Path, processor: Any) -> Split:
        """Reads a folder with a folder for each class, or a .npz file; unreadable files are skipped.

        Raises: FileNotFoundError, DataError.
        """
        processor = require_processor(processor, ImageProcessor)
        options = {"channels": processor.channels, "preprocessing": processor.preprocessing}
        labelled = read_images(path, processor.classes, **options, skip_broken=True)
        check_shape(labelled.images, processor, str(path))
        return self._split(labelled)

    def _preprocessing(self, earlier: ImageProcessor | None) -> Preprocessing:
        """Scaling and cropping of images; without `resize` only of your own."""
        if self.source != "files" and self.resize is None:
            return UNCHANGED
        held = UNCHANGED if earlier is None else earlier.preprocessing
        if self.resize is None:
            return held
        return held.for_size(self.resize, self.resize if earlier is None else earlier.size)

    def labelled_parts(
        self, channels: int | None, preprocessing: Preprocessing
    ) -> tuple[LabelledImages, LabelledImages]:
        """The training images and the validation images. Args: as for `read_images`. Raises: as `load`."""
        if self.source != "files":
            fit = functools.partial(fitted_pixels, self.source, channels=None, preprocessing=preprocessing)
            train, validation = self._known_parts()
            return train._replace(images=fit(train.images)), validation._replace(images=fit(validation.images))
        if self.path is None:
            raise DataError(
                "data.source files needs your images: give a folder with a folder for each class, or a .npz file, with "
                "--data.path"
            )
        read = functools.partial(read_images, preprocessing=preprocessing, skip_broken=self.skip_broken)
        images = read(Path(self.path), channels=channels)
        if self.validation_path is not None:
            held_out = read(Path(self.validation_path), images.classes, channels=images.images.shape[3])
            if held_out.images.shape[1:] != images.images.shape[1:]:
                raise DataError(
                    f"{self.validation_path}: images of shape {held_out.images.shape[1:]}, but training images have "
                    f"{images.images.shape[1:]}; --data.resize {images.images.shape[1]} scales and crops both"
                )
            return images, held_out
        return held_out_part(images, self.validation_fraction, self.split_seed)

    def _known_parts(self) -> tuple[LabelledImages, LabelledImages]:
        """Those of the digits or of CIFAR-10."""
        if self.source == "digits":
            return held_out_part(digits(), self.validation_fraction, self.split_seed)
        folder = locate_folder("cifar10", self.path, holds=CIFAR10_ARCHIVE, otherwise=OWN_IMAGES)
        return read_cifar10(folder / CIFAR10_ARCHIVE)

    def _training_batches(self, train: LabelledImages, seed: int) -> Any:
        order = shuffled_order(len(train.images), seed)

        def rows(indices: np.ndarray) -> NumpyBatch:
            chosen = order(indices)
            images = self._augmented(train.images[chosen], generators(seed, indices))
            labels = train.labels[chosen].astype(np.int32)
            return {"images": images, "labels": labels, "loss_mask": np.ones(len(chosen), bool)}

        batches = batched(rows, self.batch_size)
        if self.mix == "none":
            return iterable(batches)
        mix = mixup if self.mix == "mixup" else cutmix  # of rows of the whole batch

        def mixed(number: int, batch: LazyBatch) -> NumpyBatch:
            return mix(batch.whole, self.mix_alpha, *generators(seed, [number], BATCH_CHANGED))

        return iterable(batches.map_with_index(mixed))

    def _augmented(self, images: np.ndarray, random: Iterator[np.random.Generator]) -> np.ndarray:
        """Training images [N, I, I, R], flipped, shifted and erased with the numbers of a generator for each."""
        if not (self.flip or self.shift or self.erase_rate):
            return images
        bits, rectangles = [], []
        for generator in random:
            # The methods random() and integers() need four times the time for the same numbers. Only once in about a
            # billion images, integers() draws again for numbers of exactly equal probability.
            bits.append(generator.bit_generator.random_raw(self.flip + bool(self.shift)))
            rectangles.append(erased(images.shape[1:], self.erase_rate, generator) if self.erase_rate else None)
        if self.flip:
            images = flip(images, np.array([one[0] for one in bits]) < 2**63)
        if self.shift:
            halves = np.array([(one[-1] & 0xFFFFFFFF, one[-1] >> 32) for one in np.array(bits).tolist()])
            images = shift(images, self.shift, halves * (2 * self.shift + 1) >> 32)
        for image, rectangle in zip(images, rectangles, strict=True):
            if rectangle is not None:
                rows, columns, pixels = rectangle
                image[rows, columns] = pixels
        return images

    def _split(self, labelled: LabelledImages) -> Split:
        size = self.evaluation_batch_size
        batches = []
        for start in range(0, len(labelled.images), size):
            images, labels = (array[start : start + size] for array in (labelled.images, labelled.labels))
            missing = size - len(images)
            batches.append(
                {
                    "images": np.pad(images, [(0, missing), (0, 0), (0, 0), (0, 0)]),
                    "labels": np.pad(labels.astype(np.int32), (0, missing)),
                    "loss_mask": np.arange(size) < len(images),
                }
            )
        rows = zip(labelled.images, labelled.labels.tolist(), labelled.names, strict=True)
        return Split(tuple(batches), tuple(ImageExample(*row) for row in rows))


def check_shape(images: np.ndarray, processor: ImageProcessor, name: str) -> None:
    """Raises DataError, with this name, unless images [N, I, I, R] have the processor's shape."""
    if images.shape[1:] != processor.shape:
        raise DataError(
            f"{name}: images of shape {images.shape[1:]}, but the model reads {processor.shape}; crop and scale them "
            f"first, or train with --data.resize {processor.size}"
        )


def _class_sizes(classes: Sequence[str], counts: np.ndarray) -> str:
    """The number of classes and of their images, from counts [C] of at least one class, in words."""
    rarest, largest = int(counts.argmin()), int(counts.argmax())
    if counts[rarest] == counts[largest]:
        return f"{len(counts)} classes of {counts[rarest]:,} {'image' if counts[rarest] == 1 else 'images'} each"
    return (
        f"{len(counts)} classes; {classes[rarest]} has the fewest images, {counts[rarest]:,}, and {classes[largest]} "
        f"the most, {counts[largest]:,}"
    )


def _digest(image: np.ndarray) -> bytes:
    return hashlib.blake2b(image.tobytes(), digest_size=16).digest()


def digits() -> LabelledImages:
    """Scikit-learn's 1,797 handwritten digits, 8 x 8 pixels, with 17 levels of grey."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    images = np.rint(bunch.images * (255.0 / 16.0)).astype(np.uint8)[..., None]
    return LabelledImages(images, bunch.target.astype(np.int64), tuple(map(str, range(10))), numbered(len(images)))


def held_out_part(labelled: LabelledImages, fraction: float, seed: int = 0) -> tuple[LabelledImages, LabelledImages]:
    """The training images, and the validation images: a fraction of each class, at least one, chosen by the seed.

    Raises: DataError for a class with fewer than two images.
    """
    held_out = np.zeros(len(labelled.labels), bool)
    for label, name in enumerate(labelled.classes):
        rows = np.flatnonzero(labelled.labels == label)
        if len(rows) < 2:
            raise DataError(f"the class {name} has fewer than two images; it needs two, one of them for validation")
        count = max(1, round(fraction * len(rows)))
        held_out[np.random.default_rng([label, seed]).permutation(rows)[: min(count, len(rows) - 1)]] = True
    return labelled.part(~held_out), labelled.part(held_out)


def _without_duplicates(train: LabelledImages, others: LabelledImages) -> tuple[LabelledImages, str]:
    """The images that are not among the others, and a line that counts the removed ones. Raises: DataError."""
    seen = set(map(_digest, others.images))
    repeated = np.array([_digest(image) in seen for image in train.images])
    kept = train.part(~repeated)
    for label, name in enumerate(train.classes):
        if label not in kept.labels:
            raise DataError(f"all training images of the class {name} are also in validation; give others")
    return kept, f"\ntraining images that are also in validation, removed: {int(repeated.sum()):,}"


def read_cifar10(archive: Path) -> tuple[LabelledImages, LabelledImages]:
    """CIFAR-10's 50,000 training images, divided into 49,000 and 1,000 held-out images.

    The archive, with train/CLASS/NUMBER.jpg, is decoded once, into a memory-mapped file in the cache.

    Raises: FileNotFoundError, DataError.
    """
    if not archive.is_file():
        raise FileNotFoundError(f"the CIFAR-10 archive {archive} does not exist; {OWN_IMAGES}")
    status = archive.stat()
    cached = cache_folder() / "data" / f"cifar10-held-out-last-{status.st_size}-{status.st_mtime_ns}.npy"
    if not cached.is_file():
        _decode_cifar10(archive, cached)
    images = np.asarray(np.load(cached, mmap_mode="r"))  # slices of a plain array take a fifth of the time
    count = len(CIFAR10) * CIFAR10_HELD_OUT  # a slice stays on disk, but an index array would copy rows into memory
    parts = (images[:count], 0, CIFAR10_HELD_OUT), (images[count:], CIFAR10_HELD_OUT, CIFAR10_IMAGES)
    train, held_out = (
        LabelledImages(
            part,
            np.repeat(np.arange(len(CIFAR10)), end - begin),
            CIFAR10,
            tuple(f"{name}/{index:04}.jpg" for name in CIFAR10 for index in range(begin, end)),
        )
        for part, begin, end in parts
    )
    return train, held_out


def _decode_cifar10(archive: Path, destination: Path) -> None:
    """Writes all images [N, 32, 32, 3] uint8, by class and number; held-out images come last."""
    from PIL import Image

    images = np.empty((len(CIFAR10), CIFAR10_IMAGES, 32, 32, 3), np.uint8)
    seen = np.zeros(images.shape[:2], bool)
    try:
        with tarfile.open(archive, "r:xz") as members:
            for member in members:
                if not member.isfile():
                    continue
                name = Path(member.name)
                stream = members.extractfile(member)
                assert stream is not None
                where = CIFAR10.index(name.parent.name), int(name.stem)
                images[where] = np.asarray(Image.open(stream).convert("RGB"))
                seen[where] = True
    except Exception as error:  # lzma, tarfile and Pillow raise a dozen unrelated types
        raise DataError(f"{archive} cannot be read: {short_reason(error)}") from error
    if not seen.all():
        raise DataError(f"{archive} has {int(seen.sum()):,} of {seen.size:,} images")
    destination.parent.mkdir(parents=True, exist_ok=True)
    partial = destination.with_suffix(f".{os.getpid()}.npy")
    parts = images[:, :CIFAR10_HELD_OUT], images[:, CIFAR10_HELD_OUT:]
    np.save(partial, np.concatenate([part.reshape(-1, 32, 32, 3) for part in parts]))
    partial.replace(destination)
