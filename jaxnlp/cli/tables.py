"""Tables of users: their texts as the input of verbs, and their columns in files of predictions."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jaxnlp.corpus import DataError, SourceRows
from jaxnlp.input_files.tables import Columns, MissingColumnsError, TableRow, Writing, read_table


class TextColumns(NamedTuple):
    """Where a table has the texts that a model reads.

    Attributes:
      texts: columns of the text, and of the second text of a pair.
      writing: how the table is written.
    """

    texts: tuple[str, ...] = ("text", "pair")
    writing: Writing = Writing()

    @classmethod
    def of_run(cls, config: Mapping[str, Any] | None) -> "TextColumns":
        """Those of the run's training table. Args: config: of the run, as JSON; None = it is not a run."""
        data = (config or {}).get("data", {})
        texts = tuple(data.get(name) or name for name in ("text", "pair"))
        fields = {name: data[name] for name in ("delimiter", "quotes", "encoding") if name in data}
        return cls(texts, Writing(**fields))


def table_rows(file: Path, columns: TextColumns, count: int) -> list[TableRow]:
    """All rows of a table; their texts may be blank.

    Args:
      file: the table.
      columns: where it has texts.
      count: number of texts in a row, 1 or 2.

    Raises: FileNotFoundError; DataError naming the file, and the line if possible.
    """
    try:
        return read_table(file, Columns(columns.texts[:count], ""), writing=columns.writing, labelled=False).rows
    except MissingColumnsError as error:
        raise DataError(
            f"{error}; name the columns as in training, or give a file with one text a line, with a name in .txt"
        ) from error


def table_with(source: SourceRows, names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A user's table with further columns, as text: fields separated by commas.

    Args:
      source: all rows of the table.
      names: of the further columns; a name that the table has gets a number, as in `predicted 2`.
      rows: the further fields of each row of the table.
    """
    file, taken = io.StringIO(), source.columns
    numbered = ((name, *(f"{name} {number}" for number in range(2, len(taken) + 3))) for name in names)
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([*taken, *(next(name for name in those if name not in taken) for those in numbered)])
    writer.writerows([*cells, *row] for cells, row in zip(source.cells, rows, strict=True))
    return file.getvalue()
