"""Delimiters, quotes and rows of CSV, TSV and similar files; `input_files.tables` reads whole files.

Three conventions are in use. Spreadsheets enclose a field with delimiters, line breaks or quotes in quotes, and double
the quotes in it (RFC 4180). Spark and MySQL put a backslash before a quote in a quoted field. Other files, such as
GLUE's, have no quoting: read as the first kind, they lose rows, since a quote at the start of a field encloses all rows
up to the next quote.
"""

import contextlib
import csv
import itertools
import logging
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

from jaxnlp.corpus import DataError

Quotes = Literal["auto", "csv", "backslash", "none"]
DELIMITERS = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "vertical bars"}
"""Known delimiters, and their names in messages."""
_OTHERS: tuple[tuple[Quotes, str], ...] = (
    ("backslash", "quotes in fields are read with a backslash before them; set --data.quotes csv if they are doubled"),
    (
        "none",
        "quotes are read as characters, because they do not enclose fields; if they do, set --data.quotes csv",
    ),
)
"""Conventions that auto tries where quotes do not enclose fields, and the warnings about them."""

_logger = logging.getLogger(__name__)


class Record(NamedTuple):
    """A row: the line at which it starts, from 1, and its fields."""

    line: int
    fields: list[str]


def checked_delimiter(delimiter: str | None, field: str) -> str | None:
    r"""The delimiter, a tab for `\t` typed in a shell. Raises: ValueError naming the field."""
    if delimiter == r"\t":
        return "\t"
    if delimiter is not None and (len(delimiter) != 1 or delimiter in '"\r\n'):
        raise ValueError(f"{field} must be one character, but not a quote or a line break, got {delimiter!r}")
    return delimiter


def between(delimiter: str) -> str:
    """The delimiter in words: `commas`."""
    return DELIMITERS.get(delimiter, repr(delimiter))


def stated_delimiter(text: str) -> tuple[str | None, str]:
    """The delimiter in the first line, as `sep=;` for Excel, and the text with this line empty."""
    stated = re.match(r"sep=(.)\n", text)
    return (stated[1], text[len("sep=;") :]) if stated else (None, text)


def header_fields(text: str, delimiter: str) -> list[str]:
    """The fields of the first line with text, stripped; [] = no such line."""
    first = next((line for line in text.split("\n") if line.strip()), "")
    reader = _reader([first.replace("\r", " ")], delimiter=delimiter, skipinitialspace=True)
    return [field.strip() for field in next(reader, [])]


def find_delimiter(text: str, usual: str, needed: Sequence[str]) -> str:
    """The delimiter of a table: the usual one, unless the header has the needed columns only with another one.

    If no columns are needed, or no delimiter gives them, it is the usual one, or for a header of a single column the
    one with the most columns.
    """
    names = {delimiter: header_fields(text, delimiter) for delimiter in (usual, *DELIMITERS)}
    for delimiter, fields in names.items():
        if needed and set(needed) <= set(fields):
            return delimiter
    return usual if len(names[usual]) > 1 else max(names, key=lambda delimiter: len(names[delimiter]))


def repeated_headers(rows: Sequence[Record], header: Sequence[str], file: str) -> set[int]:
    """The lines of rows that repeat the header, as in tables that are joined with their headers; a warning counts
    them."""
    lines = [line for line, fields in rows if [field.strip("\ufeff \t") for field in fields] == [*header]]
    if lines:
        _logger.warning(
            "%s: rows that repeat the header, which are read as blank: %s of %s, the first in line %d",
            *(file, f"{len(lines):,}", f"{len(rows):,}", lines[0]),
        )
    return set(lines)


def read_records(text: str, file: str, delimiter: str, quotes: Quotes = "auto") -> list[Record]:
    """The rows of a table, the header first. Empty lines are not rows, except in a table of one column.

    Spreadsheets may leave out delimiters for empty fields at the end of a row; a warning counts such rows. If no row
    has a delimiter, the first is refused.

    Args:
      text: of the file, with LF at line ends.
      file: its name, for messages.
      delimiter: one character.
      quotes: csv = quotes enclose fields, and are doubled in them; backslash = as csv, with a backslash before them;
        none = quotes are characters; auto = csv, unless quotes would enclose whole rows or are not closed; then
        backslash, if the rows get the right width; otherwise none for files with tabs, and an error for others.

    Raises: DataError naming the line of a row with more fields than the header, or of an unclosed or ambiguous quote.
    """
    lines = text.removesuffix("\n").split("\n")
    with contextlib.suppress(DataError):
        return _read(text, lines, file, delimiter, quotes)
    records = _read(text, lines, file, delimiter, quotes, short=True)
    width = len(records[0].fields)
    short = [record.line for record in records if len(record.fields) < width]
    if short:
        _logger.warning(
            "%s: rows with fewer fields than the header: %s of %s, the first in line %d; their last fields are empty",
            *(file, f"{len(short):,}", f"{len(records) - 1:,}", short[0]),
        )
    return [Record(line, [*fields, *[""] * (width - len(fields))]) for line, fields in records]


