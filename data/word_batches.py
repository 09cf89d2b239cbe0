"""Batches of a word language model: independent windows, or tracks of text that go on from batch to batch."""

from collections.abc import Callable, Sequence
from typing import Any

import grain
import numpy as np

from data import NumpyBatch

Epoch = Callable[[int], Sequence[NumpyBatch]]
"""The batches of an epoch, by its number from 0: a pure function."""


def concatenated(articles: Sequence[np.ndarray], generator: np.random.Generator, *, shuffle: bool) -> np.ndarray:
    """Articles as one text [N], in a random order if they are to be shuffled, which begins at a random place of it.

    The text is a ring: what stands before the place where it begins comes at its end. So windows and tracks are cut
    elsewhere in each epoch, even when there is one article alone.
    """
    order = generator.permutation(len(articles)) if shuffle else range(len(articles))
    text = np.concatenate([articles[i] for i in order])
    return np.roll(text, -int(generator.integers(len(text))))


def window_batches(
    text: np.ndarray, sequence_length: int, batch_size: int, generator: np.random.Generator
) -> grain.MapDataset:
    """Windows of a text that overlap in no target, in a random order; those that fill no batch are left out.

    Args:
      text: [N] int32, N > B * T.
      sequence_length: T.
      batch_size: B.
      generator: decides the order.

    Returns:
      A sequence of (N - 1) // T // B batches of `tokens` [B, T] int32, `targets` [B, T] int32 (the next words) and
      `loss_mask` [B, T] bool, all True.
    """
    windows = (len(text) - 1) // sequence_length
    starts = generator.permutation(windows)[: windows // batch_size * batch_size].reshape(-1, batch_size, 1)

    def cut(number: int) -> NumpyBatch:
        positions = starts[number] * sequence_length + np.arange(sequence_length)
        return {
            "tokens": text[positions],
            "targets": text[positions + 1],
            "loss_mask": np.ones(positions.shape, bool),
        }

    return grain.MapDataset.range(len(starts)).map(cut)


def track_batches(text: np.ndarray, lengths: np.ndarray, batch_size: int) -> grain.MapDataset:
    """A text in B tracks of consecutive words, in which each batch goes on where the one before it ended.

    Args:
      text: [N] int32.
      lengths: of the batches, [M]; their sum is no more than (N - 1) // B, the length of a track.
      batch_size: B.

    Returns:
      A sequence of M batches, the k-th of `tokens` [B, lengths[k]] int32, `targets` (the next words), `loss_mask`, all
      True, and `reset` [B] bool: True where a row does not go on from the batch before, which is in the first alone.
    """
    track = (len(text) - 1) // batch_size
    tokens, targets = (text[i : i + batch_size * track].reshape(batch_size, track) for i in (0, 1))
    ends = np.cumsum(lengths)

    def cut(number: int) -> NumpyBatch:
        columns = slice(ends[number] - lengths[number], ends[number])
        return {
            "tokens": tokens[:, columns],
            "targets": targets[:, columns],
            "loss_mask": np.ones((batch_size, lengths[number]), bool),
            "reset": np.full(batch_size, number == 0),
        }

    return grain.MapDataset.range(len(lengths)).map(cut)


def random_lengths(
    track_length: int,
    sequence_length: int,
    generator: np.random.Generator,
    *,
    short_probability: float,
    jitter: float,
    multiple: int,
) -> np.ndarray:
    """Lengths of the batches that a track is cut into, [M].

    T, or T / 2 with a small probability, plus normal noise, rounded to a multiple; the last one is what remains, less
    than a multiple of it left out. No length exceeds 1.25 T, or the first multiple that is no less than T: so many
    programs are compiled at most.

    Args:
      track_length: at least `multiple`.
      sequence_length: T.
      generator: decides the lengths.
      short_probability: of T / 2.
      jitter: standard deviation of the noise, in words.
      multiple: of all lengths, at most T.

    Source: Merity et al. 2018, section 4.1. Differs: multiples, and a longest length.
    """
    drawn = track_length // multiple  # enough if all are the shortest
    base = np.where(generator.random(drawn) < short_probability, sequence_length / 2, sequence_length)
    noisy = base + jitter * generator.standard_normal(drawn)
    longest = max(5 * sequence_length // 4 // multiple, -(-sequence_length // multiple))
    lengths = np.clip(np.rint(noisy / multiple), 1, longest).astype(int) * multiple
    lengths = lengths[np.cumsum(lengths) <= track_length]
    rest = (track_length - lengths.sum()) // multiple * multiple
    return np.append(lengths, rest) if rest else lengths


def evaluation_tracks(text: np.ndarray, sequence_length: int, batch_size: int) -> grain.MapDataset:
    """One pass over a text in B tracks of consecutive words: each word but the text's first is a target exactly once.

    The N - 1 targets are dealt to the tracks in runs of ceil((N - 1) / B); the last word that a track predicts is the
    first that the next one reads. Where a track has ended, `loss_mask` is False and tokens are 0.

    Args:
      text: [N] int32, N > 1.
      sequence_length: T.
      batch_size: B.

    Returns:
      Batches [B, T] as `track_batches` gives them.
    """
    targets_count = len(text) - 1
    track = -(-targets_count // batch_size)
    starts = np.arange(batch_size)[:, None] * track

    def cut(number: int) -> NumpyBatch:
        columns = number * sequence_length + np.arange(sequence_length)
        positions = starts + columns
        inside = (columns < track) & (positions < targets_count)
        positions = np.where(inside, positions, 0)
        return {
            "tokens": np.where(inside, text[positions], 0),
            "targets": np.where(inside, text[positions + 1], 0),
            "loss_mask": inside,
            "reset": np.full(batch_size, number == 0),
        }

    return grain.MapDataset.range(-(-track // sequence_length)).map(cut)


class Epochs(grain.IterDataset):
    """The batches of epoch 0, then those of epoch 1, without end."""

    def __init__(self, epoch: Epoch):
        """An epoch must have a batch at least."""
        super().__init__()
        self._epoch = epoch

    def __iter__(self) -> "_EpochsIterator":
        return _EpochsIterator(self._epoch)


class _EpochsIterator(grain.DatasetIterator):
    """Its state is two numbers, since all else follows from them."""

    def __init__(self, epoch: Epoch):
        super().__init__()
        self._epoch = epoch
        self._number = self._next = 0
        self._batches: Sequence[NumpyBatch] | None = None

    def __next__(self) -> NumpyBatch:
        if self._batches is None:
            self._batches = self._epoch(self._number)
        if self._next == len(self._batches):
            self._number, self._next = self._number + 1, 0
            self._batches = self._epoch(self._number)
        self._next += 1
        return self._batches[self._next - 1]

    def get_state(self) -> dict[str, Any]:
        return {"epoch": self._number, "batch": self._next}

    def set_state(self, state: dict[str, Any]) -> None:
        self._number, self._next = state["epoch"], state["batch"]
        self._batches = None
