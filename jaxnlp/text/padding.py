"""Rows of different lengths as one array, with padding at the end of each row."""

from collections.abc import Sequence
from typing import Any

import numpy as np


def row_mask(rows: Sequence[Any], size: int | None = None, length: int | None = None) -> np.ndarray:
    """Where rows have values [B, T] bool; False is padding.

    Args:
      rows: at most B arrays or lists, each of at most T values.
      size: B; None = the number of rows.
      length: T; None = the length of the longest row.
    """
    lengths = np.zeros(len(rows) if size is None else size, int)
    lengths[: len(rows)] = [len(row) for row in rows]
    return np.arange(max(lengths) if length is None else length)[None] < lengths[:, None]


def padded(
    rows: Sequence[Any],
    mask: np.ndarray | None = None,
    *,
    dtype: Any = np.int32,
    fill: int = 0,
    width: int | None = None,
) -> np.ndarray:
    """Rows as one array [B, T], or [B, T, width] for rows of vectors.

    Args:
      rows: arrays or lists.
      mask: of `row_mask` [B, T]; None = that of these rows.
      fill: the value of padding.
      width: of the vectors; None = the rows have numbers.
    """
    mask = row_mask(rows) if mask is None else mask
    array = np.full(mask.shape if width is None else (*mask.shape, width), fill, dtype)
    if mask.sum(axis=1)[: len(rows)].tolist() != [len(row) for row in rows]:
        raise ValueError("the rows do not have the lengths of the mask")
    if width is None and rows:
        array[mask] = np.concatenate(rows)  # faster than an assignment for each row
    else:
        for place, row in zip(array, rows, strict=False):
            place[: len(row)] = row
    return array