def _read(
    text: str, lines: Sequence[str], file: str, delimiter: str, quotes: Quotes, *, short: bool = False
) -> list[Record]:
    """The rows in a convention. Args: short: whether rows may have fewer fields than the header. Raises: DataError."""
    if quotes != "auto":
        return _records(text, lines, file, delimiter, quotes, short)
    usual: Quotes = "csv" if '"' in text else "none"
    try:
        return _certain(text, lines, file, delimiter, usual, short)
    except DataError:
        others = _OTHERS if usual == "csv" else _OTHERS[:1]
        header = next((line for line in lines if line), "")
        fits = {
            "backslash": re.search(rf'\\["{re.escape(delimiter)}]', text) is not None,
            "none": delimiter == "\t" in header and '"' not in header and not short,
        }
        for other, note in others:
            with contextlib.suppress(DataError):
                if fits[other]:
                    records = _certain(text, lines, file, delimiter, other, short)
                    _logger.warning("%s: %s", file, note)
                    return records
        raise


def _certain(text: str, lines: Sequence[str], file: str, delimiter: str, quotes: Quotes, short: bool) -> list[Record]:
    """The rows in a convention, if no quoted field may be several rows. Raises: DataError."""
    records = _records(text, lines, file, delimiter, quotes, short)
    _refuse_doubtful(records, lines, file, delimiter)
    return records


def _records(text: str, lines: Sequence[str], file: str, delimiter: str, quotes: Quotes, short: bool) -> list[Record]:
    """The rows in a convention that is not auto. Raises: DataError."""
    if quotes == "backslash":
        return _escaped(lines, file, delimiter, short)
    if quotes == "csv" and '"' in text:
        return _enclosed(text, lines, file, delimiter, short)
    return _checked(_plain(lines, delimiter), file, delimiter, short)


def _plain(lines: Sequence[str], delimiter: str) -> list[Record]:
    """The rows without quoting."""
    return _without_empty([Record(line, text.split(delimiter)) for line, text in enumerate(lines, 1)])


def _enclosed(text: str, lines: Sequence[str], file: str, delimiter: str, short: bool) -> list[Record]:
    """The rows with quoted fields, as in `a, "b"` if blanks between delimiters and quotes then leave other fields.

    Blanks after a closing quote, as in `"a" , b`, are left out if the rows have no other reading.
    """
    spaced, sign = None, re.escape(delimiter)
    if delimiter != "\t" and re.search(rf'{sign} +"', text):
        with contextlib.suppress(DataError):
            spaced = _checked(_quoted(lines, file, delimiter, blanks=True), file, delimiter, short)
    try:
        records = _checked(_quoted(lines, file, delimiter), file, delimiter, short)
    except DataError:
        if spaced is not None:
            return spaced
        closing = re.compile(rf'((?:(?:^|{sign}) *"|[^"{sign}])(?:"")*") +(?={sign}|$)')
        closed = [closing.sub(r"\1", line) for line in lines] if delimiter != "\t" else lines
        if closed != lines:
            with contextlib.suppress(DataError):
                return _enclosed("\n".join(closed), closed, file, delimiter, short)
        raise
    return records if spaced is None or _stripped(spaced) == _stripped(records) else spaced


def _escaped(lines: Sequence[str], file: str, delimiter: str, short: bool) -> list[Record]:
    r"""The rows with a backslash before quotes, delimiters, line breaks and backslashes in fields.

    Other backslashes are characters: Spark does not write a backslash before them. MySQL's `\N` is an empty field.
    """
    other = re.compile(rf'(\\["\\{re.escape(delimiter)}]|\\$)|\\')
    marked = [other.sub(lambda found: found[1] or r"\\", line) for line in lines]
    records = _checked(_quoted(marked, file, delimiter, escape="\\"), file, delimiter, short)
    return [Record(line, ["" if field == r"\N" else field for field in fields]) for line, fields in records]


def _stripped(records: Sequence[Record]) -> list[list[str]]:
    return [[field.strip() for field in record.fields] for record in records]


