"""Batches of examples of different lengths, each padded to one of a few lengths that its longest example fits."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import grain
import numpy as np

from data import LazyBatch, NumpyBatch
from data.pipelines.endless import POOL_BATCHES, Examples
from data.pipelines.epochs import ENDLESS, keeps_last
from data.pipelines.lengths import fitting
from jaxnlp.text.padding import padded, row_mask

Example = TypeVar("Example")


@dataclasses.dataclass(frozen=True)
class Buckets(Generic[Example]):
    """Batches of examples of similar length.

    Attributes:
      lengths: the values of T, increasing; no example is longer than the last one.
      length: from an example to its length.
      pad: from (examples, B, T) to a batch of B rows; rows without an example are padding.
    """

    lengths: Sequence[int]
    length: Callable[[Example], int]
    pad: Callable[[Sequence[Example], int, int], NumpyBatch]

    def batch(self, examples: Sequence[Example], batch_size: int) -> NumpyBatch:
        """A batch of B rows, with the first length that fits its longest example."""
        return self.pad(examples, batch_size, fitting(max(map(self.length, examples)), self.lengths))

    def lazy_batch(self, examples: Sequence[Example]) -> LazyBatch:
        """A batch of a row for each example, padded when it is read."""
        length = fitting(max(map(self.length, examples)), self.lengths)
        return LazyBatch(len(examples), lambda rows: self.pad([examples[row] for row in rows], len(rows), length))

    def endless(
        self, examples: Examples, batch_size: int, *, seed: int, pool_batches: int = POOL_BATCHES
    ) -> grain.MapDataset:
        """Batches of endless examples.

        The examples of `pool_batches` batches, a pool, are sorted by length and divided into batches in random order. A
        batch is a function of its index, so that a pipeline can start at any batch.

        Args:
          examples: the examples at given indices.
          batch_size: B.
          seed: decides the order of the batches in a pool.
          pool_batches: number of batches in a pool.
        """
        pool_size = pool_batches * batch_size

        @keeps_last  # the batches of a pool are read one after the other
        def pool(index: int) -> list[LazyBatch]:
            pooled = sorted(examples(np.arange(index * pool_size, (index + 1) * pool_size)), key=self.length)
            order = np.random.default_rng((seed, index)).permutation(pool_batches)
            return [self.lazy_batch(pooled[i * batch_size : (i + 1) * batch_size]) for i in order]

        return grain.MapDataset.range(ENDLESS // pool_size * pool_batches).map(
            lambda index: pool(index // pool_batches)[index % pool_batches]
        )

    def of_each_shape(
        self, examples: Sequence[Example], batch_size: int, *, pool_batches: int = POOL_BATCHES
    ) -> list[NumpyBatch]:
        """A batch of each shape that `endless` may make of these examples, shuffled and repeated.

        A batch has an example of its length, at least that of the B-th shortest example of its pool, which has each
        example once, or a few times if there are fewer examples than in a pool.
        """
        shortest = sorted(examples, key=self.length)
        most = 1 + -(-pool_batches * batch_size // len(shortest))  # times that a pool may have an example
        lengths = {fitting(self.length(one), self.lengths) for one in shortest[-(-batch_size // most) - 1 :]}
        return [self.pad(shortest[:1], batch_size, length) for length in sorted(lengths)]

    def one_pass(self, examples: Sequence[Example], batch_size: int) -> tuple[tuple[NumpyBatch, ...], np.ndarray]:
        """The batches of examples, shorter ones first, and the index of the example in each of their rows [N] int."""
        rows = np.argsort(list(map(self.length, examples)), kind="stable")
        starts = range(0, len(rows), batch_size)
        groups = [[examples[index] for index in rows[start : start + batch_size]] for start in starts]
        return tuple(self.batch(group, batch_size) for group in groups), rows


def array_buckets(lengths: Sequence[int]) -> Buckets[NumpyBatch]:
    """The buckets of examples that are dicts of 1-D arrays of equal length [n], including `loss_mask`."""
    return Buckets(lengths, lambda example: len(example["loss_mask"]), padded_batch)


def padded_batch(examples: Sequence[NumpyBatch], batch_size: int, length: int) -> NumpyBatch:
    """A batch [B, T] of examples of 1-D arrays of equal length, padded with 0 and False, and with empty rows."""
    mask = row_mask([example["loss_mask"] for example in examples], batch_size, length)
    return {
        name: padded([example[name] for example in examples], mask, dtype=value.dtype)
        for name, value in examples[0].items()
    }
