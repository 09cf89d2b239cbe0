"""The rows of one part of labelled texts, and its targets: a user's table, or a known data set."""

import dataclasses
import logging
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from data import DataError
from data.download import locate_folder
from data.readers.labelled_data_sets import LABELLED, read_data_set, read_data_set_file
from data.readers.missing_values import is_missing, warn_of_missing
from data.readers.repeated import warn_of_alike
from jaxnlp.corpus import SourceRows
from jaxnlp.input_files.tables import (
    Columns,
    Dialect,
    MissingColumnsError,
    TableRow,
    labelled_rows,
    read_header,
    read_table,
    rows_with_texts,
)
from jaxnlp.targets import Number, OneClass, SeveralClasses, Targets, whole_number
from jaxnlp.text.classifier_processor import LabelledText

_TEXTS = re.compile(r"""(\[\s*['"].*\]|\{\s*['"].*\}|\(\s*['"].*\))$""", re.DOTALL)
"""A list, a set or a tuple of texts, as Python and NumPy write it."""
_VALUES = re.compile(r"""(\[(\s*['"\d+-].*)?\]|\{(\s*['"\d+-].*)?\}|\((\s*['"\d+-].*,.*)?\)|set\(\))$""", re.DOTALL)
"""A list, a set or a tuple of texts, of numbers or of nothing. A class may look so: pandas writes an interval as [0,
18]."""
_SEPARATORS = ";|/,"
"""Usual separators of classes in tables."""
_logger = logging.getLogger(__name__)

Predicted = Literal["class", "classes", "number"]
"""Kinds of labels: a class, any number of classes, or a number."""
Rows = tuple[Path, list[TableRow]]
"""A file, and its rows."""

PARTS = {name.removeprefix("cs224n_"): name for name, files in LABELLED.items() if files.columns is not None}
"""Known data sets that may be one of several parts, by the name of the part."""
TEXT, PAIR, LABEL, SCORE = "text", "pair", "label", "score"
"""Columns of a table that is one of several parts: its texts, and a class or a number."""
MOST_CLASSES = 10_000
"""Maximum number of classes; more are probably texts of another column."""
SHOWN = 5
"""Maximum number of spellings in a warning."""
FEW_CLASSES = 10
"""With fewer than two rows per class, more classes than this are probably texts of another column."""


