"""The user's tables as parts of multi-task data: the columns decide the labels of each part."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from data import DataError
from data.readers.held_out import folds_of
from data.readers.text_tables import text_examples
from jaxnlp.input_files.tables import Columns, TableRow, Writing, labelled_rows, read_header, read_rows
from jaxnlp.targets import whole_number
from jaxnlp.text.labels import Labels, TextExample

TEXTS = ("text", "pair")
"""Columns of a text, and of the second text of a pair."""
LABEL, SCORE = "label", "score"
"""Columns of a class, and of the similarity of a pair."""
FOLDS = 10
"""Share of a table without a second file that is held out."""


class PartFiles(NamedTuple):
    """A part's name, its training table, and its validation table; None = a tenth of the rows is held out."""

    name: str
    train: Path
    validation: Path | None


class PartTables(NamedTuple):
    """A part's labels, and its examples for training and for validation."""

    labels: Labels
    train: tuple[TextExample, ...]
    validation: tuple[TextExample, ...]


def part_files(given: str) -> PartFiles:
    """Parses NAME=FILE or NAME=FILE,VALIDATION_FILE. Raises: ValueError for other texts."""
    name, equals, files = given.partition("=")
    paths = files.split(",")
    if not name.isidentifier() or not equals or not all(paths) or len(paths) > 2:
        raise ValueError(
            f"data.tables must be NAME=FILE or NAME=FILE,VALIDATION_FILE, with a name of letters, got {given!r}"
        )
    return PartFiles(name, Path(paths[0]), Path(paths[1]) if len(paths) == 2 else None)


def columns_for(labels: Labels) -> Columns:
    """The columns of a table with these labels."""
    return Columns(TEXTS[: labels.texts], SCORE if labels.kind == "similarity" else LABEL)


def read_part(files: PartFiles, writing: Writing = Writing()) -> PartTables:  # noqa: B008  # a constant
    """Reads a part: classes of texts or of pairs, or similarities of pairs.

    A table has the columns text, pair if examples are pairs, and label for classes or score for similarities.

    Args:
      files: of the part.
      writing: how they are written.

    Raises: FileNotFoundError; DataError naming the file, and the line if possible.
    """
    path, header = files.train, read_header(files.train, writing)
    texts = 2 if TEXTS[1] in header else 1
    if (LABEL in header) == (SCORE in header):
        raise DataError(
            f"{path}, line 1: expected the column {LABEL} for classes, or {SCORE} for similarities of pairs, got "
            f"{', '.join(header)}"
        )
    if SCORE in header and texts == 1:
        raise DataError(
            f"{path}, line 1: the column {SCORE} is the similarity of a pair, but the column {TEXTS[1]} is missing; "
            "`bert_classify --data.predict number` learns numbers of single texts"
        )
    columns = Columns(TEXTS[:texts], LABEL if LABEL in header else SCORE)
    rows = _rows(path, columns, writing)
    labels = _labels(path, columns, rows)
    if files.validation is not None:
        held_out = _rows(files.validation, columns, writing)
        return PartTables(
            labels,
            text_examples(path, rows, columns.label, labels),
            text_examples(files.validation, held_out, columns.label, labels),
        )
    examples = text_examples(path, rows, columns.label, labels)
    strata = [example.label if labels.names else None for example in examples]
    folds = folds_of(strata, FOLDS, seed=0)
    train = tuple(example for example, fold in zip(examples, folds, strict=True) if fold != 0)
    validation = tuple(example for example, fold in zip(examples, folds, strict=True) if fold == 0)
    if not validation:
        raise DataError(
            f"{path}: too few rows to hold out a tenth: {len(rows)}; give more, or a second file after a comma"
        )
    return PartTables(labels, train, validation)


def _rows(path: Path, columns: Columns, writing: Writing) -> list[TableRow]:
    return labelled_rows(path, read_rows(path, columns, writing=writing, labelled=True), columns.label)


def _labels(path: Path, columns: Columns, rows: Sequence[TableRow]) -> Labels:
    texts = len(columns.texts)
    if columns.label == LABEL:
        names = sorted({whole_number(str(row.label)) for row in rows})
        if len(names) < 2:
            raise DataError(f"{path}: the column {LABEL} has only one distinct label; expected at least two")
        return Labels("classification", texts, tuple(names))
    scores = []
    for row in rows:
        try:
            scores.append(float(str(row.label)))
        except ValueError as error:
            raise DataError(f"{path}, line {row.line}: {SCORE} must be a number, got {row.label!r}") from error
    if not 0.0 < max(scores) < float("inf"):
        raise DataError(f"{path}: the highest {SCORE} is {max(scores):g}; it must be a positive number")
    return Labels("similarity", 2, highest=max(scores))
