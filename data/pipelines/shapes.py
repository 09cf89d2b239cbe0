"""Batches of a few shapes, with about the same number of tokens each."""

import bisect
import dataclasses
from collections.abc import Callable, Sequence
from typing import TypeVar

import grain
import numpy as np

from data import LazyBatch, NumpyBatch
from data.pipelines.epochs import Epochs
from data.pipelines.lengths import MOST_LENGTHS, few_lengths
from data.pipelines.stored_rows import StoredRows

Example = TypeVar("Example")


@dataclasses.dataclass(frozen=True)
class Shapes:
    """The shapes of batches. Each example is in the bucket of the smallest T that fits it.

    Attributes:
      lengths: the values of T, increasing; no example is longer than the last one.
      tokens: maximum B * T, unless one row is longer.
      most_rows: maximum B; None = only `tokens` limits B.
    """

    lengths: tuple[int, ...]
    tokens: int
    most_rows: int | None = None

    def up_to(self, longest: int) -> "Shapes":
        """The shapes up to the first length that fits this one."""
        return dataclasses.replace(self, lengths=self.lengths[: bisect.bisect_left(self.lengths, longest) + 1])

    def fitted(self, lengths: Sequence[int]) -> "Shapes":
        """The shapes with few lengths up to the last one: existing ones, or chosen for training examples of these
        lengths."""
        if len(self.lengths) <= MOST_LENGTHS:
            return self
        return dataclasses.replace(self, lengths=few_lengths(lengths, self.lengths[-1]))

    def rows(self, bucket: int) -> int:
        """B of the batches of a bucket."""
        rows = max(1, self.tokens // self.lengths[bucket])
        return rows if self.most_rows is None else min(rows, self.most_rows)

    def groups(self, lengths: Sequence[int], order: Sequence[int]) -> list[tuple[int, list[int]]]:
        """Puts each example into one batch. Returns: for each batch, its bucket and the indices of its examples.

        Examples that do not fill a batch move to the next bucket, so only the last batch may be partial.

        Args:
          lengths: of the examples.
          order: the indices of the examples, kept within a bucket.
        """
        buckets: list[list[int]] = [[] for _ in self.lengths]
        bucket_of = np.searchsorted(self.lengths, lengths).tolist()
        for index in order:
            buckets[bucket_of[index]].append(index)
        groups: list[tuple[int, list[int]]] = []
        rest: list[int] = []
        last = max((bucket for bucket, members in enumerate(buckets) if members), default=0)
        for bucket, members in enumerate(buckets[: last + 1]):
            rest, rows = rest + members, self.rows(bucket)
            whole = len(rest) // rows * rows
            groups += [(bucket, rest[start : start + rows]) for start in range(0, whole, rows)]
            rest = rest[whole:]
        return [*groups, (last, rest)] if rest else groups

    def one_pass(
        self,
        examples: Sequence[Example],
        length: Callable[[Example], int],
        batch: Callable[[list[Example], int, int], NumpyBatch],
    ) -> tuple[tuple[NumpyBatch, ...], np.ndarray]:
        """The batches of examples, shorter ones first, and the index of the example in each of their rows [N] int.

        Args:
          examples: N examples.
          length: from an example to its length.
          batch: from (examples, B, T) to a batch; rows without an example are padding.
        """
        groups = self.groups(list(map(length, examples)), range(len(examples)))
        batches = tuple(
            batch([examples[index] for index in members], self.rows(bucket), self.lengths[bucket])
            for bucket, members in groups
        )
        return batches, np.array([index for _, members in groups for index in members], int)

    def epochs(
        self,
        epoch: Callable[[int], Sequence[Example]],
        length: Callable[[Example], int],
        batch: Callable[[list[Example], int, int], NumpyBatch],
        *,
        seed: int,
    ) -> Epochs:
        """Endless epochs of batches, each in another random order.

        Args:
          epoch: a pure function from the index of an epoch to its examples.
          length, batch: as for `one_pass`.
          seed: decides the order.
        """

        def batches(number: int) -> Sequence[LazyBatch]:
            generator, examples = np.random.default_rng((seed, number)), epoch(number)
            groups = self.groups(list(map(length, examples)), generator.permutation(len(examples)).tolist())
            order = generator.permutation(len(groups))

            def made(index: int) -> LazyBatch:
                bucket, members = groups[order[index]]

                def rows(chosen: np.ndarray) -> NumpyBatch:
                    found = [examples[members[row]] for row in chosen if row < len(members)]
                    return batch(found, len(chosen), self.lengths[bucket])

                return LazyBatch(self.rows(bucket), rows)

            return grain.MapDataset.range(len(groups)).map(made)

        return Epochs(batches)

    def epochs_of_same(
        self,
        examples: Sequence[Example],
        length: Callable[[Example], int],
        batch: Callable[[list[Example], int, int], NumpyBatch],
        *,
        seed: int,
    ) -> Epochs:
        """As `epochs`, of the same examples each, with rows made once. Args: batch: also as for `StoredRows`."""
        lengths = list(map(length, examples))
        rows = StoredRows(batch, examples, lengths)
        return self.epochs(lambda _: range(len(lengths)), lengths.__getitem__, rows.batch, seed=seed)

    def of_each_shape(
        self,
        batch: Callable[[list[Example], int, int], NumpyBatch],
        lengths: Sequence[int] | None = None,
    ) -> list[NumpyBatch]:
        """A batch of padding of each shape that `epochs` makes.

        Args:
          batch: as for `one_pass`; it also takes no examples.
          lengths: of the examples, if all epochs have the same; None = each epoch has others.
        """
        buckets = (
            range(len(self.lengths)) if lengths is None else {b for b, _ in self.groups(lengths, range(len(lengths)))}
        )
        return [batch([], self.rows(bucket), self.lengths[bucket]) for bucket in sorted(buckets)]
