"""Batches of examples of different lengths, each padded to the length of its longest example."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import grain
import numpy as np

from data import NumpyBatch


def _length(example: NumpyBatch) -> int:
    return len(example["loss_mask"])


def padded(examples: list[NumpyBatch], batch_size: int, multiple: int) -> NumpyBatch:
    """A batch of examples of 1-D arrays, padded with 0 and False, and with whole rows of these up to B."""
    shape = (batch_size, rounded_up(max(map(_length, examples)), multiple))
    batch = {name: np.zeros(shape, value.dtype) for name, value in examples[0].items()}
    for row, example in enumerate(examples):
        for name, value in example.items():
            batch[name][row, : len(value)] = value
    return batch


def rounded_up(length: int, multiple: int) -> int:
    """The smallest multiple that is at least the length."""
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

    The examples of `pool_batches` batches, a pool, are sorted by length and divided into batches in random order. So
    lengths decide the batch within a pool, and the pools are random. A batch is a function of its index, so that a
    pipeline can start at any batch.

    Args:
      examples: at least one pool; dicts of 1-D arrays of equal length, including `loss_mask` [n] bool, unless `length`
        and `pad` take others.
      batch_size: B.
      seed: decides the order of the batches in a pool.
      pool_batches: number of batches in a pool.
      multiple: of lengths; the number of shapes, and so of compilations, is the maximum length divided by it.
      length: from an example to its length.
      pad: from (examples, B, multiple) to a batch.

    Returns:
      Batches; with the default `pad` [B, n], n a multiple of `multiple`, padded with 0 and False.
    """
    pool_size = pool_batches * batch_size

    # The batches of a pool are read one after the other.
    @functools.lru_cache(maxsize=2)
    def pool(index: int) -> list[NumpyBatch]:
        pooled = [examples[i] for i in range(index * pool_size, (index + 1) * pool_size)]
        pooled.sort(key=length)
        order = np.random.default_rng((seed, index)).permutation(pool_batches)
        return [pad(pooled[i * batch_size : (i + 1) * batch_size], batch_size, multiple) for i in order]

    return grain.MapDataset.range(len(examples) // pool_size * pool_batches).map(
        lambda index: pool(index // pool_batches)[index % pool_batches]
    )


def sorted_batches(
    examples: Sequence[Any],
    batch_size: int,
    *,
    multiple: int = 16,
    length: Callable[[Any], int] = _length,
    pad: Callable[[list[Any], int, int], NumpyBatch] = padded,
) -> tuple[tuple[NumpyBatch, ...], np.ndarray]:
    """One pass over examples, sorted by length. The arguments are those of `bucketed`.

    Returns: the batches, and the index of the example in each of their rows [N] int.
    """
    rows = np.argsort(list(map(length, examples)), kind="stable")
    starts = range(0, len(rows), batch_size)
    groups = [[examples[index] for index in rows[start : start + batch_size]] for start in starts]
    return tuple(pad(group, batch_size, multiple) for group in groups), rows
