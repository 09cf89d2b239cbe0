"""Endless examples for training."""

from collections.abc import Callable, Sequence
from typing import Any

import grain
import numpy as np

from data import LazyBatch, NumpyBatch
from data.pipelines.epochs import ENDLESS, Epochs

TOGETHER = 16
"""Number of batches that a worker makes one after the other; as many as are sorted by length together."""


def shuffled(examples: grain.MapDataset, seed: int) -> grain.MapDataset:
    """The examples endlessly, reshuffled in each epoch."""
    return examples.seed(seed).shuffle().repeat(ENDLESS // len(examples))


def stacked(rows: Sequence[NumpyBatch]) -> NumpyBatch:
    """Rows as a batch."""
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}


def batched(
    examples: grain.MapDataset, batch_size: int, make: Callable[[list[Any]], NumpyBatch] = stacked
) -> grain.MapDataset:
    """Batches of B examples. Each example is made when its row is read.

    Args:
      examples: dicts of arrays of equal shapes, or whatever `make` takes.
      batch_size: B.
      make: from a batch's examples, or some of them, to these rows.
    """

    def batch(index: int) -> LazyBatch:
        return LazyBatch(batch_size, lambda rows: make([examples[index * batch_size + int(row)] for row in rows]))

    return grain.MapDataset.range(len(examples) // batch_size).map(batch)


def iterable(batches: grain.MapDataset) -> Epochs:
    """Endless batches in their order; the iterator's state can be saved and set."""
    return Epochs(lambda number: batches[number * TOGETHER : (number + 1) * TOGETHER])
