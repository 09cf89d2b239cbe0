"""Batches of labelled texts, or pairs of texts, of one part and of similar length."""

import dataclasses
import functools
from collections.abc import Sequence

import grain
import numpy as np

from data import NumpyBatch, Split
from data.pipelines.buckets import bucketed, rounded_up
from jaxnlp.text.labels import TextExample
from jaxnlp.text.wordpiece import WordPieceVocabulary, padded_texts

ENDLESS = 2**40
"""Number of examples or batches that is effectively infinite."""


@dataclasses.dataclass(frozen=True, eq=False)
class TokenizedText:
    """An example of a part: its texts as tokens, and its label, 0 if it is not known."""

    part: str
    texts: tuple[np.ndarray, ...]
    label: float

    @property
    def length(self) -> int:
        """Number of tokens of its longer text."""
        return max(map(len, self.texts))


def tokenized(
    rows: Sequence[TextExample], part: str, vocabulary: WordPieceVocabulary, max_length: int
) -> tuple[list[TokenizedText], int]:
    """Tokenizes examples; also returns the number of truncated texts."""
    found = vocabulary.tokenize([row.text for row in rows], max_length=max_length)
    texts: list[tuple[np.ndarray, ...]] = [(tokens,) for tokens in found.tokens]
    truncated = found.truncated
    if rows and rows[0].pair is not None:
        seconds = vocabulary.tokenize([str(row.pair) for row in rows], max_length=max_length)
        texts = [(*first, second) for first, second in zip(texts, seconds.tokens, strict=True)]
        truncated += seconds.truncated
    labels = [0.0 if row.label is None else row.label for row in rows]
    return [TokenizedText(part, *pair) for pair in zip(texts, labels, strict=True)], truncated


def padded_batch(examples: list[TokenizedText], batch_size: int, multiple: int, *, max_length: int) -> NumpyBatch:
    """Examples of one part as a batch.

    Returns:
      `tokens` [B, S, T] int32, `attention_mask` [B, S, T] bool, `loss_mask` [B] bool, and the labels [B] float32 under
      the part's name; T is a multiple of `multiple`, or the maximum length.
    """
    length = min(rounded_up(max(example.length for example in examples), multiple), max_length)
    tokens, mask = padded_texts([example.texts for example in examples], batch_size, length)
    labels = np.zeros(batch_size, np.float32)
    labels[: len(examples)] = [example.label for example in examples]
    loss_mask = np.arange(batch_size) < len(examples)
    return {"tokens": tokens, "attention_mask": mask, "loss_mask": loss_mask, examples[0].part: labels}


def training_batches(
    examples: list[TokenizedText],
    batch_size: int,
    *,
    order_seed: int,
    pool_seed: int,
    multiple: int,
    max_length: int,
) -> grain.MapDataset:
    """Endless batches of examples of one part, shuffled in each epoch.

    Args:
      examples: at least B.
      batch_size: B.
      order_seed: decides the order of the examples.
      pool_seed: decides the order of the batches in a pool; see `data.pipelines.buckets`.
      multiple: of the length of batches.
      max_length: maximum length of texts in tokens.
    """
    order = grain.MapDataset.source(examples).seed(order_seed).shuffle().repeat(ENDLESS // len(examples))
    return bucketed(
        order,
        batch_size,
        seed=pool_seed,
        multiple=multiple,
        length=lambda example: example.length,
        pad=functools.partial(padded_batch, max_length=max_length),
    )


def labelled_split(
    rows: Sequence[TextExample],
    part: str,
    vocabulary: WordPieceVocabulary,
    *,
    batch_size: int,
    multiple: int,
    max_length: int,
) -> Split[TextExample]:
    """One pass over the examples of a part, sorted by length; a note counts truncated texts."""
    examples, truncated = tokenized(rows, part, vocabulary, max_length)
    order = np.argsort([example.length for example in examples], kind="stable")
    were = "text was" if truncated == 1 else "texts were"
    groups = [order[i : i + batch_size] for i in range(0, len(order), batch_size)]
    return Split(
        tuple(padded_batch([examples[i] for i in g], batch_size, multiple, max_length=max_length) for g in groups),
        examples=tuple(rows),
        rows=order,
        scored=rows[0].label is not None,
        notes=(f"{truncated:,} {were} truncated to {max_length} tokens",) if truncated else (),
    )


def split_of_parts(parts: dict[str, Split[TextExample]]) -> Split:
    """A split of parts, with the batches of all scored parts; with several parts, notes name their part."""
    scored = tuple(batch for part in parts.values() if part.scored for batch in part.batches)
    several = len(parts) > 1
    notes = tuple(f"{name}: {note}" if several else note for name, part in parts.items() for note in part.notes)
    return Split(scored, scored=any(part.scored for part in parts.values()), parts=parts, notes=notes)
