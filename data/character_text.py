"""Character language modelling: windows of a text, each character the target of the ones before it."""

import dataclasses
import hashlib
import signal
from pathlib import Path
from typing import Any

import grain
import numpy as np
from absl import flags

from data import Corpus, DataConfig, DataError, NumpyBatch, Split, require_processor
from data.text_sources import TextSource, read_text, read_utf8
from jaxnlp.text import UnknownTokenError
from jaxnlp.text.characters import CharacterVocabulary


@dataclasses.dataclass(frozen=True)
class CharacterText(DataConfig):
    """A text in windows of characters."""

    source: TextSource = "python_docs"
    """Text: Python's embedded language reference, Tiny Shakespeare, or your UTF-8 file (set path)."""
    path: str | None = None
    """File of the text; required for text_file, optional for tiny_shakespeare."""
    sequence_length: int = 128
    """Length of an example in characters, T."""
    evaluation_batch_size: int = 64
    """Examples in an evaluation step."""
    validation_fraction: float = 0.1
    """Share of the text, at its end, that is held out for validation."""
    num_workers: int = 0
    """Processes that prepare batches; 0 = this one, which is enough for text in memory."""

    def __post_init__(self):
        super().__post_init__()
        self.require_at_least(1, "sequence_length", "evaluation_batch_size")
        self.require_at_least(0, "num_workers")
        if not 0.0 < self.validation_fraction < 1.0:
            raise ValueError(f"data.validation_fraction must be in (0, 1), got {self.validation_fraction}")

    @property
    def needs(self) -> str:
        """The source's file."""
        return {"python_docs": "", "tiny_shakespeare": "tinyshakespeare", "text_file": "your text"}[self.source]

    @property
    def max_length(self) -> int:
        """T."""
        return self.sequence_length

    def load(self, seed: int, processor: Any = None) -> Corpus:
        """Reads the text and makes its batches.

        The first 90 % (with the default fraction) are training text, the rest validation text. The vocabulary is the
        alphabet of both, as in karpathy/nanoGPT, unless one is given.

        Raises:
          FileNotFoundError: when there is no such text.
          DataError: when a part is too short for one window, or the given vocabulary does not have all its characters.
        """
        text = read_text(self.source, self.path)
        vocabulary = (
            CharacterVocabulary.of(text) if processor is None else require_processor(processor, CharacterVocabulary)
        )
        try:
            tokens = vocabulary.encode(text)
        except UnknownTokenError as error:
            raise DataError(f"the text of data.source {self.source}: {error}") from error
        boundary = int(len(tokens) * (1.0 - self.validation_fraction))
        parts = {"train": tokens[:boundary], "validation": tokens[boundary:]}
        for name, part in parts.items():
            if len(part) <= self.sequence_length:
                raise DataError(
                    f"the {name} text has {len(part)} characters, but one window needs {self.sequence_length + 1}; "
                    f"use a longer text or a smaller --data.sequence-length"
                )
        return Corpus(
            train=shuffled_windows(
                parts["train"], self.sequence_length, self.batch_size, seed=seed, num_workers=self.num_workers
            ),
            splits={
                name: Split(consecutive_windows(part, self.sequence_length, self.evaluation_batch_size))
                for name, part in parts.items()
            },
            processor=vocabulary,
            description=(
                f"{self.source}: {len(text):,} characters, {vocabulary.size} distinct; "
                f"{boundary:,} for training, {len(tokens) - boundary:,} for validation"
            ),
            fingerprint=hashlib.sha256(text.encode("utf-8", errors="surrogatepass")).hexdigest(),
        )

    def read_file(self, path: Path, processor: Any) -> Split:
        """A UTF-8 file's text, each character but the first scored once.

        Raises:
          FileNotFoundError, DataError: when it cannot be read, or contains characters outside the vocabulary.
        """
        vocabulary = require_processor(processor, CharacterVocabulary)
        text = read_utf8(path)
        try:
            tokens = vocabulary.encode(text)
        except UnknownTokenError as error:
            raise DataError(f"{path}: {error}") from error
        if len(tokens) < 2:
            raise DataError(f"{path} has one character, but two are needed: the first is not scored")
        return Split(consecutive_windows(tokens, self.sequence_length, self.evaluation_batch_size))


def shuffled_windows(
    tokens: np.ndarray, sequence_length: int, batch_size: int, *, seed: int, num_workers: int = 0
) -> grain.IterDataset:
    """Every window of T + 1 tokens in a random order, then all again in another order, without end.

    Args:
      tokens: [N] int32, N > T.
      sequence_length: T.
      batch_size: B.
      seed: decides the order.
      num_workers: processes that prepare batches; the order does not depend on it.

    Returns:
      Batches of `tokens` [B, T] int32, `targets` [B, T] int32 (the next tokens) and `loss_mask` [B, T] bool. The
      iterator's state can be saved and set.
    """
    # Starting points are batched first; the windows of a batch are then read in one NumPy call.
    windows = len(tokens) - sequence_length
    # Grain's endless repeat() overflows in batch(1); this many epochs are effectively infinite.
    epochs = 2**62 // windows
    starts = grain.MapDataset.range(windows).seed(seed).shuffle().repeat(epochs).batch(batch_size)
    # No threads that read ahead: a batch takes microseconds, and on few cores threads slow down the training step.
    reading = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)
    batches = starts.map(_Windows(tokens, sequence_length)).to_iter_dataset(reading)
    if num_workers:
        if not flags.FLAGS.is_parsed():
            flags.FLAGS.mark_as_parsed()  # grain reads absl's flags, which nothing else in this project parses
        batches = batches.mp_prefetch(grain.MultiprocessingOptions(num_workers=num_workers), _ignore_interrupts)
    return batches


def consecutive_windows(tokens: np.ndarray, sequence_length: int, batch_size: int) -> grain.MapDataset:
    """One pass over a text: each token but the first is the target of exactly one position.

    Args:
      tokens: [N] int32, N > 1.
      sequence_length: T.
      batch_size: B.

    Returns:
      Batches as `shuffled_windows` gives them; where the text ends, `loss_mask` is False and tokens are 0.
    """
    windows_count = -(-(len(tokens) - 1) // sequence_length)
    rows = -(-windows_count // batch_size) * batch_size
    starts = np.arange(rows) * sequence_length
    padded = np.pad(tokens, (0, rows * sequence_length + 1 - len(tokens)))
    windows = _Windows(padded, sequence_length, length=len(tokens))
    return grain.MapDataset.range(rows // batch_size).map(
        lambda batch: windows(starts[batch * batch_size : (batch + 1) * batch_size])
    )


def _ignore_interrupts(worker_index: int, worker_count: int) -> None:
    """Ctrl-C reaches workers too; only the process that trains handles it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


class _Windows:
    """The windows of a text at given starting points: a class, since worker processes receive it by pickle."""

    def __init__(self, tokens: np.ndarray, sequence_length: int, length: int | None = None):
        self.tokens = tokens
        self.sequence_length = sequence_length
        self.length = len(tokens) if length is None else length

    def __call__(self, starts: np.ndarray) -> NumpyBatch:
        positions = np.asarray(starts)[:, None] + np.arange(self.sequence_length)
        return {
            "tokens": self.tokens[positions],
            "targets": self.tokens[positions + 1],
            "loss_mask": positions + 1 < self.length,
        }
