"""Batches of examples of many lengths, each padded to its own longest and no further."""

import functools

import grain
import numpy as np

from data import NumpyBatch


def bucketed(
    examples: grain.MapDataset, batch_size: int, *, seed: int, pool_batches: int = 16, multiple: int = 16
) -> grain.MapDataset:
    """Batches of examples of about the same length.

    Each run of `pool_batches` batches is sorted by length before it is cut, and its batches come in a random order:
    which examples meet in a batch depends on their lengths within a pool, and on chance beyond it. All is a function of
    the batch's number, so that a pipeline can be set to any of them.

    Args:
      examples: dicts of 1-D arrays of equal length, `loss_mask` [n] bool among them; at least one pool of them.
      batch_size: B.
      seed: decides the order of the batches in a pool.
      pool_batches: batches in a pool.
      multiple: of lengths; the number of shapes, and so of compilations, is the longest length divided by it.

    Returns:
      Batches [B, n], n a multiple of `multiple`; padding is 0, and False.
    """
    pool_size = pool_batches * batch_size

    # The batches of a pool are asked for one after the other.
    @functools.lru_cache(maxsize=2)
    def pool(number: int) -> list[NumpyBatch]:
        found = [examples[i] for i in range(number * pool_size, (number + 1) * pool_size)]
        found.sort(key=lambda example: len(example["loss_mask"]))
        order = np.random.default_rng((seed, number)).permutation(pool_batches)
        return [padded(found[i * batch_size : (i + 1) * batch_size], batch_size, multiple) for i in order]

    return grain.MapDataset.range(len(examples) // pool_size * pool_batches).map(
        lambda number: pool(number // pool_batches)[number % pool_batches]
    )


def padded(examples: list[NumpyBatch], batch_size: int, multiple: int) -> NumpyBatch:
    """Examples of 1-D arrays as one batch: rows filled up with 0 and False, and rows of these where examples lack."""
    longest = max(len(example["loss_mask"]) for example in examples)
    shape = (batch_size, -(-longest // multiple) * multiple)
    batch = {name: np.zeros(shape, value.dtype) for name, value in examples[0].items()}
    for row, example in enumerate(examples):
        for name, value in example.items():
            batch[name][row, : len(value)] = value
    return batch
