"""Batches of sentences and their translations: of about the same number of tokens, in a few shapes."""

import dataclasses
from collections.abc import Callable, Sequence

import grain
import numpy as np

from data import NumpyBatch, Split
from data.word_batches import Epochs
from jaxnlp.text.subwords import END, START
from jaxnlp.text.translation import SentencePair, TranslationProcessor

Ids = tuple[list[int], list[int]]
"""A source and its target, each with the end symbol last."""


@dataclasses.dataclass(frozen=True)
class Shapes:
    """The shapes of batches: sources and targets of a batch have the same length T.

    Attributes:
      lengths: the lengths there are, increasing.
      tokens: maximum B * T, unless a single row is longer.
      most_rows: maximum B; None = only `tokens` limits it.
    """

    lengths: tuple[int, ...]
    tokens: int
    most_rows: int | None = None

    def rows(self, bucket: int) -> int:
        """B of batches of the bucket's length."""
        rows = max(1, self.tokens // self.lengths[bucket])
        return rows if self.most_rows is None else min(rows, self.most_rows)

    def groups(self, pairs: Sequence[Ids], order: Sequence[int]) -> list[tuple[int, list[int]]]:
        """Pairs in batches, each once: the bucket of each batch, and the numbers of its pairs.

        What does not fill a batch goes to batches of the next length; only the last batch may not be full.

        Args:
          pairs: of at most the last length.
          order: numbers of pairs; those of a bucket keep it.
        """
        buckets: list[list[int]] = [[] for _ in self.lengths]
        for number in order:
            buckets[int(np.searchsorted(self.lengths, longer_side(pairs[number])))].append(number)
        found: list[tuple[int, list[int]]] = []
        rest: list[int] = []
        last = max((bucket for bucket, members in enumerate(buckets) if members), default=0)
        for bucket, members in enumerate(buckets[: last + 1]):
            rest, rows = rest + members, self.rows(bucket)
            whole = len(rest) // rows * rows
            found += [(bucket, rest[start : start + rows]) for start in range(0, whole, rows)]
            rest = rest[whole:]
        return [*found, (last, rest)] if rest else found

    def batch(self, bucket: int, pairs: Sequence[Ids]) -> NumpyBatch:
        """A batch of the bucket's length; rows without a pair are zeros.

        Returns:
          `source` [B, T] int32 and `source_mask` [B, T] bool; `inputs` [B, T] int32, the start symbol first; `targets`
          [B, T] int32, the end symbol last; `loss_mask` [B, T] bool, True for targets.
        """
        shape = (self.rows(bucket), self.lengths[bucket])
        batch = {name: np.zeros(shape, np.int32) for name in ("source", "inputs", "targets")}
        batch |= {name: np.zeros(shape, bool) for name in ("source_mask", "loss_mask")}
        for row, (source, target) in enumerate(pairs):
            batch["source"][row, : len(source)] = source
            batch["source_mask"][row, : len(source)] = True
            batch["inputs"][row, : len(target)] = [START, *target[:-1]]
            batch["targets"][row, : len(target)] = target
            batch["loss_mask"][row, : len(target)] = True
        return batch

    def padding(self, pairs: Sequence[Ids]) -> float:
        """The share of padding in the batches of an epoch."""
        cells = sum(2 * self.rows(bucket) * self.lengths[bucket] for bucket, _ in self.groups(pairs, range(len(pairs))))
        return 1.0 - sum(len(source) + len(target) for source, target in pairs) / cells


def longer_side(pair: Ids) -> int:
    """The number of tokens in the longer one of source and target."""
    return max(map(len, pair))


def endless_batches(epoch: Callable[[int], Sequence[Ids]], shapes: Shapes, *, seed: int) -> grain.IterDataset:
    """Batches of all pairs in a random order, then again in another, without end.

    Args:
      epoch: the pairs of an epoch, by its number from 0: a pure function.
      shapes: of the batches.
      seed: decides the order.

    Returns:
      Batches as those of `Shapes.batch`. The iterator's state is the epoch and the next batch in it.
    """

    def batches(number: int) -> Sequence[NumpyBatch]:
        generator = np.random.default_rng((seed, number))
        pairs = epoch(number)
        groups = shapes.groups(pairs, generator.permutation(len(pairs)).tolist())
        order = generator.permutation(len(groups))

        def batch(place: int) -> NumpyBatch:
            bucket, members = groups[order[place]]
            return shapes.batch(bucket, [pairs[member] for member in members])

        return grain.MapDataset.range(len(groups)).map(batch)

    return Epochs(batches)


def encoded(pair: SentencePair, processor: TranslationProcessor, *, dropout: float = 0.0, seed: int = 0) -> Ids:
    """A pair as ids; a reference that is not known as the end symbol alone."""
    reference = pair.reference
    return (
        processor.encode_source(pair.source, dropout=dropout, seed=seed),
        [END] if reference is None else processor.encode_target(reference, dropout=dropout, seed=seed),
    )


def pairs_split(pairs: Sequence[SentencePair], processor: TranslationProcessor, shapes: Shapes) -> Split[SentencePair]:
    """One pass over pairs, shorter ones first. Longer ones than the batches are truncated, and a note counts them."""
    longest = shapes.lengths[-1]
    found = [encoded(pair, processor) for pair in pairs]
    truncated = sum(longer_side(ids) > longest for ids in found)
    found = [(_truncated(source, longest), _truncated(target, longest)) for source, target in found]
    groups = shapes.groups(found, range(len(found)))
    were = "pair was" if truncated == 1 else "pairs were"
    return Split(
        tuple(shapes.batch(bucket, [found[member] for member in members]) for bucket, members in groups),
        examples=tuple(pairs),
        rows=np.array([member for _, members in groups for member in members], int),
        scored=all(pair.reference is not None for pair in pairs),
        notes=(f"{truncated:,} {were} truncated to {longest} tokens a side",) if truncated else (),
    )


def _truncated(ids: list[int], length: int) -> list[int]:
    return ids if len(ids) <= length else [*ids[: length - 1], END]
