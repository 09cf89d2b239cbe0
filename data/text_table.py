"""Labelled texts, or pairs of texts: the user's table, or a known data set."""

import dataclasses
import hashlib
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from data import Corpus, DataError, Split, require_processor
from data.download import locate_folder
from data.pipelines.fingerprints import vocabulary_text
from data.pipelines.table_batches import oversampled, table_split, tokenized, training_batches, unknown_shares
from data.readers.file_options import TableFiles
from data.readers.held_out import folds_of
from data.readers.sentence_classes import FILES, DataSet, Files, read_data_set, read_data_set_source
from data.readers.table_summary import common_texts, summary
from jaxnlp.config import ReadWhen, refuse_unread
from jaxnlp.corpus import SourceRows
from jaxnlp.input_files.tables import Columns, MissingColumnsError, TableRow, labelled_rows, read_table, rows_with_texts
from jaxnlp.targets import Classes, Scale, Targets, whole_number
from jaxnlp.text.classifier_processor import LabelledText, PairReading, TextClassifierProcessor
from jaxnlp.text.wordpiece import SPECIAL, WordPieceVocabulary

_logger = logging.getLogger(__name__)

MOST_CLASSES = 10_000
"""Maximum number of classes; more are probably texts of another column."""
FEW_CLASSES = 10
"""With fewer than two rows per class, more classes than this are probably texts of another column, too."""
OTHERWISE = "for your own table, set --data.source table"


