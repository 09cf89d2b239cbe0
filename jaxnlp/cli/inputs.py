"""Input and messages of commands: texts, one a line."""

import os
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from jaxnlp.cli.tables import TextColumns, table_rows
from jaxnlp.input_files.tables import is_table
from jaxnlp.input_files.text_files import bad_byte, decoded
from jaxnlp.text.raw_texts import is_blank

T = TypeVar("T")
Row = tuple[str, ...]
"""A text, or a text and its pair."""

CHUNK = 1024
"""Lines that are read at a time: their answers are printed before the next lines are read."""
_BREAKS = re.compile(r"[\t\n\v\f\r\x1c-\x1e\x85\u2028\u2029]+")


def rows_of(
    texts: Sequence[str],
    pairs: Sequence[str],
    file: Path | None,
    *,
    count: int,
    columns: TextColumns = TextColumns(),  # noqa: B008  # a constant
) -> Iterator[Row]:
    """The texts of the command line, or of a file; without both, of standard input.

    A file is checked as a whole before its first row, so that a wrong line stops no work that has begun. Standard input
    is checked line by line. A note on standard error names a text that is the name of a file.

    Args:
      texts: the texts of the command line.
      pairs: the second text of each pair; empty if `count` is 1.
      file: one row a line, two texts with a tab between them; or a table, by its suffix; "-" is standard input.
      count: number of texts in a row, 1 or 2.
      columns: where a table has the texts.

    Yields:
      Rows of `count` texts. Blank texts keep their places; see `report_blank`.

    Raises:
      ValueError: naming the text, or the file and its line, that lacks a tab or is not UTF-8; when texts come from two
        sources, or from no source; when the only text is "-", which means standard input in --file.
      OSError: when the file cannot be read.
    """
    if file is not None and (texts or pairs):
        raise ValueError("give texts or --file, not both")
    if not texts and not pairs:
        empty = True
        source = file or Path("-")
        if is_table(source):
            found = _rows_of_table(source, columns, count=count)
        else:
            found = _rows_of_file(source, given=file is not None, count=count)
        for row in found:
            empty = False
            yield row
        if empty:
            remedy = "it should have one text a line" if file else "give texts, or --file with one text a line"
            raise ValueError(f"{name_of(source)} is empty; {remedy}")
        return
    if count == 1 and pairs:
        raise ValueError("--pair applies only to pairs of texts; remove it")
    if count == 2 and len(pairs) != len(texts):
        raise ValueError(f"each text needs a second one; number of texts: {len(texts)}, after --pair: {len(pairs)}")
    _check_names(texts, pairs)
    for number, row in enumerate(zip(texts, *([pairs] if count == 2 else []), strict=True), 1):
        check_row(row, number)
        yield row


def check_row(row: Row, number: int) -> None:
    """Raises ValueError naming the texts of the command line that are not UTF-8."""
    if any("\ud800" <= character <= "\udfff" for text in row for character in text):
        pair = ", or its pair is not" if len(row) == 2 else ""
        raise ValueError(f"text {number} is not UTF-8{pair}: {' and '.join(row)!a}")


def read_text(path: Path) -> str:
    """A whole text file, decompressed if its name ends in .gz; line ends become LF. "-" is standard input.

    Raises:
      ValueError: naming the file, when it is damaged or not UTF-8.
      OSError: when it cannot be read.
    """
    raw = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
    return decoded(raw, name_of(path)).replace("\r\n", "\n").replace("\r", "\n")


def chunks(items: Iterable[T], size: int = CHUNK) -> Iterator[list[T]]:
    """The items in lists of equal length; the last list may be shorter."""
    iterator = iter(items)
    while chunk := list(islice(iterator, size)):
        yield chunk


def one_line(text: str) -> str:
    """The text with blanks instead of line breaks and tabs."""
    return _BREAKS.sub(" ", text)


def report_truncated(truncated: Sequence[int], texts: int, max_length: int) -> None:
    """Prints on standard error how many texts were truncated, and names the first; prints nothing if there are none.

    Args:
      truncated: for each truncated text, the number of its row, from 0.
      texts: number of all texts.
      max_length: maximum length in tokens.
    """
    if not truncated:
        return
    shown = "the text was"
    if texts > 1:
        shown = f"{len(truncated):,} of {texts:,} texts {'was' if len(truncated) == 1 else 'were'}"
    place = f"; the first is text {min(truncated) + 1:,}" if texts > 1 else ""
    print(f"note: {shown} truncated to {max_length} tokens{place}", file=sys.stderr)


