"""Batches of examples of different lengths, each padded to one of a few lengths that its longest example fits."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import grain
import numpy as np

from data import LazyBatch, NumpyBatch
from data.pipelines.endless import POOL_BATCHES, Examples
from data.pipelines.epochs import ENDLESS, Epochs, keeps_last
from data.pipelines.lengths import fitting
from data.pipelines.stored_rows import StoredRows
from jaxnlp.text.padding import padded, row_mask

Example = TypeVar("Example")
Size = int | Callable[[int], int]
"""B of all batches; or a function from T to B."""


def rows_of(tokens: int, most: int | None = None) -> Callable[[int], int]:
    """A function from T to B, so that all batches have about the same number of tokens.

    Args:
      tokens: maximum B * T, unless one row is longer.
      most: maximum B; None = only `tokens` limits B.
    """
    return lambda length: min(max(1, tokens // length), most or tokens)


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

        def lazy(batch: Sequence[Example]) -> LazyBatch:
            length = fitting(max(map(self.length, batch)), self.lengths)
            return LazyBatch(len(batch), lambda rows: self.pad([batch[row] for row in rows], len(rows), length))

        @keeps_last  # the batches of a pool are read one after the other
        def pool(index: int) -> list[LazyBatch]:
            pooled = sorted(examples(np.arange(index * pool_size, (index + 1) * pool_size)), key=self.length)
            order = np.random.default_rng((seed, index)).permutation(pool_batches)
            return [lazy(pooled[i * batch_size : (i + 1) * batch_size]) for i in order]

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

    def groups(
        self, examples: Sequence[Example], size: Size, order: Sequence[int] | None = None
    ) -> list[tuple[int, int, list[int]]]:
        """Puts each example into one batch. Returns: for each batch, B, T and the indices of its examples.

        Each example is in the bucket of the smallest T that fits it. Examples that do not fill a batch move to the next
        bucket, so only the last batch may be partial.

        Args:
          examples: the examples.
          size: B.
          order: the indices of the examples, kept within a bucket; None = shorter ones first.
        """
        lengths = list(map(self.length, examples))
        buckets: list[list[int]] = [[] for _ in self.lengths]
        bucket_of = np.searchsorted(self.lengths, lengths).tolist()
        for index in np.argsort(lengths, kind="stable").tolist() if order is None else order:
            buckets[bucket_of[index]].append(index)
        groups, rest = list[tuple[int, int, list[int]]](), list[int]()
        last = max(bucket_of, default=0)
        for length, members in zip(self.lengths[: last + 1], buckets, strict=False):
            rest, rows = rest + members, _rows(size, length)
            whole = len(rest) // rows * rows
            groups += [(rows, length, rest[start : start + rows]) for start in range(0, whole, rows)]
            rest = rest[whole:]
        return [*groups, (rows, length, rest)] if rest else groups

    def one_pass(self, examples: Sequence[Example], size: Size) -> tuple[tuple[NumpyBatch, ...], np.ndarray]:
        """The batches of examples, shorter ones first, and the index of the example in each of their rows [N] int."""
        groups = self.groups(examples, size)
        batches = (self.pad([examples[index] for index in members], rows, length) for rows, length, members in groups)
        return tuple(batches), np.array([index for *_, members in groups for index in members], int)

    def epochs(self, epoch: Callable[[int], Sequence[Example]], size: Size, *, seed: int) -> Epochs:
        """Endless epochs of batches, each in another random order.

        Args:
          epoch: a pure function from the index of an epoch to its examples.
          size: B.
          seed: decides the order.
        """

        def batches(number: int) -> Sequence[LazyBatch]:
            generator, examples = np.random.default_rng((seed, number)), epoch(number)
            groups = self.groups(examples, size, generator.permutation(len(examples)).tolist())
            order = generator.permutation(len(groups))

            def made(index: int) -> LazyBatch:
                rows, length, members = groups[order[index]]

                def pad(chosen: np.ndarray) -> NumpyBatch:
                    present = [examples[members[row]] for row in chosen if row < len(members)]
                    return self.pad(present, len(chosen), length)

                return LazyBatch(rows, pad)

            return grain.MapDataset.range(len(groups)).map(made)

        return Epochs(batches)

    def epochs_of_same(self, examples: Sequence[Example], size: Size, *, seed: int) -> Epochs:
        """As `epochs`, of the same examples each, with rows made once; `pad` must be as for `StoredRows`."""
        lengths = list(map(self.length, examples))
        rows = StoredRows(self.pad, examples, lengths)
        stored = Buckets(self.lengths, lengths.__getitem__, rows.batch)
        return stored.epochs(lambda _: range(len(lengths)), size, seed=seed)

    def of_each_length(self, size: Size, examples: Sequence[Example] | None = None) -> list[NumpyBatch]:
        """A batch of padding of each T, or of each T that `epochs_of_same` makes of examples; `pad` also takes no
        examples."""
        lengths = self.lengths if examples is None else sorted({length for _, length, _ in self.groups(examples, size)})
        return [self.pad([], _rows(size, length), length) for length in lengths]


def _rows(size: Size, length: int) -> int:
    return size if isinstance(size, int) else size(length)


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