@dataclasses.dataclass(frozen=True)
class TextTable(TableFiles):
    """Texts, or pairs of texts, and their labels: a class, several classes, or a number.

    Files end in .csv (fields separated by commas), .tsv or .txt (by tabs) or .jsonl (a JSON object a line); .gz may
    follow. Rows with a blank text are skipped.
    Batches have `tokens`, `segments` [B, T] int32, `attention_mask` [B, T] bool, `loss_mask` [B] bool, and `labels`.
    With `pairs` apart, the first three are [B, 2, T].
    """

    source: Literal["table", DataSet] = "table"
    """Your own table; MR, SST with five classes or two, TREC's questions, AFQMC's pairs of questions; or data of
    CS224N's default project: SST, film reviews (cfimdb), Quora's pairs of questions, or pairs with similarities
    (sts)."""
    path: str | None = None
    """Your table, or the folder of a known data set; None = in $JAXNLP_DATA."""
    validation_path: str | None = None
    """A second table for validation; None = a part of the rows is held out."""
    test_path: str | None = None
    """A table for the test split, with or without labels; None = no test split."""
    text: str = "text"
    """Column of the text."""
    pair: str | None = None
    """Column of the second text of a pair; None = single texts."""
    label: str = "label"
    """Column of the label."""
    predict: Literal["class", "classes", "number"] = "class"
    """Kind of the labels: a class, any number of classes, or a number."""
    separator: str = ","
    """Separator of several classes in one field."""
    validation_fraction: float = 0.1
    """Share of the rows that is held out, equal for all classes: 1 / N, for N folds."""
    fold: int = 0
    """Number of the held-out fold, from 0 to 1 / validation_fraction - 1, for cross-validation."""
    split_seed: int = 0
    """Seed of the choice of held-out rows."""
    tokens: Literal["pieces", "words"] = "pieces"
    """Tokens of a vocabulary trained on the training texts: WordPiece (pieces), or the most frequent words. A
    pretrained model has its own vocabulary."""
    vocabulary_size: int = 8_000
    """Maximum number of tokens in a vocabulary trained on the training texts."""
    minimum_count: int = 2
    """Minimum number of occurrences of a token in the training texts."""
    max_length: int = 128
    """Maximum length in tokens, for both texts of a pair together if pairs are together; longer texts are truncated."""
    pairs: PairReading = "together"
    """Read both texts of a pair together, as [CLS] first [SEP] second [SEP], or apart, as two inputs."""
    oversample: bool = False
    """Repeat the training rows of rarer classes until all classes are equally frequent."""
    swap_pairs: bool = False
    """Train on each pair in both orders."""
    drop_duplicates: bool = False
    """Remove training rows whose texts are also in validation or test, in either order."""
    length_multiple: int = 16
    """Batches have the length of their longest text, rounded up to a multiple of this; JAX compiles a program
    for each length."""
    evaluation_batch_size: int = 64
    """Number of rows in an evaluation step."""

    def __post_init__(self):
        super().__post_init__()
        self.require_at_least(1, "length_multiple", "evaluation_batch_size", "minimum_count")
        self.require_at_least(len(SPECIAL) + 1, "vocabulary_size")
        self.require_at_least(0, "split_seed", "fold")
        own, paired = self._known is None, len(self.columns.texts) == 2
        held_out = self.validation_path is None and (self._known is None or self._known.validation is None)
        if not 0.0 < self.validation_fraction <= 0.5:
            raise ValueError(f"data.validation_fraction must be in (0, 0.5], got {self.validation_fraction}")
        if abs(self.validation_fraction * self._folds - 1.0) > 0.02:
            raise ValueError(
                f"data.validation_fraction must be 1 / N, for N folds, such as 0.1, 0.2, 0.25 or 0.5; got "
                f"{self.validation_fraction}"
            )
        if self.fold >= self._folds:
            raise ValueError(
                f"data.fold must be less than {self._folds}, which is 1 / data.validation_fraction, got {self.fold}"
            )
        if self.predict == "classes" and not self.separator:
            raise ValueError("data.separator must not be empty")
        only_own = "data.source table"
        refuse_unread(
            self,
            [
                ReadWhen("validation_path", None, own, only_own),
                ReadWhen("test_path", None, own, only_own),
                ReadWhen("text", "text", own, only_own),
                ReadWhen("pair", None, own, only_own),
                ReadWhen("label", "label", own, only_own),
                ReadWhen("predict", "class", own, only_own),
                *self.read_if_own(own, only_own),
                ReadWhen("separator", ",", self.predict == "classes", "data.predict classes"),
                ReadWhen("validation_fraction", 0.1, held_out, "data without separate validation rows"),
                ReadWhen("fold", 0, held_out, "data without separate validation rows"),
                ReadWhen("split_seed", 0, held_out, "data without separate validation rows"),
                ReadWhen("oversample", False, self._predicted == "class", "data.predict class"),
                ReadWhen("swap_pairs", False, paired, "pairs of texts"),
                ReadWhen("pairs", "together", paired, "pairs of texts"),
            ],
        )
        names = [*self.columns.texts, self.columns.label]
        if len(set(names)) != len(names):
            raise ValueError(f"data.text, data.pair and data.label must differ, got {', '.join(names)}")
        self.require_at_least(5 if paired and self.pairs == "together" else 3, "max_length")

    @property
    def _known(self) -> Files | None:
        """The files of a known data set; None = your own table."""
        return None if self.source == "table" else FILES[self.source]

    @property
    def _predicted(self) -> str:
        """The kind of the labels, as in `predict`."""
        return "number" if self._known is not None and isinstance(self._known.targets, Scale) else self.predict

    @property
    def columns(self) -> Columns:
        """The columns to read."""
        texts = (self.text,) if self.pair is None else (self.text, self.pair)
        known = None if self._known is None else self._known.columns
        return known or Columns(texts, self.label)

    @property
    def usual(self) -> tuple[str, ...]:
        """The columns of a table of your own; the source of a known data set."""
        known = ("source", "path", "batch_size")
        return known if self._known is not None else ("path", "text", "label", "pair", "predict", "batch_size")

    @property
    def needs(self) -> str:
        """The data set's folder."""
        return "your table" if self._known is None else self._known.folder

    @property
    def _folds(self) -> int:
        return round(1.0 / self.validation_fraction)

    def load(self, seed: int, processor: Any = None) -> Corpus:
        """Reads the tables; the splits are `validation` and, if there is a file, `test`.

        Args:
          seed: decides the order of training.
          processor: the tokenizer of a pretrained model, or the processor of an earlier run with its vocabulary; None =
            the vocabulary is trained on the training texts.

        Raises:
          FileNotFoundError, DataError: when a file is not found or malformed, a label does not occur in training, or
            there are too few rows or classes.
        """
        train_rows, other = self._tables()
        targets = self._targets(train_rows)
        train = self._labelled(train_rows, targets)
        splits = {name: self._labelled(rows, targets) for name, rows in other.items()}
        if "validation" not in splits:
            train, splits = self._held_out(train, targets, splits)
            if isinstance(targets, Scale) and self._known is None:  # what is held out does not decide the scale
                targets = _scale_of([row.label for row in train], Path(str(self.path)), self.columns.label)
        train, dropped = self._without_duplicates(train, splits)
        self._refuse_classes_without_rows(train, targets)
        vocabulary = self._vocabulary(train, processor)
        found = TextClassifierProcessor(vocabulary, self.max_length, len(self.columns.texts), targets, self.pairs)
        examples, truncated = tokenized(found, train)
        if self.swap_pairs:
            swapped, _ = tokenized(found, [dataclasses.replace(row, texts=row.texts[::-1]) for row in train])
            examples += swapped
        if len(examples) < self.batch_size:
            raise DataError(
                f"--data.batch-size {self.batch_size} exceeds the number of training rows, {len(examples)}; give "
                f"{len(examples)} or less"
            )
        if self.oversample:
            assert isinstance(targets, Classes)
            examples = oversampled(examples, targets)
        digest = hashlib.sha256(vocabulary_text(found.vocabulary).encode())
        tables = [(row.texts, row.label) for rows in (train, *splits.values()) for row in rows]
        digest.update(repr((targets, tables)).encode("utf-8", errors="surrogatepass"))
        labels = [example.label for example in examples]
        read = {name: self._split(rows, found) for name, rows in splits.items()}
        lengths, unknown = [example.length for example in examples], unknown_shares(read, vocabulary)
        return Corpus(
            train=training_batches(examples, found, seed, batch_size=self.batch_size, multiple=self.length_multiple),
            splits=read,
            processor=found,
            description=summary(found, train, splits, lengths, truncated, unknown=unknown, given=processor is not None)
            + dropped,
            fingerprint=digest.hexdigest(),
            token_counts=targets.counts(labels) if isinstance(targets, Classes) else None,
        )

    def read_file(self, path: Path, processor: Any) -> Split:
        """Reads a file with the same columns; labels are optional. Raises: FileNotFoundError, DataError."""
        processor = require_processor(processor, TextClassifierProcessor)
        try:
            rows, source = self._read(path)
        except MissingColumnsError as error:
            raise DataError(f"{error}; name the columns of the file as in the run's training table") from error
        return dataclasses.replace(
            self._split(self._labelled((path, rows), processor.targets), processor), source=source
        )

    def _split(self, rows: Sequence[LabelledText], processor: TextClassifierProcessor) -> Split[LabelledText]:
        return table_split(rows, processor, batch_size=self.evaluation_batch_size, multiple=self.length_multiple)

    def _without_duplicates(
        self, train: list[LabelledText], splits: Mapping[str, Sequence[LabelledText]]
    ) -> tuple[list[LabelledText], str]:
        """The training rows without those that are also in another split, and a line that counts these."""
        if not self.drop_duplicates:
            return train, ""
        repeated = common_texts(train, [row for rows in splits.values() for row in rows])
        kept = [row for row, again in zip(train, repeated, strict=True) if not again]
        if not kept:
            raise DataError(
                "all training rows are also in validation or test; give others, or no --data.drop-duplicates"
            )
        return kept, f"\ntraining rows that are also in validation or test, removed: {len(train) - len(kept):,}"

    def _tables(self) -> tuple[tuple[Path, list[TableRow]], dict[str, tuple[Path, list[TableRow]]]]:
        """The training table, and the tables of splits with separate files."""
        if self._known is not None:
            files = self._known
            folder = locate_folder(files.folder, self.path, holds=files.train, otherwise=OTHERWISE)
            found = read_data_set(self.source, folder)
            return found.pop("train"), found
        if self.path is None:
            raise DataError("data.source table needs your table: give it with --data.path FILE")
        splits = {"validation": self.validation_path, "test": self.test_path}
        paths = {name: Path(file) for name, file in splits.items() if file is not None}
        try:
            rows = {name: (path, self._rows(path, None if name == "test" else True)) for name, path in paths.items()}
            return (Path(self.path), self._rows(Path(self.path), labelled=True)), rows
        except MissingColumnsError as error:
            pair = "" if self.pair is None else ", --data.pair"
            raise DataError(f"{error}; name the columns of your table with --data.text{pair}, --data.label") from error

    def _rows(self, path: Path, labelled: bool | None = None) -> list[TableRow]:
        return self._read(path, labelled)[0]

    def _read(self, path: Path, labelled: bool | None = None) -> tuple[list[TableRow], SourceRows]:
        """The rows of a file with a text and, except for classes, a label; and all its rows."""
        if self._known is not None:
            return read_data_set_source(self.source, path, labelled=labelled)
        several = self.predict == "classes"  # an empty field means no class
        table = read_table(
            path,
            self.columns,
            writing=self.writing,
            labelled=labelled,
            separator=self.separator if several else None,
        )
        rows = rows_with_texts(path, table.rows)
        if not several:
            rows = labelled_rows(path, rows, self.columns.label, labelled=labelled)
        return rows, table.source(rows)

    def _targets(self, table: tuple[Path, list[TableRow]]) -> Targets:
        """The targets of the training table."""
        if self._known is not None and self._known.targets is not None:
            return self._known.targets
        path, rows = table
        column, labels = self.columns.label, [str(row.label) for row in rows]
        if self.predict == "number":
            numbers = [_parsed(Scale(0.0, 1.0), row, path, column) for row in rows]
            return _scale_of(numbers, path, column)
        if self.predict == "classes":
            names = sorted({part.strip() for label in labels for part in label.split(self.separator)} - {""})
        else:
            names = sorted(set(map(whole_number, labels)))
        if len(names) < (1 if self.predict == "classes" else 2):
            raise DataError(f"{path}: expected at least two distinct labels in the column {column}, got {len(names)}")
        if len(names) > MOST_CLASSES or (len(names) > FEW_CLASSES and len(names) > len(rows) / 2):
            raise DataError(
                f"{path}: the column {column} has {len(names):,} distinct labels in {len(rows):,} rows, such as "
                f"{names[0][:40]!r}; choose the column of the classes with --data.label, or --data.predict number"
            )
        return Classes(tuple(names), self.predict == "classes", self.separator)

    def _labelled(self, table: tuple[Path, list[TableRow]], targets: Targets) -> list[LabelledText]:
        path, rows = table
        column = self.columns.label
        heading: Literal["row", "id"] = "row" if self.columns.id is None else "id"
        return [
            LabelledText(row.id, row.texts, None if row.label is None else _parsed(targets, row, path, column), heading)
            for row in rows
        ]

    def _held_out(
        self, rows: list[LabelledText], targets: Targets, splits: dict[str, list[LabelledText]]
    ) -> tuple[list[LabelledText], dict[str, list[LabelledText]]]:
        """Training rows, and the splits with held-out rows."""
        strata = [row.label if isinstance(targets, Classes) and not targets.several else None for row in rows]
        held_out = np.array(folds_of(strata, self._folds, self.split_seed)) == self.fold
        train = [row for row, out in zip(rows, held_out, strict=True) if not out]
        validation = [row for row, out in zip(rows, held_out, strict=True) if out]
        if not train or not validation:
            raise DataError(
                f"too few rows to hold out {self.validation_fraction:g} of them: {len(rows)}; give more rows, or a "
                "second table with --data.validation-path"
            )
        return train, {"validation": validation} | splits

    def _refuse_classes_without_rows(self, train: list[LabelledText], targets: Targets) -> None:
        if not isinstance(targets, Classes):
            return
        counts = targets.counts([row.label for row in train])
        missing = [name for name, count in zip(targets.names, counts, strict=True) if not count]
        if missing:
            raise DataError(
                f"no training row has the class {missing[0]!r}; add rows of it, or set another --data.split-seed"
            )
        once = [name for name, count in zip(targets.names, counts, strict=True) if count == 1]
        if once:
            _logger.warning(
                "classes with a single training row, such as %r: %d of %d; add rows of these classes, or remove them",
                *(once[0], len(once), len(targets.names)),
            )

    def _vocabulary(self, train: list[LabelledText], given: Any) -> WordPieceVocabulary:
        if given is not None:
            return require_processor(getattr(given, "vocabulary", given), WordPieceVocabulary)
        texts = [text for row in train for text in row.texts]
        if self.tokens == "pieces":
            try:
                return WordPieceVocabulary.of_texts(texts, self.vocabulary_size, minimum_count=self.minimum_count)
            except ValueError as error:
                raise DataError(f"--data.vocabulary-size {self.vocabulary_size}: {error}") from error
        tokenizer = WordPieceVocabulary.of_pieces(SPECIAL).tokenizer
        counts = Counter(
            word
            for text in texts
            for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(tokenizer.normalizer.normalize_str(text))
        )
        frequent = sorted((word for word, count in counts.items() if count >= self.minimum_count), key=_order(counts))
        words = [word for word in frequent if word not in SPECIAL][: self.vocabulary_size - len(SPECIAL)]
        return WordPieceVocabulary.of_pieces([*SPECIAL, *words])


def _order(counts: Counter[str]) -> Any:
    """The sort key: the most frequent first, then in alphabetical order."""
    return lambda word: (-counts[word], word)


def _scale_of(numbers: Sequence[float], path: Path, column: str) -> Scale:
    """From the lowest to the highest. Raises: DataError when they are equal."""
    if min(numbers) == max(numbers):
        raise DataError(f"{path}: all training numbers in the column {column} are {numbers[0]:g}; they must differ")
    return Scale(min(numbers), max(numbers))


def _parsed(targets: Targets, row: TableRow, path: Path, column: str) -> Any:
    try:
        return targets.parse(str(row.label))
    except ValueError as error:
        raise DataError(f"{path}, line {row.line}: {column} {error}") from error
