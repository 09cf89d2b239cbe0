"""Batches of sentences and their translations, with about the same number of tokens each and few shapes."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from data import DataError, NumpyBatch, Split, errors_as
from data.pipelines.buckets import Buckets, Size
from jaxnlp.corpus import SourceRows
from jaxnlp.text.bpe_dropout import BPEDropout
from jaxnlp.text.padding import padded, row_mask
from jaxnlp.text.subword_training import train_subwords
from jaxnlp.text.subwords import START, Subwords
from jaxnlp.text.translation import SentencePair, TranslationProcessor

Ids = tuple[Sequence[int] | np.ndarray, Sequence[int] | np.ndarray]
"""The ids of a source and of its target, each with the end symbol last."""
MOST_UNKNOWN = 0.01
"""The share of unknown tokens is reported above this."""


def pair_batch(pairs: Sequence[Ids], size: int, length: int, *, start: int = START) -> NumpyBatch:
    """A batch of B rows; rows without a pair are zeros.

    Returns:
      `source` [B, T] int32 and `source_mask` [B, T] bool; `inputs` [B, T] int32, the start symbol first; `targets`
      [B, T] int32, the end symbol last; `loss_mask` [B, T] bool, True at targets.
    """
    sources, written = [source for source, _ in pairs], [target for _, target in pairs]
    source_mask, loss_mask = row_mask(sources, size, length), row_mask(written, size, length)
    source, targets = padded(sources, source_mask), padded(written, loss_mask)
    inputs = np.where(loss_mask, np.roll(targets, 1, axis=1), 0)
    inputs[loss_mask[:, 0], 0] = start
    batch = {"source": source, "inputs": inputs, "targets": targets}
    return batch | {"source_mask": source_mask, "loss_mask": loss_mask}


def longer_side(pair: Ids) -> int:
    """The number of tokens in the longer of source and target."""
    source, target = pair
    return max(len(source), len(target))


def pair_buckets(lengths: Sequence[int], *, start: int = START) -> Buckets[Ids]:
    """Batches of pairs, with these lengths. Args: start: id of the start symbol of a target."""
    return Buckets(lengths, longer_side, functools.partial(pair_batch, start=start))


def padding_share(pairs: Sequence[Ids], buckets: Buckets[Ids], size: Size) -> float:
    """The share of padding in the batches of an epoch."""
    cells = sum(2 * rows * length for rows, length, _ in buckets.groups(pairs, size))
    return 1.0 - sum(len(source) + len(target) for source, target in pairs) / cells


def encoded(pair: SentencePair, processor: TranslationProcessor) -> Ids:
    """The ids of a pair; the target of a pair without a reference has only the end symbol."""
    written = [processor.target.end] if pair.reference is None else processor.encode_target(pair.reference)
    return processor.encode_source(pair.source), written


def dropped_out(
    pairs: Sequence[SentencePair], processor: TranslationProcessor, rate: float
) -> Callable[[np.random.Generator], list[Ids]]:
    """A function that draws the ids of pairs with BPE dropout. Args: rate: the probability of leaving out a merge."""
    source, target = processor.source, processor.target
    assert isinstance(source, Subwords)
    assert isinstance(target, Subwords)
    read = BPEDropout(source, [pair.source for pair in pairs], rate)
    written = BPEDropout(target, [str(pair.reference) for pair in pairs], rate)

    def draw(generator: np.random.Generator) -> list[Ids]:
        return [*zip(read(generator), written(generator), strict=True)]

    return draw


def pairs_split(
    pairs: Sequence[SentencePair],
    ids: Sequence[Ids],
    buckets: Buckets[Ids],
    size: Size,
    *,
    file: str = "",
    source: SourceRows | None = None,
) -> Split[SentencePair]:
    """One pass over pairs, shorter ones first. A note counts pairs that are truncated to the batches.

    Args:
      pairs: the pairs.
      ids: of each pair.
      buckets: the batches.
      size: B.
      file: name of the pairs' file, for the note; "" = none.
      source: all rows of this file; None = each is a pair.
    """
    longest = buckets.lengths[-1]
    notes = []
    if truncated := [index for index, pair in enumerate(ids) if longer_side(pair) > longest]:
        were = "pair was" if len(truncated) == 1 else "pairs were"
        line = pairs[truncated[0]].line or truncated[0] + 1
        where = f"line {line:,} of {file}" if file else f"line {line:,}"
        notes.append(f"{len(truncated):,} {were} truncated to {longest} tokens per side, the first in {where}")
    ids = [(_truncated(source, longest), _truncated(target, longest)) for source, target in ids]
    batches, rows = buckets.one_pass(ids, size)
    return Split(
        batches,
        examples=tuple(pairs),
        rows=rows,
        scored=all(pair.reference is not None for pair in pairs),
        notes=tuple(notes),
        source=source,
    )


def trained_subwords(data: Any, texts: Sequence[str], extra: int) -> Subwords:
    """Subwords trained on texts, with extra symbols. Args: data: the config. Raises: DataError for too few tokens."""
    with errors_as(DataError, f"data.vocabulary_size {data.vocabulary_size}"):
        return train_subwords(texts, data.subwords, data.vocabulary_size, minimum_count=data.minimum_count, extra=extra)


def vocabulary_note(processor: TranslationProcessor, pairs: Sequence[Ids], *, saved: bool) -> str:
    """The part of a description with the size of the vocabularies, and the share of unknown tokens if above 1%.

    Args:
      processor: the tokenizers.
      pairs: the training pairs.
      saved: whether the processor was made earlier, so that options of a vocabulary are unused.
    """
    note = f"{processor.source.size:,} tokens in the vocabulary"
    if not processor.shared:
        note = f"{processor.source.size:,} and {processor.target.size:,} tokens in the vocabularies"
    if saved:
        note += " from pretrained weights, an earlier run or an earlier start"
        note += ", so data.vocabulary_size and similar options are not read"
    source, target = processor.source.unknown, processor.target.unknown
    count = sum([*read].count(source) + [*written].count(target) for read, written in pairs)
    unknown = count / sum(len(read) + len(written) for read, written in pairs)
    return f"{note}; {unknown:.0%} of the training tokens are unknown" if unknown > MOST_UNKNOWN else note


def _truncated(ids: Sequence[int] | np.ndarray, length: int) -> Sequence[int] | np.ndarray:
    return ids if len(ids) <= length else [*ids[: length - 1], ids[-1]]
