"""Character language modelling: windows of a text, each character the target of the ones before it."""

import dataclasses
import hashlib
import signal
from pathlib import Path

import grain
import numpy as np
from absl import flags

from data import Corpus, DataConfig, DataError, NumpyBatch, Split
from data.texts import TextSource, read_text, read_utf8
from jaxnlp.text import UnknownTokenError
from jaxnlp.text.characters import CharacterVocabulary
from jaxnlp.text.vocabulary import Vocabulary


@dataclasses.dataclass(frozen=True)
class CharacterText(DataConfig):
    """A text cut into windows of characters."""

    source: TextSource = "python_docs"
    """Which text: the embedded language reference, Tiny Shakespeare, or a UTF-8 file of yours (give its path)."""
    path: str | None = None
    """The text's file; needed for text_file, optional for tiny_shakespeare."""
    sequence_length: int = 128
    """Characters an example is scored on, T."""
    evaluation_batch_size: int = 64
    """Examples in an evaluation step."""
    validation_fraction: float = 0.1
    """Share of the text, at its end, that is held out."""
    num_workers: int = 0
    """Processes that prepare batches; 0 = this one, which is enough for text in memory."""

    def __post_init__(self):
        for name in ("batch_size", "sequence_length", "evaluation_batch_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"data.{name} must be at least 1, got {getattr(self, name)}")
        if not 0.0 < self.validation_fraction < 1.0:
            raise ValueError(f"data.validation_fraction must lie in (0, 1), got {self.validation_fraction}")
        if self.num_workers < 0:
            raise ValueError(f"data.num_workers must be at least 0, got {self.num_workers}")

    def load(self, seed: int) -> Corpus:
        """Reads the text and lays out its batches.

        The first 90 % (with the default fraction) are training text, the rest validation text. The vocabulary is the
        alphabet of both, as in karpathy/nanoGPT.

        Raises:
          DataError: when a part is too short for one window; the message gives the lengths.
        """
        text = read_text(self.source, self.path)
        vocabulary = CharacterVocabulary.of(text)
        tokens = vocabulary.encode(text)
        boundary = int(len(tokens) * (1.0 - self.validation_fraction))
        parts = {"train": tokens[:boundary], "validation": tokens[boundary:]}
        for name, part in parts.items():
            if len(part) <= self.sequence_length:
                raise DataError(
                    f"the {name} text has {len(part)} characters, but one window needs {self.sequence_length + 1}; "
                    f"give a longer text, or a smaller --data.sequence-length"
                )
        return Corpus(
            train=shuffled_windows(
                parts["train"], self.sequence_length, self.batch_size, seed=seed, num_workers=self.num_workers
            ),
            splits={
                name: Split(consecutive_windows(part, self.sequence_length, self.evaluation_batch_size))
                for name, part in parts.items()
            },
            vocabulary=vocabulary,
            description=(
                f"{self.source}: {len(text):,} characters, {vocabulary.size} distinct; "
                f"{boundary:,} for training, {len(tokens) - boundary:,} for validation"
            ),
            fingerprint=hashlib.sha256(text.encode("utf-8", errors="surrogatepass")).hexdigest(),
        )

    def read_file(self, path: Path, vocabulary: Vocabulary) -> Split:
        """A UTF-8 file's text, each character but the first scored once.

        Raises:
          FileNotFoundError, DataError: when it cannot be read, or holds characters outside the vocabulary.
        """
        text = read_utf8(path)
        try:
            tokens = vocabulary.encode(text)
        except UnknownTokenError as error:
            raise DataError(f"{path}: {error}") from error
        if len(tokens) < 2:
            raise DataError(f"{path} has one character; a language model scores each character but the first")
        return Split(consecutive_windows(tokens, self.sequence_length, self.evaluation_batch_size))


def shuffled_windows(
    tokens: np.ndarray, sequence_length: int, batch_size: int, *, seed: int, num_workers: int = 0
) -> grain.IterDataset:
    """Every window of T + 1 tokens in a seeded order, then all again in another, without end.

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
    # Starting points are batched first and cut afterwards, in one NumPy call a batch.
    windows = len(tokens) - sequence_length
    # Grain's endless repeat() overflows in batch(1); this many epochs are as good as no end.
    epochs = 2**62 // windows
    starts = grain.MapDataset.range(windows).seed(seed).shuffle().repeat(epochs).batch(batch_size)
    # No threads that read ahead: a batch is cut in microseconds, and on few cores they slow down the training step.
    reading = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)
    batches = starts.map(_Windows(tokens, sequence_length)).to_iter_dataset(reading)
    if num_workers:
        if not flags.FLAGS.is_parsed():
            flags.FLAGS.mark_as_parsed()  # grain reads absl's flags, which nothing else here parses
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
    """Ctrl-C reaches workers too; the process that trains decides what it means."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


class _Windows:
    """Cuts windows out of a text at given starting points: a class, since worker processes get it by pickle."""

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
