"""Images as sequences of pixels, for language models: each pixel is the nearest colour of a palette.

Source: Chen et al. 2020 (Image GPT), and karpathy/minGPT, play_image, for a palette by k-means on training pixels.
Differs: a token before the first pixel, which is predicted, too.

Axes: I rows or columns of an image, R channels.
"""

import dataclasses
import warnings
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from data import Corpus, DataConfig, DataError, NumpyBatch, Split, require_batch, require_processor
from data.images import Images, check_shape
from data.pipelines.endless import batched, iterable
from data.pipelines.fingerprints import fingerprint
from data.pipelines.image_augmentation import flip
from data.pipelines.orders import generators, shuffled_order
from data.readers.image_files import read_images
from jaxnlp.config import BatchSize, Count, Natural, ProperFraction, UserPath, Within
from jaxnlp.images.palette import Palette, sequences
from jaxnlp.images.preprocessing import UNCHANGED, Preprocessing
from jaxnlp.images.processor import ImageProcessor

SAMPLED = 2**17
"""Maximum number of training pixels for the palette."""
ITERATIONS = 20
"""Iterations of k-means."""
SIDES = {"digits": 8, "cifar10": 32}
"""Rows and columns of the images of known data sets, I."""


@dataclasses.dataclass(frozen=True)
class ImagePixels(DataConfig):
    """Images of one size as sequences of colours, without labels.

    Batches have `tokens`, `targets` [B, T] int32 and `loss_mask` [B, T] bool; T is the number of pixels.
    """

    length_field: ClassVar[str] = "resize"
    processor_fields: ClassVar[tuple[str, ...]] = ("palette_size", "resize")

    source: Literal["digits", "cifar10", "files"] = "digits"
    """Scikit-learn's digits, 8 x 8 pixels; CIFAR-10's archive of JPEG files, 32 x 32 pixels; or your own."""
    path: UserPath | None = None
    """For your own images: a folder with folders of image files, or a .npz file with images and labels. For CIFAR-10:
    its folder; None = $JAXNLP_DATA/cifar10."""
    validation_path: UserPath | None = None
    """Folder or file of the validation images, like path; None = a part of the images in path is held out."""
    validation_fraction: ProperFraction = 0.2
    """Share of each folder, or of each label, that is held out."""
    split_seed: Natural = 0
    """Seed of the choice of held-out images."""
    resize: Count | None = None
    """Scale images to a shorter side of N pixels, and crop the middle N x N, a sequence of N x N tokens. None = all
    images must be square and of one size."""
    skip_broken: bool = False
    """Skip your own files that are damaged or not images, and count them; otherwise they are errors."""
    palette_size: Annotated[int, Within("[2, 65537)")] = 256
    """Maximum number of colours. Images with no more colours than this keep them; k-means chooses among more."""
    flip: bool = False
    """Flip half of the training images horizontally."""
    evaluation_batch_size: BatchSize = 64
    """Number of images in an evaluation step."""

    def __post_init__(self):
        super().__post_init__()
        self.only_if(self._holds_out, "images without a separate validation set", "validation_fraction", "split_seed")
        _ = self._images  # checks the other fields that both have

    @property
    def _holds_out(self) -> bool:
        return self.source != "cifar10" and self.validation_path is None

    @property
    def _images(self) -> Images:
        """The images with their labels."""
        names: tuple[str, ...] = ("source", "path", "validation_path", "split_seed", "resize", "skip_broken")
        names += ("validation_fraction",) if self._holds_out else ()
        return Images(**{name: getattr(self, name) for name in names})

    @property
    def usual(self) -> tuple[str, ...]:
        return (*super().usual, "resize")

    @property
    def needs(self) -> str:
        return self._images.needs

    @property
    def max_length(self) -> int | None:
        """T; None = known when the images are read."""
        side = self.resize or SIDES.get(self.source)
        return None if side is None else side**2

    def load(self, seed: int, processor: Any = None) -> Corpus:
        """Reads the images and makes the palette; the split `validation` has the held-out images.

        Args:
          seed: decides the order and the flips of training images.
          processor: the palette of an earlier run; None = one of the training images.

        Raises: FileNotFoundError, DataError: when images are not found or unreadable, are too few, have several sizes,
          or another size than the processor's.
        """
        palette = None if processor is None else require_processor(processor, Palette)
        if palette is not None:
            preprocessing = palette.images.preprocessing
        else:
            preprocessing = UNCHANGED if self.resize is None else Preprocessing.square(self.resize)
        channels = None if palette is None else palette.images.channels
        parts = [part.images for part in self._images.labelled_parts(channels, preprocessing)]
        palette = palette or palette_of(parts[0], self.palette_size, preprocessing)
        for images in parts:
            check_shape(images, palette.images, f"data.source {self.source}")
        train, validation = parts
        require_batch(len(train), self.batch_size, "images")
        side = palette.images.size
        return Corpus(
            train=self._training_batches(palette.encode(train).reshape(-1, side, side, 1), seed),
            splits={"validation": self._split(validation, palette)},
            processor=palette,
            description=(
                f"{len(train):,} images of {side} x {side} pixels for training, {len(validation):,} for validation; "
                f"{palette.size:,} colours"
            ),
            fingerprint=fingerprint(repr((palette.to_json(), train.shape)), *parts),
        )

    def read_file(self, path: Path, processor: Any) -> Split:
        """Reads a folder with folders of image files, or a .npz file; unreadable files are skipped.

        Raises: FileNotFoundError, DataError.
        """
        palette = require_processor(processor, Palette)
        reader = palette.images
        read = read_images(path, channels=reader.channels, preprocessing=reader.preprocessing, skip_broken=True)
        check_shape(read.images, reader, str(path))
        return self._split(read.images, palette)

    def _training_batches(self, ids: np.ndarray, seed: int) -> Any:
        """Of the images [N, I, I, 1], as ids."""
        order = shuffled_order(len(ids), seed)

        def rows(indices: np.ndarray) -> NumpyBatch:
            chosen = ids[order(indices)]
            if self.flip:
                draws = [generator.random() for generator in generators(seed, indices)]
                chosen = flip(chosen, np.array(draws) < 0.5)
            return _batch(chosen.reshape(len(chosen), -1))

        return iterable(batched(rows, self.batch_size))

    def _split(self, images: np.ndarray, palette: Palette) -> Split[np.ndarray]:
        """The examples are the images [I, I, R] uint8."""
        ids, size = palette.encode(images), self.evaluation_batch_size
        parts = (ids[start : start + size] for start in range(0, len(ids), size))
        return Split([_batch(part, size) for part in parts], tuple(images))


