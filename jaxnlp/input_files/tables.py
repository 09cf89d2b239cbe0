"""Rows of tables with texts and labels: CSV, TSV and JSON lines, also compressed by gzip."""

import csv
import dataclasses
import io
import json
import logging
import math
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from jaxnlp.corpus import DataError, SourceRows
from jaxnlp.input_files.delimited import (
    Quotes,
    between,
    find_delimiter,
    header_fields,
    read_records,
    repeated_headers,
    stated_delimiter,
)
from jaxnlp.input_files.json_objects import json_objects
from jaxnlp.input_files.text_files import SEEN, UTF_8, has_surrogate, is_blank, read_text_file, warn_of_skipped

TableFormat = Literal["csv", "tsv", "json"]
ENDINGS: dict[str, TableFormat] = {
    **{".csv": "csv", ".tsv": "tsv", ".tab": "tsv", ".txt": "tsv"},
    **{".jsonl": "json", ".ndjson": "json", ".json": "json"},
}
USUAL_DELIMITERS = {"csv": ",", "tsv": "\t"}
MOST_NAMES = 20
"""Maximum number of columns in a message."""
_ROWS = "; write an object for each row, as pandas does with orient='records'"
"""The remedy for other JSON, such as pandas writes with another orient."""

_logger = logging.getLogger(__name__)


class MissingColumnsError(DataError):
    """A table does not have the columns to read."""


class Columns(NamedTuple):
    """The columns to read.

    Attributes:
      texts: of the text, or of both texts of a pair.
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
      line: line of the file at which the row starts, from 1; several rows of JSON may share it.
      position: of the row in its table, from 0.
      id: its name.
      texts: one or two.
      label: stripped; None = not read.
      cells: of all columns of the table.
    """

    line: int
    position: int
    id: str
    texts: tuple[str, ...]
    label: str | None
    cells: tuple[str, ...] = ()

    @property
    def is_blank(self) -> bool:
        """Whether a text is blank."""
        return any(map(is_blank, self.texts))


class UserTable(NamedTuple):
    """All columns of a table, and all its rows."""

    columns: tuple[str, ...]
    rows: list[TableRow]

    def source(self, kept: Sequence[TableRow]) -> SourceRows:
        """The table as the source of examples from its `kept` rows."""
        names, cells = [row.id for row in self.rows], [row.cells for row in self.rows]
        return SourceRows([row.position for row in kept], names, self.columns, cells)


@dataclasses.dataclass(frozen=True)
class Dialect:
    """The format of a table's text, as the dialects of Python's csv.

    Attributes:
      format: None = by the file's suffix.
      delimiter: one character between fields; None = by the format, or by the header if columns are missing.
      quotes: as `jaxnlp.input_files.delimited.read_records`.
      encoding: of the file.
    """

    format: TableFormat | None = None
    delimiter: str | None = None
    quotes: Quotes = "auto"
    encoding: str = UTF_8


def is_table(path: Path) -> bool:
    """Whether a file's suffix is a table's; .txt is not, since most such files have one text a line."""
    suffix = _suffix(path)
    return suffix in ENDINGS and suffix != ".txt"


def warn_of_tables(paths: Sequence[Path]) -> None:
    """Warns of files that are read as text although their suffixes are tables': column names, quotes and separators
    become text."""
    if tables := [path for path in paths if is_table(path)]:
        _logger.warning(
            "%s: all characters are read as text, with the names and quotes of a table%s; to read the texts of a "
            "column, write them to a .txt file",
            *(tables[0], f", and so are those of {len(tables) - 1:,} more files" if len(tables) > 1 else ""),
        )


def table_format(path: Path) -> TableFormat:
    """The format of a table by its suffix. Raises: DataError for other suffixes."""
    if _suffix(path) not in ENDINGS:
        raise DataError(
            f"{path} must end in .csv (fields separated by commas), .tsv or .txt (by tabs), .jsonl or .json (objects), "
            "or in one of these with .gz; save a spreadsheet as .csv"
        )
    return ENDINGS[_suffix(path)]


def _suffix(path: Path) -> str:
    return Path(path.name.lower().removesuffix(".gz")).suffix


def read_header(path: Path, dialect: Dialect = Dialect()) -> list[str]:  # a constant
    """The columns of a table, or the names of all JSON objects. Raises: FileNotFoundError, DataError."""
    format, text = dialect.format or table_format(path), read_text_file(path, dialect.encoding)
    if format != "json":
        stated, text = stated_delimiter(text)
        delimiter = dialect.delimiter or stated or find_delimiter(text, USUAL_DELIMITERS[format], ())
        return header_fields(text, delimiter)
    return list(_names(_objects(path, text)))


