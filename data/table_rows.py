"""Rows of tables with texts and labels: CSV, TSV and JSON lines, also compressed by gzip."""

import csv
import io
import json
import logging
import math
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from data import DataError
from data.text_sources import read_utf8

TableFormat = Literal["csv", "tsv", "json"]
ENDINGS: dict[str, TableFormat] = {".csv": "csv", ".tsv": "tsv", ".tab": "tsv", ".jsonl": "json", ".json": "json"}
DELIMITERS = {"csv": ",", "tsv": "\t"}
MOST_NAMES = 20
"""Maximum number of columns in a message."""

_logger = logging.getLogger(__name__)


class MissingColumnsError(DataError):
    """A table does not have the columns to read."""


class Columns(NamedTuple):
    """The columns to read.

    Attributes:
      texts: of the text, or of both texts of a pair.
      label: of the label.
      id: of the examples' names; None = numbers from 1.
    """

    texts: tuple[str, ...]
    label: str
    id: str | None = None

    def needed(self, *, labelled: bool) -> tuple[str, ...]:
        """All columns that must exist."""
        return (*([] if self.id is None else [self.id]), *self.texts, *([self.label] if labelled else []))


class TableRow(NamedTuple):
    """A row, as text.

    Attributes:
      line: line of the file at which the row starts, from 1.
      id: its name.
      texts: one or two.
      label: without white space around it; None = the column is not read.
    """

    line: int
    id: str
    texts: tuple[str, ...]
    label: str | None


def format_of(path: Path) -> TableFormat:
    """The format of a table by its suffix. Raises: DataError for other suffixes."""
    ending = Path(path.name.lower().removesuffix(".gz")).suffix
    if ending not in ENDINGS:
        raise DataError(
            f"{path} must end in .csv (fields separated by commas), .tsv (by tabs) or .jsonl (a JSON object a line), "
            "or in one of these with .gz"
        )
    return ENDINGS[ending]


def read_rows(
    path: Path,
    columns: Columns,
    *,
    format: TableFormat | None = None,
    labelled: bool | None = None,
    separator: str | None = ",",
    keeps_unlabelled: bool = False,
) -> list[TableRow]:
    """The rows of a table whose texts are not empty.

    Args:
      path: the file; decompressed if its name ends in .gz.
      columns: the columns to read; others are ignored.
      format: of the file; None = by its suffix.
      labelled: whether the column of labels is read, and must exist; None = it is read if it exists.
      separator: joins the labels of a JSON list; None = lists are errors.
      keeps_unlabelled: whether rows with an empty label stay; otherwise `labelled_rows` removes them, and their texts
        may be empty.

    Raises:
      FileNotFoundError, DataError: when it cannot be read or has no rows, a column is missing, a row is malformed, or a
        text is empty; the message has the line and what was expected.
    """
    format = format or format_of(path)
    reader = (
        _json_rows(path, columns, labelled, separator)
        if format == "json"
        else _csv_rows(path, columns, DELIMITERS[format], labelled)
    )
    rows = []
    for row in reader:
        if row.label != "" or keeps_unlabelled:
            for name, text in zip(columns.texts, row.texts, strict=True):
                if not text.strip():
                    raise DataError(f"{path}, line {row.line}: {name} is empty; remove the row")
        rows.append(row)
    if not rows:
        raise DataError(f"{path} has no rows{' below its header' if format != 'json' else ''}")
    return rows


def labelled_rows(path: Path, rows: list[TableRow], column: str, *, labelled: bool | None = True) -> list[TableRow]:
    """Removes rows with an empty label; a warning counts them.

    Args:
      path: of the table.
      rows: of the table.
      column: of the labels.
      labelled: whether labels are required. If not, and no row has a label, all rows are kept, with the label None.

    Raises: DataError when labels are required, but no row has one.
    """
    without = sum(row.label == "" for row in rows)
    if not without:
        return rows
    if without == len(rows):
        if not labelled:
            return [row._replace(label=None) for row in rows]
        raise DataError(f"{path}: no row has a label in the column {column}")
    first = next(row.line for row in rows if row.label == "")
    _logger.warning("%s: rows without a label, which are ignored: %d, the first in line %d", path, without, first)
    return [row for row in rows if row.label != ""]


