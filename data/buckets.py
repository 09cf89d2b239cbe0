"""Batches of examples of many lengths, each padded to the length of its own longest example."""

import functools
from collections.abc import Callable
from typing import Any

import grain
import numpy as np

from data import NumpyBatch


def _length(example: NumpyBatch) -> int:
    return len(example["loss_mask"])


def padded(examples: list[NumpyBatch], batch_size: int, multiple: int) -> NumpyBatch:
    """Examples of 1-D arrays as one batch: padded with 0 and False, and with whole rows of these up to B."""
    shape = (batch_size, rounded_up(max(map(_length, examples)), multiple))
    batch = {name: np.zeros(shape, value.dtype) for name, value in examples[0].items()}
    for row, example in enumerate(examples):
        for name, value in example.items():
            batch[name][row, : len(value)] = value
    return batch


def rounded_up(length: int, multiple: int) -> int:
    """The next multiple."""
    return -(-length // multiple) * multiple


def bucketed(
    examples: grain.MapDataset,
    batch_size: int,
    *,
    seed: int,
    pool_batches: int = 16,
    multiple: int = 16,
    length: Callable[[Any], int] = _length,
    pad: Callable[[list[Any], int, int], NumpyBatch] = padded,
) -> grain.MapDataset:
    """Batches of examples of about the same length.

    The examples of `pool_batches` batches, a pool, are sorted by length and divided into batches, in a random order.
    So the examples of a batch depend on their lengths within a pool, and on chance beyond it. A batch is a function of
    its number, so that a pipeline can be set to any of them.

    Args:
      examples: at least one pool of them; dicts of 1-D arrays of equal length, `loss_mask` [n] bool among them, unless
        `length` and `pad` take others.
      batch_size: B.
      seed: decides the order of the batches in a pool.
      pool_batches: batches in a pool.
      multiple: of lengths; the number of shapes, and so of compilations, is the longest length divided by it.
      length: of an example.
      pad: (examples, B, multiple) to a batch.

    Returns:
      Batches, of examples of the default kind [B, n], n a multiple of `multiple`; padding is 0, and False.
    """
    pool_size = pool_batches * batch_size

    # The batches of a pool are read one after the other.
    @functools.lru_cache(maxsize=2)
    def pool(number: int) -> list[NumpyBatch]:
        found = [examples[i] for i in range(number * pool_size, (number + 1) * pool_size)]
        found.sort(key=length)
        order = np.random.default_rng((seed, number)).permutation(pool_batches)
        return [pad(found[i * batch_size : (i + 1) * batch_size], batch_size, multiple) for i in order]

    return grain.MapDataset.range(len(examples) // pool_size * pool_batches).map(
        lambda number: pool(number // pool_batches)[number % pool_batches]
    )
