"""Tables of the minBERT project's texts, or pairs of texts, with labels."""

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
    """The examples of a file. Rows whose label is empty are left out, with a warning.

    Args:
      path: the file; compressed by gzip if it ends in .gz.
      columns: those to read; others are ignored.
      labels: which labels there are.
      format: of the file.
      labelled: whether the column of labels is read, and must exist; None = if it exists.

    Raises:
      FileNotFoundError, DataError: when it cannot be read, a column is missing, or a row is malformed; the message says
        which line, what was found and what was expected.
    """
    rows = labelled_rows(path, read_rows(path, columns, format=format, labelled=labelled), columns.label)
    return text_examples(path, rows, columns.label, labels)


def text_examples(path: Path, rows: Sequence[TableRow], column: str, labels: Labels) -> tuple[TextExample, ...]:
    """Rows of a file as examples. Raises: DataError naming the line whose label, in this column, is none of these."""
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