def read_table(
    path: Path,
    columns: Columns,
    *,
    dialect: Dialect = Dialect(),  # a constant
    labelled: bool | None = None,
    separator: str | None = None,
) -> UserTable:
    """All rows of a table; texts and labels may be blank.

    Args:
      path: the file, perhaps .gz.
      columns: to read.
      dialect: of the file.
      labelled: whether labels are read, and required; None = read if they exist.
      separator: between the labels of a row that may have several. It joins those of a JSON list, and alone stands for
        an empty list or field; only null and \\N are missing labels. None = rows have one label, and lists are errors.

    Raises: FileNotFoundError, DataError when it cannot be read or has no rows, a column is missing, or a row is
      malformed.
    """
    format, text = dialect.format or table_format(path), read_text_file(path, dialect.encoding)
    if format == "json":
        table = _json_table(path, text, columns, labelled, separator)
    else:
        stated, text = stated_delimiter(text)
        delimiter = dialect.delimiter or stated
        if delimiter is None:
            usual = USUAL_DELIMITERS[format]
            delimiter = find_delimiter(text, usual, columns.needed(labelled=bool(labelled)))
            if delimiter != usual:
                shown = "tabs" if delimiter == "\t" else f'"{delimiter}"'
                _logger.warning("%s has columns separated by %s", path, shown)
        table = _delimited_table(path, text, columns, delimiter, dialect.quotes, labelled, separator)
    if not table.rows:
        raise DataError(f"{path} has no rows{' below its header' if format != 'json' else ''}")
    return table


