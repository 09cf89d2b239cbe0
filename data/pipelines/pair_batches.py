"""Batches of sentences and their translations, with about the same number of tokens each and few shapes."""

import dataclasses
from collections.abc import Callable, Sequence

import grain
import numpy as np

from data import NumpyBatch, Split
from data.pipelines.word_batches import Epochs
from jaxnlp.corpus import SourceRows
from jaxnlp.text.subwords import END, START, UNKNOWN
from jaxnlp.text.translation import SentencePair, TranslationProcessor

Ids = tuple[list[int], list[int]]
"""The ids of a source and of its target, each with the end symbol last."""
MOST_UNKNOWN = 0.01
"""The share of unknown tokens above which it is reported."""


@dataclasses.dataclass(frozen=True)
class Shapes:
    """The shapes of batches: the sources and targets of a batch have the same length T.

    Attributes:
      lengths: the values of T, increasing.
      tokens: maximum B * T, unless one row is longer.
      most_rows: maximum B; None = only `tokens` limits B.
    """

    lengths: tuple[int, ...]
    tokens: int
    most_rows: int | None = None

    def rows(self, bucket: int) -> int:
        """B of the batches of a bucket."""
        rows = max(1, self.tokens // self.lengths[bucket])
        return rows if self.most_rows is None else min(rows, self.most_rows)

    def groups(self, pairs: Sequence[Ids], order: Sequence[int]) -> list[tuple[int, list[int]]]:
        """Puts each pair into one batch. Returns: for each batch, its bucket and the numbers of its pairs.

        Pairs that do not fill a batch move to the next length, so only the last batch may not be full.

        Args:
          pairs: pairs of at most the last length.
          order: the numbers of the pairs; pairs of the same bucket stay in this order.
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
        """A batch of a bucket; rows without a pair are zeros.

        Returns:
          `source` [B, T] int32 and `source_mask` [B, T] bool; `inputs` [B, T] int32, the start symbol first; `targets`
          [B, T] int32, the end symbol last; `loss_mask` [B, T] bool, True at targets.
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
    """The number of tokens in the longer of source and target."""
    return max(map(len, pair))


def endless_batches(epoch: Callable[[int], Sequence[Ids]], shapes: Shapes, *, seed: int) -> grain.IterDataset:
    """Endless epochs of batches, each in another random order.

    Args:
      epoch: a pure function from the number of an epoch, from 0, to its pairs.
      shapes: the shapes of the batches.
      seed: decides the order.

    Returns:
      Batches as `Shapes.batch` makes them. The iterator's state is the epoch and the next batch in it.
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
    """The ids of a pair; the target of a pair without a reference has only the end symbol."""
    reference = pair.reference
    return (
        processor.encode_source(pair.source, dropout=dropout, seed=seed),
        [END] if reference is None else processor.encode_target(reference, dropout=dropout, seed=seed),
    )


def pairs_split(
    pairs: Sequence[SentencePair],
    processor: TranslationProcessor,
    shapes: Shapes,
    *,
    file: str = "",
    source: SourceRows | None = None,
) -> Split[SentencePair]:
    """One pass over pairs, shorter ones first. Pairs longer than the batches are truncated, and a note counts them.

    Args:
      pairs: the pairs.
      processor: their tokenizers.
      shapes: the shapes of the batches.
      file: name of the file with the pairs, for the note; "" = no name.
      source: all rows of this file; None = each is a pair.
    """
    longest = shapes.lengths[-1]
    found = [encoded(pair, processor) for pair in pairs]
    notes = []
    if truncated := [number for number, ids in enumerate(found) if longer_side(ids) > longest]:
        were = "pair was" if len(truncated) == 1 else "pairs were"
        line = pairs[truncated[0]].line or truncated[0] + 1
        where = f"line {line:,} of {file}" if file else f"line {line:,}"
        notes.append(f"{len(truncated):,} {were} truncated to {longest} tokens per side, the first in {where}")
    found = [(_truncated(source, longest), _truncated(target, longest)) for source, target in found]
    groups = shapes.groups(found, range(len(found)))
    return Split(
        tuple(shapes.batch(bucket, [found[member] for member in members]) for bucket, members in groups),
        examples=tuple(pairs),
        rows=np.array([member for _, members in groups for member in members], int),
        scored=all(pair.reference is not None for pair in pairs),
        notes=tuple(notes),
        source=source,
    )


def vocabulary_note(processor: TranslationProcessor, pairs: Sequence[Ids], *, saved: bool) -> str:
    """The part of a description with the size of the vocabularies, and the share of unknown tokens if above 1%.

    Args:
      processor: the tokenizers.
      pairs: the training pairs.
      saved: whether the processor was made earlier, so that the options of a vocabulary are not read.
    """
    note = f"{processor.source.size:,} tokens in the vocabulary"
    if not processor.shared:
        note = f"{processor.source.size:,} and {processor.target.size:,} tokens in the vocabularies"
    if saved:
        note += " saved by an earlier run or start, so data.vocabulary_size and similar options are not read"
    sides = [side for pair in pairs for side in pair]
    unknown = sum(side.count(UNKNOWN) for side in sides) / sum(map(len, sides))
    return f"{note}; {unknown:.0%} of the training tokens are unknown" if unknown > MOST_UNKNOWN else note


def _truncated(ids: list[int], length: int) -> list[int]:
    return ids if len(ids) <= length else [*ids[: length - 1], END]