def _quoted(
    lines: Sequence[str], file: str, delimiter: str, *, blanks: bool = False, escape: str | None = None
) -> list[Record]:
    """The rows with quoted fields, perhaps after blanks. In a field a quote is doubled, or follows the escape. Raises:
    DataError."""
    # Strict: otherwise an unclosed quote would make the rest of the file one field.
    ended = (f"{line}\n" for line in lines)
    quoting: dict[str, Any] = {"escapechar": escape, "doublequote": escape is None}
    reader = _reader(ended, delimiter=delimiter, strict=True, skipinitialspace=blanks, **quoting)
    begins, records = 1, []
    try:
        for fields in reader:
            records.append(Record(begins, fields or [""]))
            begins = reader.line_num + 1
    except csv.Error as error:
        raise DataError(
            f"{file}, line {begins}: {error}; probably an unclosed quote: set --data.quotes none if quotes are "
            'characters of the texts; otherwise write a field with a quote between quotes, with "" for each quote in it'
        ) from error
    return _without_empty(records)


def _reader(lines: Iterable[str], **dialect: Any) -> Any:
    # A process-wide limit of the module, 131,072 characters by default; a text may be longer.
    csv.field_size_limit(sys.maxsize)
    return csv.reader(lines, **dialect)


def _without_empty(records: list[Record]) -> list[Record]:
    """Without empty lines before the header, and below it in a table of several columns."""
    width = next((len(record.fields) for record in records if record.fields != [""]), 1)
    first = next((index for index, record in enumerate(records) if record.fields != [""]), len(records))
    return [record for record in records[first:] if width == 1 or record.fields != [""]]


def _refuse_doubtful(records: Sequence[Record], lines: Sequence[str], file: str, delimiter: str) -> None:
    """Raises DataError naming the first row with a quoted field that may be several rows.

    In a table with tabs, this is a field with a tab and a line break but no quote, since texts rarely have tabs. In
    other tables each line of the row must be a row of the right width, and in a column all values of these rows must
    also be values of other rows, or all must be numbers.
    """
    width = len(records[0].fields) if records else 0
    columns: list[set[str]] = []
    for line, fields in records[1:]:
        breaks = sum(field.count("\n") for field in fields)
        if not breaks:
            continue
        if delimiter == "\t":
            doubtful = width == 1 or any("\n" in field and "\t" in field and '"' not in field for field in fields)
        else:
            inside = [row.split(delimiter) for row in lines[line - 1 : line + breaks] if row]
            if any(len(row) != width for row in inside):
                continue
            columns = columns or _columns([record.fields for record in records[1:]])
            doubtful = any(
                values <= known or all(map(_is_number, values | known))
                for field, values, known in zip(fields, _columns(inside), columns, strict=False)
                if "\n" not in field
            )
        if doubtful:
            raise DataError(
                f"{file}, line {line}: a quote at the start of a field would enclose whole rows; set --data.quotes "
                "none if quotes are characters of the texts, or --data.quotes csv if they enclose fields"
            )


def _columns(rows: Sequence[Sequence[str]]) -> list[set[str]]:
    return [set(map(str.strip, column)) for column in itertools.zip_longest(*rows, fillvalue="")]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _checked(records: list[Record], file: str, delimiter: str, short: bool) -> list[Record]:
    """The rows, all as wide as the header. Rows of only blanks get blank fields.

    Args: short: whether rows may have fewer fields, if any row has a delimiter.

    Raises: DataError.
    """
    width = len(records[0].fields) if records else 0
    short = short and any(len(record.fields) > 1 for record in records[1:])
    for index, (line, fields) in enumerate(records):
        if len(fields) == width or (short and len(fields) < width and any(map(str.strip, fields))):
            continue
        if not any(map(str.strip, fields)):
            records[index] = Record(line, [""] * width)
            continue
        name = between(delimiter)
        remedy = f'quote a field that contains a {name.removesuffix("s")} or a quote, with "" for a quote'
        if width == 1:
            remedy = f"line {records[0].line} is read as the header; remove it if it is not"
        elif len(fields) < width:
            remedy = "add the missing fields, which may be empty"
        elif not any(map(str.strip, fields[width:])):
            remedy = f"remove the {name} at the end of the line, or write one in the header, too"
        elif len(records) > 2 and all(len(record.fields) == width + 1 for record in records[1:]):
            remedy = "so has each row; add a name of the first column to the header, as R leaves out that of row names"
        raise DataError(
            f"{file}, line {line}: expected {width} field{'s' * (width > 1)} between {name}, as in the header, got "
            f"{len(fields)}; {remedy}"
        )
    return records
