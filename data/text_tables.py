"""Tables of texts, or pairs of texts, with labels: a header, fields quoted as CSV."""

import csv
import dataclasses
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from data import DataError
from data.text_sources import read_utf8
from jaxnlp.text.labels import Labels, TextExample


class Columns(NamedTuple):
    """The columns that are read.

    Attributes:
      texts: of the text, or of both texts of a pair.
      label: of the label.
      id: of the examples' names; None = they are numbered from 1.
    """

    texts: tuple[str, ...]
    label: str
    id: str | None = None


@dataclasses.dataclass(frozen=True)
class Table:
    """The examples of a file, and the number of rows that were left out since their label is empty."""

    rows: tuple[TextExample, ...]
    skipped: int


def read_header(path: Path, *, delimiter: str) -> list[str]:
    """The columns of a table. Raises: FileNotFoundError, DataError: when it cannot be read."""
    header = read_utf8(path).partition("\n")[0].rstrip("\r")
    return [name.strip('"') for name in header.split(delimiter)]


def read_table(path: Path, columns: Columns, labels: Labels, *, delimiter: str, labelled: bool | None = None) -> Table:
    """The examples of a file.

    Args:
      path: the file; compressed by gzip if it ends in .gz.
      columns: those to read; others are ignored.
      labels: which labels there are.
      delimiter: between fields.
      labelled: whether the column of labels is read, and must exist; None = if it exists.

    Raises:
      FileNotFoundError, DataError: when it cannot be read, a column is missing, or a row is malformed; the message says
        which line, what was found and what was expected.
    """
    rows: list[TextExample] = []
    skipped = 0
    for row in _rows(path, columns, delimiter, labelled):
        if row.label == "":
            skipped += 1
            continue
        label = None
        if row.label is not None:
            try:
                label = labels.parse(row.label)
            except ValueError as error:
                raise DataError(f"{path}, line {row.line}: {columns.label} {error}") from error
        for name, text in zip(columns.texts, row.texts, strict=True):
            if not text.strip():
                raise DataError(f"{path}, line {row.line}: {name} is empty; remove the row")
        first, *rest = row.texts
        rows.append(TextExample(row.id, first, rest[0] if rest else None, label))
    if not rows:
        raise DataError(f"{path} has no rows{' with labels' if skipped else ''} below its header")
    return Table(tuple(rows), skipped)


def read_label_names(path: Path, columns: Columns, *, delimiter: str) -> tuple[str, ...]:
    """The distinct labels of a file, sorted. Raises: as `read_table`."""
    return tuple(sorted({row.label for row in _rows(path, columns, delimiter, labelled=True) if row.label}))


class _Row(NamedTuple):
    line: int
    id: str
    texts: tuple[str, ...]
    label: str | None
    """Without white space around it; None = the column is not read."""


def _rows(path: Path, columns: Columns, delimiter: str, labelled: bool | None) -> Iterator[_Row]:
    # A process-wide setting of the module, 131,072 characters by default; a text may be longer.
    csv.field_size_limit(sys.maxsize)
    # Strict: a quote that is never closed would otherwise swallow the rest of the file.
    reader = csv.reader(io.StringIO(read_utf8(path), newline=""), delimiter=delimiter, strict=True)
    places: dict[str, int] = {}
    number, width, begins = 0, 0, 1
    try:
        for fields in reader:
            line, begins = begins, reader.line_num + 1
            if not places:
                places, width = _places(fields, path, columns, delimiter, labelled), len(fields)
                continue
            if not fields:  # a blank line, which csv.DictReader ignores too
                continue
            if len(fields) != width:
                raise DataError(
                    f"{path}, line {line}: expected {width} fields between {_name(delimiter)}, as in the header, got "
                    f'{len(fields)}; quote a field that contains a {_name(delimiter)[:-1]} or a quote, with "" for a '
                    "quote"
                )
            number += 1
            yield _Row(
                line,
                str(number) if columns.id is None else fields[places[columns.id]],
                tuple(fields[places[name]] for name in columns.texts),
                fields[places[columns.label]].strip() if columns.label in places else None,
            )
    except csv.Error as error:
        raise DataError(f"{path}, line {begins}: {error}; is a quote not closed?") from error


def _places(header: list[str], path: Path, columns: Columns, delimiter: str, labelled: bool | None) -> dict[str, int]:
    """The index of each column that is read."""
    needed = (*([] if columns.id is None else [columns.id]), *columns.texts)
    if labelled or (labelled is None and columns.label in header):
        needed = (*needed, columns.label)
    found = {name: place for place, name in enumerate(header)}
    missing = [name for name in needed if name not in found]
    if missing:
        raise DataError(
            f"{path}, line 1: expected the columns {', '.join(needed)} between {_name(delimiter)}, got "
            f"{', '.join(header)}; missing: {', '.join(missing)}"
        )
    repeated = [name for name in needed if header.count(name) > 1]
    if repeated:
        raise DataError(
            f"{path}, line 1: each column must occur once, got {', '.join(header)}; repeated: {', '.join(repeated)}"
        )
    return {name: found[name] for name in needed}


def _name(delimiter: str) -> str:
    return {"\t": "tabs", ",": "commas"}.get(delimiter, f"{delimiter!r}s")
