"""Endless examples for training."""

from collections.abc import Callable, Sequence
from typing import Any

import grain
import numpy as np

from data import LazyBatch, NumpyBatch
from data.pipelines.epochs import ENDLESS, Epochs
from data.pipelines.orders import generators, shuffled_order

POOL_BATCHES = 16
"""Number of batches that a worker makes in turn; as many are sorted by length together."""
Examples = Callable[[np.ndarray], list[Any]]
"""A pure function from increasing indices [N] of endless examples to these examples."""


def shuffled(
    examples: Sequence[Any], seed: int, change: Callable[[Any, np.random.Generator], Any] | None = None
) -> Examples:
    """The examples endlessly, reshuffled in each epoch.

    Args:
      examples: at least one.
      seed: decides the order and the random numbers.
      change: from an example, and its own random generator, to its replacement.
    """
    order = shuffled_order(len(examples), seed)

    def at(indices: np.ndarray) -> list[Any]:
        chosen = [examples[index] for index in order(indices).tolist()]
        if change is None:
            return chosen
        return [change(one, generator) for one, generator in zip(chosen, generators(seed, indices), strict=True)]

    return at


def batched(rows: Callable[[np.ndarray], NumpyBatch], batch_size: int) -> grain.MapDataset:
    """Batches of B examples, each made when its row is read.

    Args:
      rows: a pure function from indices [N] of endless examples to a batch of them.
      batch_size: B.
    """

    def batch(index: int) -> LazyBatch:
        return LazyBatch(batch_size, lambda chosen: rows(index * batch_size + chosen))

    return grain.MapDataset.range(ENDLESS // batch_size).map(batch)


def iterable(batches: grain.MapDataset) -> Epochs:
    """Endless batches in order; the iterator's state can be saved and set."""
    return Epochs(lambda number: batches[number * POOL_BATCHES : (number + 1) * POOL_BATCHES])