@dataclasses.dataclass(frozen=True)
class RowSource:
    """The source of the rows of a part.

    Attributes:
      columns: the columns to read.
      path: the table, or the folder of a known data set; None = in $JAXNLP_DATA.
      known: the name of a known data set; None = the user's table.
      validation: a second table for validation; None = a part of the rows is held out.
      test: a table for the test split; None = no test split.
      predict: kind of the labels.
      separator: of several classes in one field.
      dialect: of the tables.
    """

    columns: Columns
    path: str | None = None
    known: str | None = None
    validation: str | None = None
    test: str | None = None
    predict: Predicted = "class"
    separator: str = ","
    dialect: Dialect = dataclasses.field(default_factory=Dialect)

    @classmethod
    def of_known(cls, name: str, path: str | None) -> "RowSource":
        """A known data set. Args: its name, and its folder; None = in $JAXNLP_DATA."""
        files = LABELLED[name]
        predict: Predicted = "number" if isinstance(files.targets, Number) else "class"
        columns = files.columns or Columns((TEXT,), LABEL)
        return cls(columns, path, name, predict=predict, dialect=Dialect(files.format))

    @property
    def folder(self) -> str:
        """The folder of a known data set; "" = the user's table."""
        return "" if self.known is None else LABELLED[self.known].folder

    @property
    def holds_out(self) -> bool:
        """Whether a part of the training rows is held out for validation."""
        return (self.validation if self.known is None else LABELLED[self.known].validation) is None

    def tables(self) -> dict[str, Rows]:
        """The rows of `train`, and of `validation` and `test` if these have their own files."""
        if self.known is not None:
            otherwise = "for your own table, set --data.source table, or --data.tables"
            folder = locate_folder(self.folder, self.path, holds=LABELLED[self.known].train, otherwise=otherwise)
            return read_data_set(self.known, folder)
        if self.path is None:
            raise DataError("data.source table needs your table: give it with --data.path FILE")
        files = {"train": self.path, "validation": self.validation, "test": self.test}
        paths = {name: Path(file) for name, file in files.items() if file is not None}
        try:
            return {
                name: (path, self.read(path, None, "skipped; jaxnlp evaluate --file predicts them")[0])
                if name == "test"
                else (path, self.read(path, True, "skipped")[0])
                for name, path in paths.items()
            }
        except MissingColumnsError as error:
            pair = ", --data.pair" if len(self.columns.texts) == 2 else ""
            raise DataError(f"{error}; name the columns of your table with --data.text{pair}, --data.label") from error

    def read(
        self, path: Path, labelled: bool | None = None, fate: str = "not scored"
    ) -> tuple[list[TableRow], SourceRows]:
        """The rows of a file with a text and a label; and all its rows.

        For numbers, names of missing values such as NA are missing labels.

        Args:
          path: the file.
          labelled: whether labels are required; None = read if they exist.
          fate: of rows without a label, for the warning.
        """
        if self.known is not None:
            return read_data_set_file(self.known, path, labelled=labelled)
        several = self.predict == "classes"
        table = read_table(
            path,
            self.columns,
            dialect=self.dialect,
            labelled=labelled,
            separator=self.separator if several else None,
        )
        rows = rows_with_texts(path, table.rows)
        warn_of_missing(path, ((row.line, text) for row in rows for text in row.texts))
        self._refuse_lists(path, rows)
        if self.predict == "number":
            rows = [row._replace(label="") if is_missing(str(row.label)) else row for row in rows]
        rows = labelled_rows(path, rows, self.columns.label, labelled=labelled, fate=fate)
        return rows, table.source(rows)

    def _refuse_lists(self, path: Path, rows: Iterable[TableRow]) -> None:
        """Raises DataError for classes that are written as a list; JSON's lists have become fields already."""
        several = self.predict == "classes"
        written = _VALUES if several else _TEXTS
        remedy = "" if several else "set --data.predict classes if examples have several classes, and "
        for row in rows:
            if written.match(str(row.label)):
                raise DataError(
                    f"{path}, line {row.line}: {self.columns.label} is written as a list, {str(row.label)[:40]}; "
                    f"{remedy}write its classes with {self.separator!r} between them, or use JSON lines"
                )

    def without_label(self, path: Path, labelled: Sequence[TableRow]) -> tuple[list[TableRow], SourceRows]:
        """The rows of a user's table with a text, but without a label; and all its rows."""
        if self.known is not None:
            return [], SourceRows((), ())
        table = read_table(path, self.columns, dialect=self.dialect, labelled=False)
        positions = {row.position for row in labelled}
        rows = [row for row in table.rows if not row.is_blank and row.position not in positions]
        return rows, table.source(rows)

    def targets(self, train: Rows) -> Targets:
        """The targets of the training rows."""
        if self.known is not None and (known := LABELLED[self.known].targets) is not None:
            return known
        path, rows = train
        column, labels = self.columns.label, [str(row.label) for row in rows]
        if self.predict == "number":
            return self.scale([self._parsed(Number(0.0, 1.0), row, path) for row in rows])
        names = self._names(labels)
        if self.predict == "classes":
            others = [name for name in sorted(names) if any(sign in name for sign in _SEPARATORS)]
            if others and not any(self.separator in label for label in labels if label != self.separator):
                _logger.warning(
                    "%s: no row has several classes with %r between them; %r is one class; if it is several, set "
                    "--data.separator",
                    *(path, self.separator, others[0][:40]),
                )
        spellings = sorted(names, reverse=True)  # 1 before 1.0
        names = set({whole_number(name): name for name in spellings}.values())
        if len(names) < (1 if self.predict == "classes" else 2):
            raise DataError(f"{path}: expected at least two distinct labels in the column {column}, got {len(names)}")
        if len(names) > MOST_CLASSES or (len(names) > FEW_CLASSES and len(names) > len(rows) / 2):
            raise DataError(
                f"{path}: the column {column} has {len(names):,} distinct labels in {len(rows):,} rows, such as "
                f"{min(names)[:40]!r}; choose the column of the classes with --data.label, or --data.predict number"
            )
        ordered = tuple(sorted(names))
        for name in filter(is_missing, ordered):
            _logger.warning(
                "%s: the label %s is a class; if its rows have no label, make their field empty", path, name
            )
        warn_of_alike(str(path), ordered, "classes")
        return SeveralClasses(ordered, self.separator) if self.predict == "classes" else OneClass(ordered)

    def _names(self, labels: Iterable[str]) -> set[str]:
        """The names of classes in these fields."""
        fields = (label.split(self.separator) if self.predict == "classes" else [label] for label in labels)
        return {name.strip() for field in fields for name in field} - {""}

    def scale(self, numbers: Sequence[float]) -> Number:
        """From the lowest to the highest training number. Raises: DataError when they are equal."""
        if min(numbers) == max(numbers):
            raise DataError(
                f"{self.path}: all training numbers in the column {self.columns.label} are {numbers[0]:g}; they must "
                "differ"
            )
        if not math.isfinite(max(numbers) - min(numbers)):
            raise DataError(
                f"{self.path}: the training numbers in the column {self.columns.label} go from {min(numbers):g} to "
                f"{max(numbers):g}; their difference is too large for a number of 64 bits: divide them by a constant"
            )
        return Number(min(numbers), max(numbers))

    def labelled(self, rows: Rows, targets: Targets) -> list[LabelledText]:
        """Rows with their labels; a warning names numbers that are written differently from their classes.

        Raises: DataError naming the first line with an unknown label, the number of such rows, and their labels.
        """
        path, table_rows = rows
        heading: Literal["row", "id"] = "row" if self.columns.id is None else "id"
        texts, wrong = list[LabelledText](), dict[str, list[DataError]]()
        for row in table_rows:
            label = None
            try:
                label = None if row.label is None else self._parsed(targets, row, path)
            except DataError as error:
                wrong.setdefault(str(row.label), []).append(error)
            texts.append(LabelledText(row.id, row.texts, label, heading))
        if wrong:
            (first, *_), count = next(iter(wrong.values())), sum(map(len, wrong.values()))
            shown, more = ", ".join(map(repr, [*wrong][:SHOWN])), ", ..." if len(wrong) > SHOWN else ""
            raise DataError(f"{first}; {count} rows have such labels: {shown}{more}" if count > 1 else str(first))
        written = self._names(str(row.label) for row in table_rows if row.label is not None)
        others = sorted(written.difference(targets.names))
        if others and targets.names and self.known is None:
            shown = ", ".join(f"{name} is the class {targets.show(targets.parse(name))}" for name in others[:SHOWN])
            more = f", and {len(others) - SHOWN} more" if len(others) > SHOWN else ""
            _logger.warning("%s: numbers that are written in two ways: %s%s", path, shown, more)
        return texts

    def _parsed(self, targets: Targets, row: TableRow, path: Path) -> Any:
        where = f"{path}, line {row.line}: {self.columns.label}"
        try:
            label = targets.parse(str(row.label))
        except ValueError as error:
            raise DataError(f"{where} {error}") from error
        if self.known is not None and isinstance(targets, Number) and not targets.lowest <= label <= targets.highest:
            ends = f"{targets.lowest:g} to {targets.highest:g}"
            raise DataError(f"{where} must be a number from {ends}, got {row.label!r}")
        return label


