"""Texts for a verb: arguments, lines of a file or of standard input, or rows of a table."""

import io
import json
import os
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar

from jaxnlp.corpus import DataError
from jaxnlp.input_files.delimited import DELIMITERS, between, header_fields
from jaxnlp.input_files.tables import Columns, Dialect, MissingColumnsError, TableRow, is_table, read_table
from jaxnlp.input_files.text_files import bad_byte, decoded, has_surrogate, is_gzip, is_utf8, line_feeds, uncompressed

_IN_TEXTS = {"\t": "a tab", "\r": "a carriage return before its end"}
"""Characters that may mean the end of a text, and their names in notes."""

T = TypeVar("T")
Row = tuple[str, ...]
"""A text, or a text and its pair."""

CHUNK = 1024
"""Number of rows to read and answer at once."""
_CONLLU_COLUMNS = 10
_ONE_A_LINE = "this file is read as one text a line"


class TextColumns(NamedTuple):
    """The columns of a table that have the texts.

    Attributes:
      texts: column of the text, and of the second text of a pair; () = files of any suffix have one row a line, and
        tabs are part of the texts.
      dialect: of the table.
    """

    texts: tuple[str, ...] = ("text", "pair")
    dialect: Dialect = Dialect()

    @classmethod
    def of_run(cls, config: Mapping[str, Any] | None) -> "TextColumns":
        """The columns of the run's training table. Args: config: of the run, as JSON; None = not a run."""
        data = (config or {}).get("data", {})
        texts = tuple(data.get(name) or name for name in ("text", "pair"))
        fields = {name: data[name] for name in ("delimiter", "quotes", "encoding") if name in data}
        return cls(texts, Dialect(**fields))


def rows_of(
    texts: Sequence[str],
    pairs: Sequence[str],
    file: Path | None,
    *,
    count: int | None,
    columns: TextColumns = TextColumns(),  # noqa: B008  # a constant
) -> Iterator[Row]:
    """The texts of a command, or of a file; without both, of standard input.

    A file is checked completely before its first row, standard input line by line. Notes on standard error name a text
    that is a file's name, and count single texts with a tab.

    Args:
      texts: the texts of the command.
      pairs: the second text of each pair; empty if `count` is 1.
      file: one row a line, two texts with a tab between them; or a table, by its suffix; perhaps gzip; "-" is standard
        input. Lines end with LF, and in a file without LF with CR.
      count: number of texts in a row, 1 or 2. None = 2 if pairs are given, a table has a column of them, or the first
        nonblank line has one tab; otherwise 1.
      columns: of a table; and the encoding of a file, but standard input is UTF-8.

    Yields:
      Rows of `count` texts. Blank texts keep their places.

    Raises:
      ValueError: naming the text, or the file and its line, that lacks a tab or is not UTF-8; when the first line has
        the names of a table's columns; for two sources of texts, or none; when the only text is "-", which means --file
        -.
      OSError: when the file cannot be read.
    """
    if file is not None and (texts or pairs):
        raise ValueError("give texts or --file, not both")
    if not texts and not pairs:
        yield from _rows_of_file(file or Path("-"), columns, given=file is not None, count=count)
        return
    if count is None:
        count = 2 if pairs else 1
    if count == 1 and pairs:
        raise ValueError("--pair applies only to pairs of texts; remove it")
    if count == 2 and len(pairs) != len(texts):
        raise ValueError(f"expected a second text for each text; got {len(texts)} texts, and {len(pairs)} after --pair")
    _check_names(texts, pairs)
    for number, row in enumerate(zip(texts, *([pairs] if count == 2 else []), strict=True), 1):
        check_row(row, number)
        yield row


def check_row(row: Row, number: int) -> None:
    """Raises ValueError naming the texts of a command that are not UTF-8. Args: number: of the row, from 1."""
    if any(map(has_surrogate, row)):
        pair = ", or its pair is not" if len(row) == 2 else ""
        raise ValueError(f"text {number} is not UTF-8{pair}: {' and '.join(row)!a}")


def read_text(
    path: Path,
    columns: TextColumns = TextColumns(),  # noqa: B008  # a constant
    *,
    keep_line_ends: bool = False,
) -> str:
    """A whole text file, perhaps gzip.

    Args:
      path: the file; "-" is standard input.
      columns: of the run, with the encoding of a file, but standard input is UTF-8.
      keep_line_ends: whether line ends stay as they are; otherwise they are LF.

    Raises:
      ValueError: naming the file, when it is damaged or not in this encoding.
      OSError: when it cannot be read.
    """
    if str(path) == "-":
        text = decoded(sys.stdin.buffer.read(), name_of(path), option=False)
    else:
        text = decoded(path.read_bytes(), path, columns.dialect.encoding)
    return text if keep_line_ends else line_feeds(text)


