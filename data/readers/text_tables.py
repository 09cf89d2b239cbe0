"""Tables of labelled texts, or pairs of texts, of the minBERT project."""

from collections.abc import Sequence
from pathlib import Path

from data import DataError
from jaxnlp.corpus import SourceRows
from jaxnlp.input_files import tables
from jaxnlp.input_files.tables import Columns, TableRow, Writing, labelled_rows, rows_with_texts
from jaxnlp.text.labels import Labels, TextExample


def read_table(
    path: Path, columns: Columns, labels: Labels, *, writing: Writing, labelled: bool | None = None
) -> tuple[tuple[TextExample, ...], SourceRows]:
    """Reads the examples of a file, and all its rows. Rows with a blank text or label are skipped, with a warning.

    Args:
      path: the file; compressed by gzip if it ends in .gz.
      columns: the columns to read; others are ignored.
      labels: the allowed labels.
      writing: how the file is written.
      labelled: whether the column of labels is read, and must exist; None = it is read if it exists.

    Raises:
      FileNotFoundError, DataError: when it cannot be read, a column is missing, or a row is malformed; the message has
        the line and what was expected.
    """
    table = tables.read_table(path, columns, writing=writing, labelled=labelled)
    rows = labelled_rows(path, rows_with_texts(path, table.rows), columns.label)
    return text_examples(path, rows, columns.label, labels), table.source(rows)


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
