"""Batches of a word language model: independent windows, or streams of text that continue from batch to batch."""

from collections.abc import Sequence

import grain
import numpy as np

from data import LazyBatch, NumpyBatch


def concatenated(articles: Sequence[np.ndarray], generator: np.random.Generator, *, shuffle: bool) -> np.ndarray:
    """Articles as one text [N], in a random order if `shuffle`, rotated to start at a random word, so that windows and
    streams start at other words in each epoch, even with only one article."""
    order = generator.permutation(len(articles)) if shuffle else range(len(articles))
    text = np.concatenate([articles[index] for index in order])
    return np.roll(text, -int(generator.integers(len(text))))


def window_batches(
    text: np.ndarray, sequence_length: int, batch_size: int, generator: np.random.Generator
) -> grain.MapDataset:
    """Windows of a text that share no targets, in random order; windows that do not fill a batch are dropped.

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

    def batch(index: int) -> LazyBatch:
        def rows(chosen: np.ndarray) -> NumpyBatch:
            positions = starts[index][chosen] * sequence_length + np.arange(sequence_length)
            return {
                "tokens": text[positions],
                "targets": text[positions + 1],
                "loss_mask": np.ones(positions.shape, bool),
            }

        return LazyBatch(batch_size, rows)

    return grain.MapDataset.range(len(starts)).map(batch)


def stream_batches(text: np.ndarray, lengths: np.ndarray, batch_size: int) -> grain.MapDataset:
    """A text as B streams of consecutive words; each batch continues them where the previous batch ended.

    Args:
      text: [N] int32.
      lengths: of the batches, [M]; their sum is at most (N - 1) // B, the length of a stream.
      batch_size: B.

    Returns:
      A sequence of M batches, the k-th of `tokens` [B, lengths[k]] int32, `targets` (the next words), `loss_mask`, all
      True, and `reset` [B] bool, True only in the first batch, which continues no other.
    """
    length = (len(text) - 1) // batch_size
    tokens, targets = (text[i : i + batch_size * length].reshape(batch_size, length) for i in (0, 1))
    ends = np.cumsum(lengths)

    def batch(index: int) -> NumpyBatch:
        columns = slice(ends[index] - lengths[index], ends[index])
        return {
            "tokens": tokens[:, columns],
            "targets": targets[:, columns],
            "loss_mask": np.ones((batch_size, lengths[index]), bool),
            "reset": np.full(batch_size, index == 0),
        }

    return grain.MapDataset.range(len(lengths)).map(batch)


def longest_stream_batch(sequence_length: int, *, length_std: float, multiple: int) -> int:
    """The largest result of `random_lengths`: 1.25 T, or the first multiple that is at least T; without noise T rounded
    to a multiple."""
    if not length_std:
        return max(1, round(sequence_length / multiple)) * multiple
    return max(5 * sequence_length // 4 // multiple, -(-sequence_length // multiple)) * multiple


def random_lengths(
    stream_length: int,
    sequence_length: int,
    generator: np.random.Generator,
    *,
    short_probability: float,
    length_std: float,
    multiple: int,
) -> np.ndarray:
    """Lengths of the batches of a stream, [M].

    Each is T, or T / 2 with a small probability, plus normal noise, rounded to a multiple, and at most
    `longest_stream_batch`, to compile few programs. The last one is the remainder, rounded down to a multiple.

    Args:
      stream_length: at least `multiple`.
      sequence_length: T.
      generator: decides the lengths.
      short_probability: probability of T / 2.
      length_std: standard deviation of the noise, in words.
      multiple: of all lengths, at most T.

    Source: Merity et al. 2018, section 4.1. Differs: multiples, and a maximum length.
    """
    drawn = stream_length // multiple  # enough if all have the minimum length
    base = np.where(generator.random(drawn) < short_probability, sequence_length / 2, sequence_length)
    noisy = base + length_std * generator.standard_normal(drawn)
    longest = longest_stream_batch(sequence_length, length_std=length_std, multiple=multiple) // multiple
    lengths = np.clip(np.rint(noisy / multiple), 1, longest).astype(int) * multiple
    lengths = lengths[np.cumsum(lengths) <= stream_length]
    rest = (stream_length - lengths.sum()) // multiple * multiple
    return np.append(lengths, rest) if rest else lengths


def evaluation_streams(text: np.ndarray, sequence_length: int, batch_size: int) -> grain.MapDataset:
    """One pass over a text as B streams of consecutive words: each word except the first is a target exactly once.

    Each stream has ceil((N - 1) / B) consecutive targets; the last target of a stream is the first input of the next
    stream. After the end of a stream `loss_mask` is False and tokens are 0.

    Args:
      text: [N] int32, N > 1.
      sequence_length: T.
      batch_size: B.

    Returns:
      Batches [B, T] like those of `stream_batches`.
    """
    targets_count = len(text) - 1
    length = -(-targets_count // batch_size)
    starts = np.arange(batch_size)[:, None] * length

    def batch(index: int) -> NumpyBatch:
        columns = index * sequence_length + np.arange(sequence_length)
        positions = starts + columns
        inside = (columns < length) & (positions < targets_count)
        positions = np.where(inside, positions, 0)
        return {
            "tokens": np.where(inside, text[positions], 0),
            "targets": np.where(inside, text[positions + 1], 0),
            "loss_mask": inside,
            "reset": np.full(batch_size, index == 0),
        }

    return grain.MapDataset.range(-(-length // sequence_length)).map(batch)