def table_rows(file: Path, columns: TextColumns, count: int | None) -> list[TableRow]:
    """All rows of a table; their texts may be blank.

    Args:
      file: the table.
      columns: of the texts.
      count: number of texts in a row, 1 or 2; None = 2 if the table has the column of the second text.

    Raises: FileNotFoundError; DataError naming the file, and the line if possible.
    """
    try:
        return _table_rows(file, columns, count or 2)
    except MissingColumnsError as error:
        if count is None:
            return table_rows(file, columns, 1)
        raise DataError(
            f"{error}; rename the columns, or give a file with one text a line, with a name in .txt"
        ) from error


def _table_rows(file: Path, columns: TextColumns, count: int) -> list[TableRow]:
    return read_table(file, Columns(columns.texts[:count], ""), dialect=columns.dialect, labelled=False).rows


def chunks(items: Iterable[T], size: int = CHUNK) -> Iterator[list[T]]:
    """The items in lists of equal length; the last list may be shorter."""
    iterator = iter(items)
    while chunk := list(islice(iterator, size)):
        yield chunk


def name_of(file: Path) -> str:
    """The file's name in messages; standard input for "-"."""
    return "standard input" if str(file) == "-" else str(file)


def position_of(texts: Sequence[str], file: Path | None, number: int) -> str:
    """The position of a row of `rows_of`, for messages. Args: number: of the row, from 1."""
    source = file or Path("-")
    return f"text {number}" if texts else f"{name_of(source)}, {'row' if is_table(source) else 'line'} {number}"


def _check_names(texts: Sequence[str], pairs: Sequence[str]) -> None:
    """Reports the first text that is a file's name. Raises: ValueError when "-" is the only text."""
    if [*texts] == ["-"]:
        raise ValueError("expected a text, got -; to read standard input, give --file -")
    named = next((text for text in (*texts, *pairs) if os.path.isfile(text)), None)
    if named is not None:
        print(f"note: {named} is read as a text; to read the file, give --file {shlex.quote(named)}", file=sys.stderr)


def _rows_of_file(file: Path, columns: TextColumns, *, given: bool, count: int | None) -> Iterator[Row]:
    """The rows of a file, of a table, or of standard input. Raises: ValueError as `rows_of`, OSError."""
    if columns.texts and is_table(file):
        yield from (row.texts for row in table_rows(file, columns, count))
        return
    if file.is_file():
        for _ in _rows_of_lines(file, columns, given=given, count=count):
            pass
    number = 0
    found: dict[str, list[int]] = {character: [] for character in _IN_TEXTS}
    for number, row in enumerate(_rows_of_lines(file, columns, given=given, count=count), 1):
        if number == 1 and columns.texts and isinstance(_json_of("\t".join(row)), dict | str):
            what = "JSON, which is read as a text; give JSON in a file with a name in .jsonl or .json"
            print(f"note: {name_of(file)}, line 1: {what}", file=sys.stderr)
        for character, lines in found.items():
            if any(character in text for text in row):
                lines.append(number)
        yield row
    if not number:
        remedy = "it should have one text a line" if given else "give texts, or --file with one text a line"
        raise ValueError(f"{name_of(file)} is empty; {remedy}")
    for character, lines in found.items():
        if lines and columns.texts:
            counted = f"{len(lines):,} of {number:,} lines, the first in line {lines[0]:,}"
            kind = f"each line is read as one text, also one with {_IN_TEXTS[character]}"
            print(f"note: {name_of(file)}: {kind}: {counted}", file=sys.stderr)


def _opened(file: Path, given: bool, encoding: str) -> BinaryIO:
    """The bytes of a file, converted to UTF-8."""
    if str(file) != "-":
        if not is_utf8(encoding):
            return io.BytesIO(decoded(file.read_bytes(), file, encoding).encode())
        source = open(file, "rb")  # noqa: SIM115  # the caller closes it; a pipe can be opened only once
        if not is_gzip(source.peek(2), file):
            return source
        with source:
            return io.BytesIO(uncompressed(source.read(), file))
    if sys.stdin is None or (sys.stdin.isatty() and not given):
        raise ValueError("give texts, or --file with one text a line, or such lines on standard input")
    return sys.stdin.buffer