def table_files(given: str) -> tuple[str, str, str | None]:
    """The name, the file and the validation file of NAME=FILE or NAME=FILE,VALIDATION_FILE.

    Raises: ValueError for other texts.
    """
    name, equals, files = given.partition("=")
    paths = [os.path.expanduser(path) for path in files.split(",")]
    if not name.isidentifier() or not equals or not all(paths) or len(paths) > 2:
        raise ValueError(
            f"data.tables must be NAME=FILE or NAME=FILE,VALIDATION_FILE, with a name of letters, got {given!r}"
        )
    return name, paths[0], paths[1] if len(paths) == 2 else None


def table_source(given: str, dialect: Dialect) -> RowSource:
    """A table that is one of several parts, with pairs, and with classes or numbers, by its columns.

    Args:
      given: as for `table_files`.
      dialect: of the files.

    Raises: FileNotFoundError; DataError naming the file.
    """
    _, train, validation = table_files(given)
    header = read_header(Path(train), dialect)
    if (LABEL in header) == (SCORE in header):
        raise DataError(
            f"{train}, line 1: expected the column {LABEL} for classes, or {SCORE} for numbers, got {', '.join(header)}"
        )
    source = source_of_columns(2 if PAIR in header else 1, number=SCORE in header, dialect=dialect)
    return dataclasses.replace(source, path=train, validation=validation)


def source_of_columns(texts: int, *, number: bool, dialect: Dialect) -> RowSource:
    """A table with the columns of one of several parts: this number of texts, and classes or numbers."""
    columns = Columns((TEXT, PAIR)[:texts], SCORE if number else LABEL)
    return RowSource(columns, predict="number" if number else "class", dialect=dialect)


def parts_of_file(path: Path, sources: Mapping[str, RowSource]) -> list[str]:
    """The parts of a file: the one with its labels; or, without labels, all with such texts; or the first, so that
    reading the file names the missing columns.

    Raises: DataError when its labels fit several parts.
    """
    if len(sources) == 1:
        return list(sources)
    headers = {name: read_header(path, source.dialect) for name, source in sources.items()}
    fitting = [name for name, source in sources.items() if {*source.columns.texts} <= {*headers[name]}]
    labelled = [name for name in fitting if sources[name].columns.label in headers[name]]
    if not labelled:
        columns = " or ".join(sorted({source.columns.label for source in sources.values()}))
        _logger.warning("%s has no labels: it does not have the column %s", path, columns)
        return fitting or list(sources)[:1]
    most = max(len(sources[name].columns.texts) for name in labelled)  # a table of pairs has single texts, too
    chosen = [name for name in labelled if len(sources[name].columns.texts) == most]
    if len(chosen) > 1:
        raise DataError(
            f"{path} has the column {sources[chosen[0]].columns.label}, which {' and '.join(chosen)} have; score it "
            "with a run of one of them"
        )
    return chosen
