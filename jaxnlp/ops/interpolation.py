"""Interpolation of vectors on a square grid."""

import chex
import numpy as np

CUBIC = -0.75
"""The slope of the cubic at distance 1, as in PyTorch and OpenCV."""


def cubic_weights(size: int, new_size: int) -> np.ndarray:
    """The weight of each of `size` values in each of `new_size` interpolated ones: [new_size, size], float64.

    The new value j is at (j + 1/2) size / new_size - 1/2. Its four nearest values have weights by distance d, with a =
    -3/4:

    w(d) = (a + 2) d^3 - (a + 3) d^2 + 1 for d <= 1,   a d^3 - 5 a d^2 + 8 a d - 4 a for 1 < d < 2

    Beyond the ends the first and the last value are repeated. The weights of a new value sum to 1.

    Source: Keys 1981. Differs: a is -3/4, as in PyTorch's `interpolate` with mode bicubic, not -1/2.
    """
    centres = (np.arange(new_size) + 0.5) * (size / new_size) - 0.5
    weights = np.zeros((new_size, size))
    for offset in range(-1, 3):
        place = np.floor(centres) + offset
        d = np.abs(centres - place)
        near = (CUBIC + 2.0) * d**3 - (CUBIC + 3.0) * d**2 + 1.0
        far = CUBIC * (d**3 - 5.0 * d**2 + 8.0 * d - 4.0)
        # Several places beyond an end are the same value.
        np.add.at(weights, (np.arange(new_size), place.clip(0, size - 1).astype(int)), np.where(d <= 1.0, near, far))
    return weights


def bicubic(grid: np.ndarray, side: int) -> np.ndarray:
    """Vectors on a square grid, interpolated to another number of rows and columns.

    Args:
      grid: [S, S, D].
      side: of the new grid.

    Returns:
      [side, side, D] float32; a copy of the grid for the same side.

    Source: as for `cubic_weights`; there is no antialiasing, as in Transformers' `interpolate_pos_encoding`.
    """
    chex.assert_rank(grid, 3)
    chex.assert_equal(grid.shape[0], grid.shape[1])
    weights = cubic_weights(len(grid), side)
    return np.einsum("is,jt,std->ijd", weights, weights, np.asarray(grid, np.float64)).astype(np.float32)
