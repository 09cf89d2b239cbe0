"""Batches of a few shapes, with about the same number of tokens each."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import TypeVar

import grain
import numpy as np

from data import NumpyBatch
from data.pipelines.lengths import few_lengths
from data.pipelines.word_batches import Epochs

Example = TypeVar("Example")


@dataclasses.dataclass(frozen=True)
class Shapes:
    """The shapes of batches. Each example is in the bucket of the smallest T that is at least its length.

    Attributes:
      lengths: the values of T, increasing; no example is longer than the last one.
      tokens: maximum B * T, unless one row is longer.
      most_rows: maximum B; None = only `tokens` limits B.
      few: whether a few other lengths up to the last one are chosen from the data, see `few_lengths`.
    """

    lengths: tuple[int, ...]
    tokens: int
    most_rows: int | None = None
    few: bool | None = False

    def fitted(self, lengths: Sequence[int]) -> "Shapes":
        """The shapes for examples of these lengths."""
        if not self.few or not len(lengths):
            return self
        return dataclasses.replace(self, lengths=few_lengths(lengths, self.lengths[-1]), few=False)

    def rows(self, bucket: int) -> int:
        """B of the batches of a bucket."""
        rows = max(1, self.tokens // self.lengths[bucket])
        return rows if self.most_rows is None else min(rows, self.most_rows)

    def groups(self, lengths: Sequence[int], order: Sequence[int]) -> list[tuple[int, list[int]]]:
        """Puts each example into one batch. Returns: for each batch, its bucket and the indices of its examples.

        Examples that do not fill a batch move to the next bucket, so only the last batch may not be full.

        Args:
          lengths: of the examples.
          order: the indices of the examples; those of the same bucket stay in this order.
        """
        buckets: list[list[int]] = [[] for _ in self.lengths]
        for index in order:
            buckets[int(np.searchsorted(self.lengths, lengths[index]))].append(index)
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
        lengths = list(map(length, examples))
        shapes = self.fitted(lengths)
        groups = shapes.groups(lengths, range(len(examples)))
        batches = tuple(
            batch([examples[index] for index in members], shapes.rows(bucket), shapes.lengths[bucket])
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
          length: as for `one_pass`.
          batch: as for `one_pass`.
          seed: decides the order.
        """

        @functools.cache
        def fitted() -> Shapes:
            return self.fitted(list(map(length, epoch(0)))) if self.few else self

        def batches(number: int) -> Sequence[NumpyBatch]:
            generator = np.random.default_rng((seed, number))
            examples, shapes = epoch(number), fitted()
            groups = shapes.groups(list(map(length, examples)), generator.permutation(len(examples)).tolist())
            order = generator.permutation(len(groups))

            def made(index: int) -> NumpyBatch:
                bucket, members = groups[order[index]]
                return batch([examples[member] for member in members], shapes.rows(bucket), shapes.lengths[bucket])

            return grain.MapDataset.range(len(groups)).map(made)

        def of_each_shape() -> list[NumpyBatch]:
            examples, shapes = epoch(0), fitted()
            groups = dict(shapes.groups(list(map(length, examples)), range(len(examples))))
            return [
                batch([examples[member] for member in members], shapes.rows(bucket), shapes.lengths[bucket])
                for bucket, members in groups.items()
            ]

        return Epochs(batches, of_each_shape)
