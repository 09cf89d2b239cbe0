"""Random changes of training images: flips, shifts, erased rectangles, and mixtures of two images.

Axes: I rows or columns of an image, R channels.
"""

import math

import numpy as np

from data import NumpyBatch

Generator = np.random.Generator
ERASED_AREA = (0.02, 0.33)
"""Smallest and largest erased share of an image."""
ERASED_ASPECT = 0.3
"""Smallest ratio of the sides of an erased rectangle."""
TRIALS = 10
"""Maximum number of draws until a rectangle fits."""


def flip(images: np.ndarray, flipped: np.ndarray) -> np.ndarray:
    """Images [B, I, I, R], flipped horizontally where `flipped` [B] is True."""
    changed = images.reshape(*images.shape[:2], -1).copy()  # rows of bytes
    backwards = np.arange(changed.shape[2]).reshape(images.shape[2:])[::-1].ravel()
    changed[flipped] = changed[flipped].take(backwards, axis=2)
    return changed.reshape(images.shape)


def shift(images: np.ndarray, padding: int, corners: np.ndarray) -> np.ndarray:
    """A window of each image's size in the image with `padding` black pixels on each side.

    Args:
      images: [B, I, I, R].
      padding: N.
      corners: row and column of each window, from 0 to 2 N [B, 2].

    Source: He et al. 2016, section 4.2.
    """
    count, size, _, channels = images.shape
    padded = np.zeros((count, size + 2 * padding, size + 2 * padding, channels), np.uint8)
    padded[:, padding : padding + size, padding : padding + size] = images
    padded = padded.reshape(*padded.shape[:2], -1)  # rows of bytes, which are copied whole
    windows = np.lib.stride_tricks.sliding_window_view(padded, (size, size * channels), (1, 2))
    return windows[np.arange(count), corners[:, 0], corners[:, 1] * channels].reshape(images.shape)


def erased(shape: tuple[int, ...], rate: float, generator: Generator) -> tuple[slice, slice, np.ndarray] | None:
    """With probability `rate`, rows and columns of a rectangle of an image [I, I, R], and random pixels for it.

    Source: Zhong et al. 2020, algorithm 1.
    """
    if generator.random() >= rate:
        return None
    size, _, channels = shape
    for _ in range(TRIALS):
        area = generator.uniform(*ERASED_AREA) * size**2
        aspect = generator.uniform(ERASED_ASPECT, 1.0 / ERASED_ASPECT)
        height, width = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < height < size and 0 < width < size:
            top, left = generator.integers(0, size - height + 1), generator.integers(0, size - width + 1)
            pixels = generator.integers(0, 256, (height, width, channels), np.uint8)
            return slice(top, top + height), slice(left, left + width), pixels
    return None


def mixup(batch: NumpyBatch, alpha: float, generator: Generator) -> NumpyBatch:
    """Replaces each image by a weighted mean of itself and another image of the batch.

    Adds `other_labels` [B], and `share` [B] float32, the weight of the first image, at least 1/2.

    Source: Zhang et al. 2018, eq. 2.
    """
    images, other, share = _partners(batch, alpha, generator)
    rows = np.flatnonzero(1.0 - share > 1 / 512)  # in the others, rounding would leave each pixel unchanged
    weights = share[rows, None, None, None]
    mean = weights * images[rows]
    mean += (1.0 - weights) * images[other[rows]]
    mixed = images.copy()
    mixed[rows] = np.rint(mean, out=mean)
    return batch | {"images": mixed, "other_labels": batch["labels"][other], "share": share}


def cutmix(batch: NumpyBatch, alpha: float, generator: Generator) -> NumpyBatch:
    """Replaces a rectangle of each image by that of another image of the batch; `share` is the area of the rest.

    Adds `other_labels` [B] and `share` [B] float32.

    Source: Yun et al. 2019, eq. 1 and 2.
    """
    images, other, share = _partners(batch, alpha, generator)
    size, mixed = images.shape[1], images.copy()
    for row, side in enumerate(np.rint(size * np.sqrt(1.0 - share)).astype(int)):
        top, left = generator.integers(0, size - side + 1, 2)
        mixed[row, top : top + side, left : left + side] = images[other[row], top : top + side, left : left + side]
        share[row] = 1.0 - side**2 / size**2
    return batch | {"images": mixed, "other_labels": batch["labels"][other], "share": share}


def _partners(batch: NumpyBatch, alpha: float, generator: Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The images, the partner of each, and the image's share [B] float32, drawn from Beta(alpha, alpha) above 1/2."""
    images = batch["images"]
    share = generator.beta(alpha, alpha, len(images)).astype(np.float32)
    return images, generator.permutation(len(images)), np.maximum(share, 1.0 - share)
