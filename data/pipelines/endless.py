"""Endless examples for training."""

from collections.abc import Callable, Sequence
from typing import Any

import grain
import numpy as np

from data import LazyBatch, NumpyBatch

ENDLESS = 2**40
"""An effectively infinite number of examples. Grain's own endless repeat() overflows when its examples are batched."""


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


def iterable(batches: grain.MapDataset) -> grain.IterDataset:
    """The batches in their order; the iterator's state can be saved and set.

    No threads read ahead: a batch takes microseconds, and on few cores threads slow down the training step.
    """
    return batches.to_iter_dataset(grain.ReadOptions(num_threads=0, prefetch_buffer_size=0))