def table_with(source: SourceRows, names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A user's table with further columns, as text: fields separated by commas.

    Args:
      source: all rows of the table.
      names: of the further columns; an existing name gets a number, as in `predicted 2`.
      rows: the further fields of each row of the table.
    """
    file, taken = io.StringIO(), source.columns
    numbered = ((name, *(f"{name} {number}" for number in range(2, len(taken) + 3))) for name in names)
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([*taken, *(next(name for name in those if name not in taken) for those in numbered)])
    writer.writerows([*cells, *row] for cells, row in zip(source.cells, rows, strict=True))
    return file.getvalue()


def rows_with_texts(path: Path, rows: Sequence[TableRow]) -> list[TableRow]:
    """Removes rows with a blank text; a warning counts them. Raises: DataError when all rows are blank."""
    return _without(path, rows, lambda row: row.is_blank, "a text")


def _without(
    path: Path, rows: Sequence[TableRow], lacks: Callable[[TableRow], bool], what: str, fate: str = "skipped"
) -> list[TableRow]:
    in_lines = len({row.line for row in rows}) == len(rows)  # not in a list of JSON with several rows in a line
    places = [row.line if in_lines else f"row {row.position + 1}" for row in rows if lacks(row)]
    warn_of_skipped(path, places, len(rows), "rows", f"without {what}", fate)
    return [row for row in rows if not lacks(row)]


def labelled_rows(
    path: Path, rows: list[TableRow], column: str, *, labelled: bool | None = True, fate: str = "skipped"
) -> list[TableRow]:
    """Removes rows with an empty label; a warning counts them.

    Args:
      path: of the table.
      rows: of the table.
      column: of the labels.
      labelled: whether labels are required. Otherwise a table without labels keeps all rows, with the label None.
      fate: of the removed rows, for the warning.

    Raises: DataError when no row has a required label.
    """
    without = sum(row.label == "" for row in rows)
    if not without:
        return rows
    if without == len(rows):
        if not labelled:
            return [row._replace(label=None) for row in rows]
        raise DataError(f"{path}: no row has a label in the column {column}")
    return _without(path, rows, lambda row: row.label == "", "a label", fate)


def _delimited_table(
    path: Path,
    text: str,
    columns: Columns,
    delimiter: str,
    quotes: Quotes,
    labelled: bool | None,
    separator: str | None,
) -> UserTable:
    records = read_records(text, str(path), delimiter, quotes)
    header = tuple(name.strip() for record in records[:1] for name in record.fields)
    where = f"{path}, line {records[0].line if records else 1}"
    indices = _indices(header, where, columns, between(delimiter), labelled)
    repeated = repeated_headers(records[1:], header, str(path))
    rows = [
        TableRow(
            line,
            index,
            str(index + 1) if columns.id is None else fields[indices[columns.id]],
            tuple("" if line in repeated else _unless_null(fields[indices[name]]) for name in columns.texts),
            _unless_null(fields[indices[columns.label]].strip() or separator or "")
            if columns.label in indices
            else None,
            tuple(fields),
        )
        for index, (line, fields) in enumerate(records[1:])
    ]
    return UserTable(header, rows)


def _unless_null(field: str) -> str:
    """The field; an empty one for MySQL's and PostgreSQL's sign for a missing value."""
    return "" if field == r"\N" else field


def _indices(
    header: Sequence[str], where: str, columns: Columns, between: str, labelled: bool | None
) -> dict[str, int]:
    """The index of each column that is read."""
    needed = columns.needed(labelled=bool(labelled) or (labelled is None and columns.label in header))
    indices = {name: index for index, name in enumerate(header)}
    missing = [name for name in needed if name not in indices]
    if missing:
        raise MissingColumnsError(
            f"{where}: expected the column{'s' * (len(needed) > 1)} {', '.join(needed)} between {between}, got "
            f"{', '.join(header)}; missing: {_missing(missing, header)}"
        )
    repeated = [name for name in needed if list(header).count(name) > 1]
    if repeated:
        raise DataError(
            f"{where}: each column must occur once, got {', '.join(header)}; repeated: {', '.join(repeated)}"
        )
    return {name: indices[name] for name in needed}


def _missing(missing: Sequence[str], names: Sequence[str]) -> str:
    """Missing names for a message, with the difference from a similar name of the file."""
    shown = {_as_shown(name): name for name in names}
    alike = {name: shown.get(_as_shown(name)) for name in missing}
    return ", ".join(
        name if other is None else f"{name!a}, which the file writes as {other!a}" for name, other in alike.items()
    )


def _as_shown(name: str) -> str:
    """What a reader sees of a name: its composed characters, without signs that are not seen."""
    return "".join(SEEN.findall(unicodedata.normalize("NFC", name)))


def _json_table(path: Path, text: str, columns: Columns, labelled: bool | None, separator: str | None) -> UserTable:
    """The rows of objects. The columns are the names in any of them; missing names give empty fields."""
    objects = _objects(path, text)
    names = _names(objects)
    labelled = columns.label in names if labelled is None else labelled
    needed = columns.needed(labelled=labelled)
    missing = [name for name in needed if name not in names]
    if missing and objects:
        hint = _ROWS * (len(objects) == 1)
        raise MissingColumnsError(
            f"{path}, line {objects[0][0]}: expected the names {', '.join(needed)}, got "
            f"{', '.join(names[:MOST_NAMES]) or 'none'}; missing: {_missing(missing, names)}{hint}"
        )
    rows = list[TableRow]()
    for index, (line, fields) in enumerate(objects):
        where, given = f"{path}, line {line}", {name: _unless_nan(fields.get(name)) for name in needed}
        texts = tuple(_json_text(given[name], f"{where}: {name}") for name in columns.texts)
        name = str(index + 1) if columns.id is None else _json_label(given[columns.id], separator, f"{where}: name")
        label = _json_label(given[columns.label], separator, f"{where}: {columns.label}") if labelled else None
        cells = tuple(_json_cell(fields.get(column)) for column in names)
        rows.append(TableRow(line, index, name, texts, label, cells))
    return UserTable(names, rows)


def _objects(path: Path, text: str) -> list[tuple[int, dict[str, Any]]]:
    objects = list(json_objects(text, str(path)))
    for line, fields in objects:
        if not isinstance(fields, dict):
            raise DataError(f"{path}, line {line}: expected a JSON object, got {type(fields).__name__}{_ROWS}")
    return objects


def _names(objects: Sequence[tuple[int, dict[str, Any]]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for _, fields in objects for name in fields))


def _unless_nan(value: Any) -> Any:
    """The value; None for NaN, which pandas and json write for a missing one."""
    return None if value != value else value


def _json_cell(value: Any) -> str:
    """A value as in a CSV file."""
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()  # a half of a surrogate pair cannot be written
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def _json_text(value: Any, where: str) -> str:
    """A text; null is blank. A number is the text of a CSV file."""
    if value is None:
        return ""
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    if not isinstance(value, str):
        remedy = _ROWS if isinstance(value, dict | list) else ""
        raise DataError(f"{where} must be a text, got {json.dumps(value, ensure_ascii=False):.40}{remedy}")
    if has_surrogate(value):
        raise DataError(f"{where} has half of a surrogate pair, which is not a character: {value[:40]!a}; remove it")
    return value


def _json_label(value: Any, separator: str | None, where: str) -> str:
    """A label as in a CSV file; "" for null."""
    if isinstance(value, list):
        if separator is None:
            raise DataError(f"{where} is a list; set --data.predict classes if examples have several classes")
        parts = [_one_label(part, where) for part in value]
        if any(separator in part for part in parts):
            raise DataError(f"{where}: a label contains the separator {separator!r}; set another --data.separator")
        return separator.join(parts) or separator
    label = _one_label(value, where)
    return label if value is None else label or separator or ""


def _one_label(value: Any, where: str) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, float) and not math.isfinite(value):
        raise DataError(f"{where} must be a text or a finite number, got {json.dumps(value)}")
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    raise DataError(f"{where} must be a text, a number or a list of these, got {type(value).__name__}")
