"""Batches of labelled texts, or of pairs of texts."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from data import NumpyBatch, Split
from data.pipelines.buckets import Buckets
from jaxnlp.targets import OneClass, of_part
from jaxnlp.text.classifier_processor import LabelledText, TextClassifierProcessor
from jaxnlp.text.encoder_vocabulary import EncoderVocabulary


class Tokenized(NamedTuple):
    """A tokenized example: its tokens and segments [T], the length of a batch that it needs, and its label."""

    tokens: np.ndarray
    segments: np.ndarray
    length: int
    label: Any


def tokenized(processor: TextClassifierProcessor, rows: Sequence[LabelledText]) -> tuple[list[Tokenized], int]:
    """Tokenizes examples; also returns the number of truncated examples."""
    encoded = processor.tokenize([row.texts for row in rows])
    lengths, labels = map(processor.length, encoded.segments), [row.label for row in rows]
    examples = zip(encoded.tokens, encoded.segments, lengths, labels, strict=True)
    return [Tokenized(*fields) for fields in examples], encoded.truncated


def unknown_shares(splits: Mapping[str, Split], vocabulary: EncoderVocabulary) -> dict[str, float]:
    """The share of unknown tokens in each split."""
    unknown, padding = map(vocabulary.id_of, (vocabulary.special.unk, vocabulary.special.pad))
    shares = {}
    for name, split in splits.items():
        masks = [batch["attention_mask"] & (batch["tokens"] != padding) for batch in split.batches]
        missing = sum(
            int(((batch["tokens"] == unknown) & mask).sum()) for batch, mask in zip(split.batches, masks, strict=True)
        )
        shares[name] = missing / max(1, sum(int(mask.sum()) for mask in masks))
    return shares


def _padded(processor: TextClassifierProcessor, examples: Sequence[Tokenized], size: int, length: int) -> NumpyBatch:
    batch = processor.batch([example.tokens for example in examples], [e.segments for e in examples], size, length)
    if examples[0].label is None:
        return batch
    labels = processor.targets.array([example.label for example in examples])
    return batch | {
        of_part(processor.name, "labels"): np.pad(labels, [(0, size - len(examples)), *[(0, 0)] * (labels.ndim - 1)])
    }


def table_buckets(lengths: Sequence[int], processor: TextClassifierProcessor) -> Buckets[Tokenized]:
    """Batches of examples of one part, with these lengths."""
    return Buckets(lengths, lambda example: example.length, functools.partial(_padded, processor))


def undersampled(rows: list[LabelledText], targets: OneClass, seed: int) -> list[LabelledText]:
    """As many random rows of each class as the rarest class has, in their order."""
    labels, generator = [row.label for row in rows], np.random.default_rng(seed)
    fewest = int(targets.counts(labels).min())
    members = [np.flatnonzero(np.array(labels) == label) for label in range(len(targets.names))]
    chosen = np.concatenate([generator.choice(indices, fewest, replace=False) for indices in members])
    return [rows[index] for index in np.sort(chosen)]


def oversampled(examples: list[Tokenized], targets: OneClass) -> list[Tokenized]:
    """Repeats examples of rarer classes until all classes are as frequent as the most frequent one."""
    most = int(targets.counts([example.label for example in examples]).max())
    repeated = []
    for label in range(len(targets.names)):
        members = [example for example in examples if example.label == label]
        repeated += [members[index % len(members)] for index in range(most)]
    return repeated


def table_split(
    rows: Sequence[LabelledText],
    read: tuple[Sequence[Tokenized], int],
    processor: TextClassifierProcessor,
    buckets: Buckets[Tokenized],
    batch_size: int,
) -> Split[LabelledText]:
    """One pass over rows of one part, sorted by length; a note counts truncated ones. Args: read: see `tokenized`."""
    examples, truncated = read
    batches, rows_of_batches = buckets.one_pass(examples, batch_size)
    note = f"{processor.counted} truncated to {processor.max_length} tokens: {truncated:,}"
    return Split(
        batches,
        examples=tuple(rows),
        rows=rows_of_batches,
        scored=all(row.label is not None for row in rows),
        notes=(note,) if truncated else (),
    )


def split_of_parts(parts: Mapping[str, Split[LabelledText]]) -> Split:
    """A split of named parts, with the batches of all scored parts; notes name their part."""
    scored = tuple(batch for part in parts.values() if part.scored for batch in part.batches)
    notes = tuple(f"{name}: {note}" for name, part in parts.items() for note in part.notes)
    return Split(scored, scored=any(part.scored for part in parts.values()), parts=parts, notes=notes)
