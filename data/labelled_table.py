"""Your own texts, or pairs of texts, with classes: CSV or TSV files with any labels."""

import dataclasses
import hashlib
from pathlib import Path
from typing import Any

import grain

from data import Corpus, DataConfig, DataError, Split, require_processor
from data.fingerprints import vocabulary_text
from data.minbert import table_text, vocabulary_of
from data.table_rows import Columns, format_of, read_rows
from data.text_batches import labelled_split, split_of_parts, tokenized, training_batches
from data.text_tables import read_table
from jaxnlp.text.labels import Labels, TextExample
from jaxnlp.text.text_processor import TextProcessor
from jaxnlp.text.wordpiece import WordPieceVocabulary

PART = "text"


@dataclasses.dataclass(frozen=True)
class LabelledTable(DataConfig):
    """Classification of texts or pairs of texts. The classes are the labels in the training file, sorted.

    Files end in .csv, .tsv or .jsonl, and .gz may follow.
    """

    train_path: str | None = None
    """Training file, with a header; required."""
    validation_path: str | None = None
    """Validation file with the same columns; required."""
    test_path: str | None = None
    """Test file, with or without labels; None = no test split."""
    text_column: str = "text"
    """Column of the text."""
    pair_column: str | None = None
    """Column of the second text of a pair; None = single texts."""
    label_column: str = "label"
    """Column of the label."""
    max_length: int = 128
    """Maximum length in tokens; longer texts are truncated."""
    length_multiple: int = 16
    """Batches have the length of their longest text, rounded up to a multiple: each length is a program to compile."""
    evaluation_batch_size: int = 64
    """Rows in an evaluation step."""

    def __post_init__(self):
        super().__post_init__()
        self.require_at_least(1, "length_multiple", "evaluation_batch_size")
        self.require_at_least(3, "max_length")
        names = [name for name in (self.text_column, self.pair_column, self.label_column) if name is not None]
        if len(set(names)) != len(names):
            raise ValueError(
                f"data.text_column, data.pair_column and data.label_column must differ, got {', '.join(names)}"
            )

    @property
    def parts(self) -> tuple[str, ...]:
        """Only `text`."""
        return (PART,)

    @property
    def columns(self) -> Columns:
        """The columns that are read."""
        texts = (self.text_column,) if self.pair_column is None else (self.text_column, self.pair_column)
        return Columns(texts, self.label_column)

    def load(self, seed: int, processor: Any = None) -> Corpus:
        """Reads the files; the splits are `validation` and, where there is a file, `test`.

        Args:
          seed: decides the order of training.
          processor: the vocabulary of a pretrained model, or the processor of an earlier run, whose vocabulary is used.

        Raises:
          FileNotFoundError, DataError: when a file is not found or contains something else, such as a label that the
            training file does not have; when there are too few examples or classes; when there is no vocabulary.
        """
        vocabulary = vocabulary_of(processor)
        for name in ("train_path", "validation_path"):
            if getattr(self, name) is None:
                raise DataError(f"data.{name} is required: give the file with --data.{name.replace('_', '-')} FILE")
        train_path, validation_path = Path(str(self.train_path)), Path(str(self.validation_path))
        names = tuple(sorted({row.label for row in read_rows(train_path, self.columns, labelled=True) if row.label}))
        if len(names) < 2:
            raise DataError(
                f"{train_path}: the column {self.label_column} has {len(names)} distinct labels; at least 2 are needed"
            )
        labels = Labels("classification", len(self.columns.texts), names)
        train = self._rows(train_path, labels, labelled=True)
        splits = {"validation": self._rows(validation_path, labels, labelled=True)}
        if self.test_path is not None:
            splits["test"] = self._rows(Path(self.test_path), labels)
        examples, truncated = tokenized(train, PART, vocabulary, self.max_length)
        if len(examples) < self.batch_size:
            raise DataError(
                f"{train_path} has {len(examples)} examples, fewer than a batch; set --data.batch-size to "
                f"{len(examples)} or less"
            )
        digest = hashlib.sha256(vocabulary_text(vocabulary).encode())
        digest.update(repr(names).encode("utf-8", errors="surrogatepass"))
        digest.update(table_text([train, *splits.values()]).encode("utf-8", errors="surrogatepass"))
        batches = training_batches(
            examples,
            self.batch_size,
            order_seed=seed,
            pool_seed=seed,
            multiple=self.length_multiple,
            max_length=self.max_length,
        )
        return Corpus(
            # No threads that read ahead: see data.character_text.
            train=batches.to_iter_dataset(grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)),
            splits={name: self._split(rows, vocabulary) for name, rows in splits.items()},
            processor=TextProcessor(vocabulary, self.max_length, ((PART, labels),)),
            description=(
                f"{len(train):,} texts of {len(names)} classes for training"
                + (f" ({truncated:,} texts truncated)" if truncated else "")
                + f", {len(splits['validation']):,} for validation; {vocabulary.size:,} tokens in the vocabulary"
            ),
            fingerprint=digest.hexdigest(),
        )

    def read_file(self, path: Path, processor: Any) -> Split:
        """A file with the same columns; labels are optional. Raises: FileNotFoundError, DataError."""
        processor = require_processor(processor, TextProcessor)
        return self._split(self._rows(path, processor.labels(PART)), processor.vocabulary)

    def _split(self, rows: tuple[TextExample, ...], vocabulary: WordPieceVocabulary) -> Split:
        split = labelled_split(
            rows,
            PART,
            vocabulary,
            batch_size=self.evaluation_batch_size,
            multiple=self.length_multiple,
            max_length=self.max_length,
        )
        return split_of_parts({PART: split})

    def _rows(self, path: Path, labels: Labels, *, labelled: bool | None = None) -> tuple[TextExample, ...]:
        return read_table(path, self.columns, labels, format=format_of(path), labelled=labelled)
