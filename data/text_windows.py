"""Language modelling: windows of texts, with each token predicted from the previous ones. Subclasses define the
tokens."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import grain
import numpy as np

from data import Corpus, DataError, NumpyBatch, Split, errors_as, require_processor
from data.pipelines.endless import batched, iterable
from data.pipelines.epochs import Epochs
from data.pipelines.fingerprints import fingerprint
from data.pipelines.orders import shuffled_order
from data.readers.file_options import TextFiles
from data.readers.text_sources import TextSource, source_documents, tokens_to_score
from jaxnlp.config import BatchSize, Count, ProperFraction, UserPath
from jaxnlp.input_files.tables import warn_of_tables
from jaxnlp.input_files.text_files import read_text_file


@dataclasses.dataclass(frozen=True)
class TextWindows(TextFiles):
    """Texts in windows of tokens.

    Each file is a document: no window crosses files, and the end of each file is held out.
    """

    length_field: ClassVar[str] = "sequence_length"

    source: TextSource = "python_docs"
    """Text: Python's embedded language reference, Tiny Shakespeare, or your files (set path)."""
    path: UserPath | tuple[UserPath, ...] | None = None
    """Files of the text, folders of .txt files, or patterns such as "poems/*.txt"; required for text_file. For
    tiny_shakespeare, its file."""
    sequence_length: Count = 128
    """Length of an example in tokens, T."""
    evaluation_batch_size: BatchSize = 64
    """Number of examples in an evaluation step."""
    validation_fraction: ProperFraction = 0.1
    """Share of each document's characters, at its end, that is held out for validation."""

    vocabulary_type: ClassVar[type]
    """The class of the vocabulary."""

    def __post_init__(self):
        super().__post_init__()
        self.format_only_if(self.source == "text_file", "data.source text_file")

    @property
    def needs(self) -> str:
        return {"python_docs": "", "tiny_shakespeare": "tinyshakespeare", "text_file": "your text"}[self.source]

    @property
    def max_length(self) -> int:
        return self.sequence_length

    def vocabulary_of(self, documents: Sequence[str]) -> Any:
        """The vocabulary of these documents. Raises: DataError, FileNotFoundError."""
        raise TypeError(f"{type(self).__name__} makes no vocabulary: it does not define vocabulary_of()")

    def load(self, seed: int, processor: Any = None) -> Corpus:
        """Reads the text and makes its batches.

        The vocabulary is that of `vocabulary_of`, unless one is given.

        Raises:
          FileNotFoundError: when there is no such text.
          DataError: when a part is too short for one window, or the given vocabulary lacks its characters.
        """
        documents = source_documents(self.source, self.path, self.encoding)
        vocabulary: Any = processor
        if processor is None:
            vocabulary = self.vocabulary_of(documents)
        require_processor(vocabulary, self.vocabulary_type)
        parts: dict[str, list[np.ndarray]] = {"train": [], "validation": []}
        for document in documents:
            with errors_as(DataError, f"the text of data.source {self.source}"):
                for name, text in zip(parts, self._parts(document), strict=True):
                    parts[name].append(vocabulary.encode(text))
        counts = {name: sum(map(len, part)) for name, part in parts.items()}
        for name, count in counts.items():
            where = "training" if name == "train" else name
            if count <= self.sequence_length:
                raise DataError(
                    f"the {where} text has {count} {vocabulary.unit}, but one window needs {self.sequence_length + 1}; "
                    f"use a longer text or a smaller --data.sequence-length"
                )
        several = f"{len(documents):,} files, each a document; " if len(documents) > 1 else ""
        return Corpus(
            train=shuffled_windows(parts["train"], self.sequence_length, self.batch_size, seed=seed),
            splits={name: self._split(part) for name, part in parts.items()},
            processor=vocabulary,
            description=(
                f"{self.source}: {several}{sum(counts.values()):,} {vocabulary.unit}, {vocabulary.size:,} distinct; "
                f"{counts['train']:,} for training, {counts['validation']:,} for validation"
            ),
            fingerprint=_fingerprint(documents),
            of_each_shape=[_Windows(parts["train"], self.sequence_length)(np.zeros(self.batch_size, int))],
        )

    def _split(self, documents: Sequence[np.ndarray]) -> Split:
        batches = consecutive_windows(documents, self.sequence_length, self.evaluation_batch_size)
        return Split(batches, of_each_shape=[batches[0]])

    def _parts(self, document: str) -> tuple[str, str]:
        """The training text and the validation text of a document."""
        boundary = int(len(document) * (1.0 - self.validation_fraction))
        return document[:boundary], document[boundary:]

    def read_file(self, path: Path, processor: Any) -> Split:
        """A file's text, each token but the first scored once; see `tokens_to_score`.

        Raises: FileNotFoundError, DataError when it cannot be read, or has no line of known characters.
        """
        vocabulary: Any = require_processor(processor, self.vocabulary_type)
        warn_of_tables([path])
        tokens = tokens_to_score(path, read_text_file(path, self.encoding), vocabulary)
        if len(tokens) < 2:
            one = vocabulary.unit.removesuffix("s")
            raise DataError(f"{path} has one {one}, but two are needed: the first is not scored")
        return self._split([tokens])


