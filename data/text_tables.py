"""Tables of the minBERT project's texts, or pairs of texts, with labels."""

import dataclasses
from pathlib import Path

from data import DataError
from data.table_rows import DELIMITERS, Columns, TableFormat, read_rows
from data.text_sources import read_utf8
from jaxnlp.text.labels import Labels, TextExample


@dataclasses.dataclass(frozen=True)
class Table:
    """The examples of a file, and the number of rows that were left out since their label is empty."""

    rows: tuple[TextExample, ...]
    skipped: int


def read_header(path: Path, *, format: TableFormat) -> list[str]:
    """The columns of a table. Raises: FileNotFoundError, DataError: when it cannot be read."""
    header = read_utf8(path).partition("\n")[0].rstrip("\r")
    return [name.strip('"') for name in header.split(DELIMITERS[format])]


def read_table(
    path: Path, columns: Columns, labels: Labels, *, format: TableFormat, labelled: bool | None = None
) -> Table:
    """The examples of a file.

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
    rows: list[TextExample] = []
    skipped = 0
    for row in read_rows(path, columns, format=format, labelled=labelled):
        if row.label == "":
            skipped += 1
            continue
        label = None
        if row.label is not None:
            try:
                label = labels.parse(row.label)
            except ValueError as error:
                raise DataError(f"{path}, line {row.line}: {columns.label} {error}") from error
        first, *rest = row.texts
        rows.append(TextExample(row.id, first, rest[0] if rest else None, label))
    if not rows:
        raise DataError(f"{path} has no rows with labels below its header")
    return Table(tuple(rows), skipped)