def blank_rows(rows: Sequence[Sequence[Any]], count: int) -> list[int]:
    """The numbers of the blank rows among these, from 1. Args: count: number of the rows before them."""
    return [count + number for number, row in enumerate(rows, 1) if is_blank(row)]


def report_blank(blank: Sequence[int], count: int, texts: Sequence[str], file: Path | None) -> None:
    """Prints on standard error how many texts are blank, and names the first; prints nothing if there are none.

    Args:
      blank: the numbers of blank rows, as `blank_rows` returns them.
      count: number of all rows.
      texts, file: the source of the rows, as in `rows_of`.
    """
    if blank:
        verb = "is blank and has" if len(blank) == 1 else "are blank and have"
        first = "" if len(blank) == 1 else "the first is "
        where = place_of(texts, file, blank[0])
        print(f"note: {len(blank):,} of {count:,} texts {verb} no answer; {first}{where}", file=sys.stderr)


def name_of(file: Path) -> str:
    """The file's name in messages; that of "-" is standard input."""
    return "standard input" if str(file) == "-" else str(file)


def place_of(texts: Sequence[str], file: Path | None, number: int) -> str:
    """The place of a row of `rows_of`, for messages. Args: number: of the row, from 1."""
    source = file or Path("-")
    return f"text {number}" if texts else f"{name_of(source)}, {'row' if is_table(source) else 'line'} {number}"


def report_skipped(skipped: Sequence[str], count: int, inputs: str, what: str) -> None:
    """Prints on standard error how many inputs have no result, and why the first has none; nothing if all have one.

    Args:
      skipped: the place and the reason of each input without a result.
      count: number of all inputs.
      inputs: what they are, such as "texts".
      what: the missing result, such as "tree".
    """
    if skipped:
        verb = "has" if len(skipped) == 1 else "have"
        first = "" if len(skipped) == 1 else "the first: "
        print(f"note: {len(skipped):,} of {count:,} {inputs} {verb} no {what}; {first}{skipped[0]}", file=sys.stderr)


def _check_names(texts: Sequence[str], pairs: Sequence[str]) -> None:
    """Reports the first text that is the name of a file. Raises: ValueError when "-" is the only text."""
    if [*texts] == ["-"]:
        raise ValueError("expected a text, got -; to read standard input, give --file -")
    named = next((text for text in (*texts, *pairs) if os.path.isfile(text)), None)
    if named is not None:
        print(f"note: {named} is read as a text; to read the file, give --file {shlex.quote(named)}", file=sys.stderr)


def _opened(file: Path, given: bool) -> BinaryIO:
    if str(file) != "-":
        return open(file, "rb")
    if sys.stdin is None or (sys.stdin.isatty() and not given):
        raise ValueError("give texts, or --file with one text a line, or such lines on standard input")
    return sys.stdin.buffer


def _rows_of_file(file: Path, *, given: bool, count: int) -> Iterator[Row]:
    if file.is_file():
        for _ in _read_rows(file, given=given, count=count):
            pass
    yield from _read_rows(file, given=given, count=count)


def _read_rows(file: Path, *, given: bool, count: int) -> Iterator[Row]:
    source = _opened(file, given)
    with source if str(file) != "-" else nullcontext():
        # Bytes split only at line feeds; str.splitlines() would also split at other characters.
        for number, line in enumerate(source, 1):
            where = f"{name_of(file)}, line {number}"
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
            except UnicodeDecodeError as error:
                raise ValueError(bad_byte(line, error.start, where)) from error
            row = (text,) if count == 1 else tuple(text.split("\t"))
            if count == 2 and not text.strip():
                row = ("", "")
            if len(row) != count:
                raise ValueError(f"{where}: expected two texts with one tab between them, got {len(row) - 1} tabs")
            yield row


def _rows_of_table(file: Path, columns: TextColumns, *, count: int) -> Iterator[Row]:
    yield from (row.texts for row in table_rows(file, columns, count))
