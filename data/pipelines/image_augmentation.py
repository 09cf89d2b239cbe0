"""Random changes of training images: flips, shifts, erased rectangles, and mixtures of two images.

Axes: I rows or columns of an image, R channels.
"""

import math

import numpy as np

from data import NumpyBatch

Generator = np.random.Generator
ERASED_AREA = (0.02, 0.33)
"""Smallest and largest share of an image that is erased."""
ERASED_ASPECT = 0.3
"""Smallest ratio of the sides of an erased rectangle."""
TRIALS = 10
"""Maximum number of rectangles that are drawn until one fits."""


def flip(image: np.ndarray, generator: Generator) -> np.ndarray:
    """[I, I, R], flipped horizontally with probability 1/2."""
    return image[:, ::-1] if generator.random() < 0.5 else image


def shift(image: np.ndarray, padding: int, generator: Generator) -> np.ndarray:
    """A random window of the image's size, in the image with `padding` black pixels on each side.

    Source: He et al. 2016, section 4.2.
    """
    moved = np.zeros_like(image)
    to, source = zip(*map(_overlap, generator.integers(0, 2 * padding + 1, 2) - padding), strict=True)
    moved[to] = image[source]
    return moved


def _overlap(offset: int) -> tuple[slice, slice]:
    """Where an axis and the same axis from `offset` on overlap: in the result, and in the axis."""
    if offset > 0:
        return slice(None, -offset), slice(offset, None)
    return slice(-offset, None), slice(None, offset or None)


def erase(image: np.ndarray, rate: float, generator: Generator) -> np.ndarray:
    """Replaces, with probability `rate`, a rectangle of the image by random pixels.

    Source: Zhong et al. 2020, algorithm 1.
    """
    if generator.random() >= rate:
        return image
    size = len(image)
    for _ in range(TRIALS):
        area = generator.uniform(*ERASED_AREA) * size**2
        aspect = generator.uniform(ERASED_ASPECT, 1.0 / ERASED_ASPECT)
        height, width = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < height < size and 0 < width < size:
            top, left = generator.integers(0, size - height + 1), generator.integers(0, size - width + 1)
            changed = image.copy()
            changed[top : top + height, left : left + width] = generator.integers(
                0, 256, (height, width, image.shape[-1]), np.uint8
            )
            return changed
    return image


def mixup(batch: NumpyBatch, alpha: float, generator: Generator) -> NumpyBatch:
    """Replaces each image by a weighted mean of itself and another image of the batch.

    Adds `other_labels` [B], and `share` [B] float32, the weight of the first image, at least 1/2.

    Source: Zhang et al. 2018, eq. 2.
    """
    images, other, share = _partners(batch, alpha, generator)
    weights = share[:, None, None, None]
    mixed = np.rint(weights * images + (1.0 - weights) * images[other]).astype(np.uint8)
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
