"""Tables of labelled texts, or pairs of texts, of the minBERT project."""

from collections.abc import Sequence
from pathlib import Path

from data import DataError
from data.table_rows import DELIMITERS, Columns, TableFormat, TableRow, labelled_rows, read_rows
from data.text_sources import read_utf8
from jaxnlp.text.labels import Labels, TextExample


def read_header(path: Path, *, format: TableFormat) -> list[str]:
    """The columns of a table. Raises: FileNotFoundError, DataError: when it cannot be read."""
    header = read_utf8(path).partition("\n")[0].rstrip("\r")
    return [name.strip('"') for name in header.split(DELIMITERS[format])]


def read_table(
    path: Path, columns: Columns, labels: Labels, *, format: TableFormat, labelled: bool | None = None
) -> tuple[TextExample, ...]:
    """Reads the examples of a file. Rows with an empty label are ignored, with a warning.

    Args:
      path: the file; compressed by gzip if it ends in .gz.
      columns: the columns to read; others are ignored.
      labels: the allowed labels.
      format: of the file.
      labelled: whether the column of labels is read, and must exist; None = it is read if it exists.

    Raises:
      FileNotFoundError, DataError: when it cannot be read, a column is missing, or a row is malformed; the message has
        the line and what was expected.
    """
    rows = labelled_rows(path, read_rows(path, columns, format=format, labelled=labelled), columns.label)
    return text_examples(path, rows, columns.label, labels)


def text_examples(path: Path, rows: Sequence[TableRow], column: str, labels: Labels) -> tuple[TextExample, ...]:
    """Turns rows of a file into examples. Raises: DataError naming the line with an unknown label in this column."""
    found = []
    for row in rows:
        label = None
        if row.label is not None:
            try:
                label = labels.parse(row.label)
            except ValueError as error:
                raise DataError(f"{path}, line {row.line}: {column} {error}") from error
        first, *rest = row.texts
        found.append(TextExample(row.id, first, rest[0] if rest else None, label))
    return tuple(found)
