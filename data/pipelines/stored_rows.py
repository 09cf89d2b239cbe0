"""Rows of examples, made once, so that a batch is a lookup."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from data import NumpyBatch


class StoredRows:
    """The rows of N examples, without their padding.

    Args:
      batch: from (examples, B, T) to a batch of B rows; rows without an example are empty. All arrays have a second
        axis, whose size depends only on T. A row depends only on its example; a larger T pads it with the last element
        of an empty row.
      examples: N examples, at least one.
      lengths: the minimum T of each example [N].
    """

    def __init__(
        self, batch: Callable[[list[Any], int, int], NumpyBatch], examples: Sequence[Any], lengths: Sequence[int]
    ):
        order = np.argsort(lengths, kind="stable")
        sizes, first = np.unique(np.asarray(lengths)[order], return_index=True)
        groups = zip(sizes.tolist(), np.split(order, first[1:]), strict=True)
        made = [batch([examples[index] for index in members], len(members), size) for size, members in groups]
        self._batch = batch
        self._empty: dict[int, NumpyBatch] = {}  # by T: an empty row
        self._values: dict[str, np.ndarray] = {}  # the elements of all rows, and one of padding [M + 1, ...]
        self._kind: dict[str, int] = {}  # arrays of the same kind have rows of the same sizes
        self._rows: list[np.ndarray] = []  # of each kind: where the elements of a row start, and their number [2, N]
        for name, empty in batch([], 1, int(sizes[-1])).items():
            arrays = [one[name] for one in made]
            counts = np.concatenate([np.full(len(array), array.shape[1]) for array in arrays])
            rows = np.stack([np.cumsum(counts) - counts, counts])[:, np.argsort(order)]
            self._values[name] = np.concatenate([*(x.reshape(-1, *x.shape[2:]) for x in arrays), empty[0, -1:]])
            self._kind[name] = next(
                (k for k, one in enumerate(self._rows) if np.array_equal(one, rows)), len(self._rows)
            )
            if self._kind[name] == len(self._rows):
                self._rows.append(rows)

    def batch(self, indices: Sequence[int], size: int, length: int) -> NumpyBatch:
        """The examples at these indices as a batch, as by the function of the class.

        Args:
          indices: of at most B examples.
          size: B.
          length: T, at least that of each example.
        """
        if length not in self._empty:
            self._empty[length] = self._batch([], 1, length)
        batch: NumpyBatch = {}
        places: dict[tuple[int, int], np.ndarray] = {}
        for name, empty in self._empty[length].items():
            values, kind = self._values[name], (self._kind[name], empty.shape[1])
            if kind not in places:
                (starts, counts), position = self._rows[kind[0]][:, list(indices), None], np.arange(kind[1])
                places[kind] = np.where(position < counts, starts + position, len(values) - 1)
            batch[name] = np.empty((size, *empty.shape[1:]), values.dtype)
            values.take(places[kind], axis=0, out=batch[name][: len(indices)], mode="clip")
            batch[name][len(indices) :] = empty
        return batch