def palette_of(images: np.ndarray, size: int, preprocessing: Preprocessing = UNCHANGED) -> Palette:
    """A palette of images [N, I, I, R] uint8: all their colours, or the centres of `size` clusters of a sample of
    pixels, by k-means, starting from colours as frequent as in it."""
    from scipy.cluster.vq import kmeans2

    _, side, _, channels = images.shape
    pixels, draw = images.reshape(-1, channels), np.random.default_rng(0)
    if len(pixels) > SAMPLED:
        pixels = pixels[draw.integers(len(pixels), size=SAMPLED)]
    colours, counts = np.unique(pixels, axis=0, return_counts=True)
    if len(colours) > size:
        first = colours[draw.choice(len(colours), size, replace=False, p=counts / counts.sum())]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # a cluster without pixels keeps its centre
            centres, _ = kmeans2(pixels.astype(float), first.astype(float), iter=ITERATIONS, minit="matrix")
        colours = np.unique(np.rint(centres).astype(np.uint8), axis=0)
    if len(colours) < 2:
        raise DataError("all pixels of the training images are equal; give images with several colours")
    reader = ImageProcessor(side, channels, (0.0,) * channels, (1.0,) * channels, (), preprocessing)
    return Palette(reader, tuple(map(tuple, colours.tolist())))


def _batch(ids: np.ndarray, rows: int | None = None) -> NumpyBatch:
    """Pixels [N, T] as a batch of this number of rows; None = N. The last rows are padding."""
    missing = 0 if rows is None else rows - len(ids)
    batch = sequences(np.pad(ids, [(0, missing), (0, 0)]))
    scored = np.arange(len(ids) + missing) < len(ids)
    return batch | {"loss_mask": np.repeat(scored[:, None], ids.shape[1], axis=1)}