def _csv_rows(path: Path, columns: Columns, delimiter: str, labelled: bool | None) -> Iterator[TableRow]:
    # A process-wide limit of the module, 131,072 characters by default; a text may be longer.
    csv.field_size_limit(sys.maxsize)
    # Strict: otherwise an unclosed quote would make the rest of the file one field.
    reader = csv.reader(io.StringIO(read_utf8(path), newline=""), delimiter=delimiter, strict=True)
    places: dict[str, int] = {}
    number, width, begins = 0, 0, 1
    fields_between = {"\t": "tabs", ",": "commas"}[delimiter]
    try:
        for fields in reader:
            line, begins = begins, reader.line_num + 1
            if not places:
                places, width = _places(fields, path, columns, fields_between, labelled), len(fields)
                continue
            if not fields:  # a blank line, which csv.DictReader ignores too
                continue
            if len(fields) != width:
                raise DataError(
                    f"{path}, line {line}: expected {width} fields between {fields_between}, as in the header, got "
                    f'{len(fields)}; quote a field that contains a {fields_between[:-1]} or a quote, with "" for a '
                    "quote"
                )
            number += 1
            yield TableRow(
                line,
                str(number) if columns.id is None else fields[places[columns.id]],
                tuple(fields[places[name]] for name in columns.texts),
                fields[places[columns.label]].strip() if columns.label in places else None,
            )
    except csv.Error as error:
        raise DataError(
            f"{path}, line {begins}: {error}; a quote may be unclosed. Write a field that contains a quote between "
            'quotes, with "" for each quote in it'
        ) from error


def _places(header: Sequence[str], path: Path, columns: Columns, between: str, labelled: bool | None) -> dict[str, int]:
    """The index of each column that is read."""
    needed = columns.needed(labelled=bool(labelled) or (labelled is None and columns.label in header))
    found = {name: place for place, name in enumerate(header)}
    missing = [name for name in needed if name not in found]
    if missing:
        raise MissingColumnsError(
            f"{path}, line 1: expected the column{'s' * (len(needed) > 1)} {', '.join(needed)} between {between}, got "
            f"{', '.join(header)}; missing: {', '.join(missing)}"
        )
    repeated = [name for name in needed if list(header).count(name) > 1]
    if repeated:
        raise DataError(
            f"{path}, line 1: each column must occur once, got {', '.join(header)}; repeated: {', '.join(repeated)}"
        )
    return {name: found[name] for name in needed}


def _json_rows(path: Path, columns: Columns, labelled: bool | None, separator: str | None) -> Iterator[TableRow]:
    number, optional = 0, labelled is None
    for line, text in enumerate(read_utf8(path).split("\n"), 1):
        if not text.strip():
            continue
        where = f"{path}, line {line}"
        try:
            fields = json.loads(text, object_pairs_hook=_object)
        except ValueError as error:
            what = f"{error.msg} at character {error.colno}" if isinstance(error, json.JSONDecodeError) else str(error)
            raise DataError(f"{where}: not JSON: {what}; expected one JSON object a line") from error
        if not isinstance(fields, dict):
            raise DataError(f"{where}: expected a JSON object, got {type(fields).__name__}")
        if labelled is None:  # the first row decides
            labelled = columns.label in fields
        if optional and not labelled and columns.label in fields:
            raise DataError(
                f"{where}: this row has {columns.label}, but the rows before it do not; give each row a label, or none"
            )
        needed = columns.needed(labelled=labelled)
        missing = [name for name in needed if name not in fields]
        if missing:
            there = ", ".join(list(fields)[:MOST_NAMES]) or "none"
            raise MissingColumnsError(
                f"{where}: expected the names {', '.join(needed)}, got {there}; missing: {', '.join(missing)}"
            )
        number += 1
        texts = tuple(_json_text(fields[name], f"{where}: {name}") for name in columns.texts)
        name = str(number) if columns.id is None else _json_label(fields[columns.id], separator, f"{where}: name")
        label = _json_label(fields[columns.label], separator, f"{where}: {columns.label}") if labelled else None
        yield TableRow(line, name, texts, label)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object. Raises: ValueError for a name that occurs twice, of which only the last would count."""
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError(f"the name {Counter(name for name, _ in pairs).most_common(1)[0][0]!r} occurs twice")
    return fields


def _json_text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise DataError(f"{where} must be a text, got {json.dumps(value, ensure_ascii=False):.40}")
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise DataError(f"{where} has half of a surrogate pair, which is not a character: {value[:40]!a}; remove it")
    return value


def _json_label(value: Any, separator: str | None, where: str) -> str:
    """A label as in a CSV file: null is an empty field, and the separator joins the labels of a list."""
    if value is None:
        return ""
    if isinstance(value, list):
        if separator is None:
            raise DataError(f"{where} is a list; set --data.predict classes if examples have several classes")
        parts = [_json_label(part, separator, where) for part in value]
        if any(separator in part for part in parts):
            raise DataError(f"{where}: a label contains the separator {separator!r}; set another --data.separator")
        return separator.join(parts) or separator
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, float) and not math.isfinite(value):
        raise DataError(f"{where} must be a text or a finite number, got {json.dumps(value)}")
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    raise DataError(f"{where} must be a text, a number or a list of these, got {type(value).__name__}")