def _fingerprint(documents: Sequence[str]) -> str:
    digests = list(map(fingerprint, documents))
    return digests[0] if len(digests) == 1 else fingerprint(" ".join(digests))


def shuffled_windows(documents: Sequence[np.ndarray], sequence_length: int, batch_size: int, *, seed: int) -> Epochs:
    """Every window of T + 1 tokens of a document, endlessly, reshuffled in each epoch.

    Args:
      documents: their tokens, [N] int32 each. A document of 2 to T tokens is one window; a shorter one is none.
      sequence_length: T.
      batch_size: B.
      seed: decides the order.

    Returns:
      Batches of `tokens` [B, T] int32, `targets` [B, T] int32 (the next tokens) and `loss_mask` [B, T] bool; after the
      end of a document, tokens are 0 and `loss_mask` is False. The iterator's state can be saved and set.
    """
    windows = _Windows(documents, sequence_length)
    starts = windows.starts(lambda length: np.arange(max(length - sequence_length, 1)))
    # Only starts are shuffled; the windows of a batch are then read in one NumPy call.
    order = shuffled_order(len(starts), seed)
    return iterable(batched(lambda indices: windows(starts[order(indices)]), batch_size))


def consecutive_windows(documents: Sequence[np.ndarray], sequence_length: int, batch_size: int) -> grain.MapDataset:
    """One pass over documents: each token but a document's first is the target of exactly one position.

    Args:
      documents: their tokens, [N] int32 each; at least one has two.
      sequence_length: T.
      batch_size: B.

    Returns:
      Batches like those of `shuffled_windows`. Rows that fill the last batch are padding.
    """
    windows = _Windows(documents, sequence_length)
    starts = windows.starts(lambda length: np.arange(0, length - 1, sequence_length))
    rows = -(-len(starts) // batch_size) * batch_size
    starts = np.append(starts, np.full(rows - len(starts), windows.end))
    return grain.MapDataset.range(rows // batch_size).map(
        lambda batch: windows(starts[batch * batch_size : (batch + 1) * batch_size])
    )


class _Windows:
    """The windows of documents at given starting points."""

    def __init__(self, documents: Sequence[np.ndarray], sequence_length: int):
        self.sequence_length = sequence_length
        self.lengths = np.array([len(document) for document in documents])
        self.end = int(self.lengths.sum())
        self.tokens = np.pad(np.concatenate(documents), (0, sequence_length + 1))
        self.ends = np.append(np.cumsum(self.lengths), self.end)  # at the end, too, there is nothing to read

    def starts(self, within: Callable[[int], np.ndarray]) -> np.ndarray:
        """Starting points of all documents of two tokens or more, given those within a document of a length."""
        begins = np.cumsum(self.lengths) - self.lengths
        pairs = zip(begins, self.lengths, strict=True)
        return np.concatenate([begin + within(length) for begin, length in pairs if length > 1])

    def __call__(self, starts: np.ndarray) -> NumpyBatch:
        starts = np.asarray(starts)
        ends = self.ends[np.minimum(np.searchsorted(self.ends, starts, side="right"), len(self.ends) - 1)][:, None]
        positions = starts[:, None] + np.arange(self.sequence_length)
        return {
            "tokens": np.where(positions < ends, self.tokens[positions], 0),
            "targets": np.where(positions + 1 < ends, self.tokens[positions + 1], 0),
            "loss_mask": positions + 1 < ends,
        }