def _lines(source: BinaryIO) -> Iterator[bytes]:
    """The lines, which end with LF; or, without any, with CR. str.splitlines() would also split at other characters."""
    first = source.readline()
    yield from [first] if first.endswith(b"\n") else first.replace(b"\r", b"\n").splitlines(keepends=True)
    yield from source


def _header_of(line: str, columns: TextColumns, count: int | None) -> tuple[str, list[str]] | None:
    """The delimiter and the fields of a first line with the names of the columns; otherwise None."""
    for delimiter in DELIMITERS:
        names = header_fields(line, delimiter)
        if len(names) > 1 and {*columns.texts[: count or 1]} <= {*names}:
            return delimiter, names
    return None


def _refuse_table(header: tuple[str, list[str]], line: str, name: str) -> None:
    """Raises ValueError when the line after a header is a row of its table; otherwise the header was a text."""
    delimiter, names = header
    if delimiter in line or line.startswith('"'):  # or a field of several lines begins
        raise ValueError(
            f"{name}, line 1: the names of columns between {between(delimiter)}, {', '.join(names)}; {_ONE_A_LINE}: "
            "give the table in a file with a name in .tsv or .csv"
        )


def _refuse_json(first: str, line: str, name: str, column: str) -> None:
    """Raises ValueError when the first line begins JSON objects with this name, or a list of objects below it."""
    row = _json_of(first)
    if (isinstance(row, dict) and column in row) or (first.strip() == "[" and line.lstrip().startswith("{")):
        raise ValueError(
            f"{name}, line 1: JSON; {_ONE_A_LINE}: give the objects in a file with a name in .jsonl or .json"
        )


def _refuse_conllu(line: str, where: str) -> None:
    """Raises ValueError for a word of CoNLL-U."""
    cells = line.split("\t")
    if len(cells) == _CONLLU_COLUMNS and cells[0].isdecimal():
        raise ValueError(
            f"{where}: CoNLL-U; {_ONE_A_LINE}: jaxnlp parse reads CoNLL-U with --conllu, and jaxnlp predict of a "
            "tagger with --conllu or --conll"
        )


def _json_of(line: str) -> Any:
    """The JSON object of a line, or the first element of its list; None for all else."""
    try:
        value = json.loads(line) if line.lstrip()[:1] in ("{", "[") else None
    except (ValueError, RecursionError):
        return None
    return value[0] if isinstance(value, list) and value else value


def _rows_of_lines(file: Path, columns: TextColumns, *, given: bool, count: int | None) -> Iterator[Row]:
    encoding = columns.dialect.encoding
    source = _opened(file, given, encoding)
    header, held, first, begins = None, list[Row](), "", True
    with source if str(file) != "-" else nullcontext():
        for number, line in enumerate(_lines(source), 1):
            where = f"{name_of(file)}, line {number}"
            try:
                text = line.decode().removeprefix("\ufeff" if number == 1 else "").rstrip("\r\n")
                wrong = line.find(0)
            except UnicodeDecodeError as error:
                text, wrong = "", error.start
            if wrong >= 0:
                known = line
                if file.is_file():
                    with _opened(file, given, encoding) as whole:
                        known = whole.read()
                start = known.index(line.rstrip(b"\r\n"))
                raise ValueError(bad_byte(known, start + wrong, where, option=str(file) != "-"))
            first = text if number == 1 else first
            if number <= 2 and columns.texts:
                _refuse_json(first, text, name_of(file), columns.texts[0])
            if begins and columns.texts:
                _refuse_conllu(text, where)
                begins = text.startswith("#")  # a comment
            if header is not None and text.strip():
                _refuse_table(header, text, name_of(file))
                yield from held
                header, held = None, []
            if number == 1 and columns.texts:
                header = _header_of(text, columns, count)
            if count is None and text.strip():
                count = 2 if text.count("\t") == 1 else 1
            row = tuple(text.split("\t")) if count == 2 else (text,)
            if count == 2 and not text.strip():
                row = ("", "")
            if count == 2 and len(row) != count:
                raise ValueError(f"{where}: expected two texts with one tab between them, got {len(row) - 1} tabs")
            if header is None:
                yield row
            else:
                held.append(row)  # until a line tells whether this is the header of a table
        yield from held
