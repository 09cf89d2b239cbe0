"""Texts in columns, the format of CoNLL's shared tasks: one word a line, and an empty line after each sentence.

All lines have the same number of columns, separated by tabs or by spaces. Other white space does not separate columns:
a no-break space is part of a word, as in "10 000".
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

DOCUMENT = "-DOCSTART-"
"""The word of the lines between CoNLL's documents; these lines are not part of a sentence."""
SHOWN = 60
"""Maximum number of characters of a line in a message."""

_WITH_POSITION = re.compile(r".\d+")


class ColumnSentence(NamedTuple):
    """A sentence of T words.

    Attributes:
      number: number of the sentence, from 1.
      lines: the number of each word's line, from 1 [T].
      rows: the columns of each word [T].
    """

    number: int
    lines: tuple[int, ...]
    rows: tuple[tuple[str, ...], ...]

    def column(self, place: int, file: str) -> tuple[str, ...]:
        """A column of all words [T]; negative numbers count from the end.

        Raises: ValueError, naming the line, the sentence and the word, when the column is missing or empty.
        """
        for word, (line, row) in enumerate(zip(self.lines, self.rows, strict=True), 1):
            if not -len(row) <= place < len(row) or not row[place]:
                raise ValueError(
                    f"{position(file, line, self.number, word)}: expected text in column {place}, where 0 is the first "
                    f"column, got {', '.join(map(repr, row))[:SHOWN]}"
                )
        return tuple(row[place] for row in self.rows)


class ColumnFile(NamedTuple):
    """A text in columns.

    Attributes:
      lines: all lines, without line ends.
      separator: the separator of columns: a tab or a space.
      width: number of columns.
      sentences: at least one.
    """

    lines: list[str]
    separator: str
    width: int
    sentences: list[ColumnSentence]


def position(file: str, line: int, sentence: int, word: int) -> str:
    """The position of a word, for messages; all numbers start at 1."""
    return f"{file}, line {line} (sentence {sentence}, word {word})"


def without_positions(rows: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Characters without their positions in segmented words, as in Weibo NER: the character of each word such as X10.

    If one word is not a character with a position, all words stay unchanged.
    """
    if all(_WITH_POSITION.fullmatch(word) for row in rows for word in row):
        return [tuple(word[0] for word in row) for row in rows]
    return list(rows)


def parse_columns(text: str, file: str) -> ColumnFile:
    """The sentences of a file's text.

    Args:
      text: the text of the file, with LF at line ends.
      file: the name of the file, for messages.

    Raises: ValueError when there are no words, when a line has another number of columns than the first one, or tabs in
      place of spaces; the message names the file, the line, the sentence and the word, and says what was expected.
    """
    lines = text.removesuffix("\n").split("\n")
    first = next((number for number, line in enumerate(lines, 1) if _has_word(line)), None)
    if first is None:
        raise ValueError(f"{file} has no sentences; expected a word a line, and an empty line after each sentence")
    tabs = "\t" in lines[first - 1]
    width = len(_fields(lines[first - 1], tabs))
    return ColumnFile(lines, "\t" if tabs else " ", width, list(_sentences(lines, file, first, width, tabs=tabs)))


def _sentences(lines: list[str], file: str, first: int, width: int, *, tabs: bool) -> Iterator[ColumnSentence]:
    between, other = ("tabs", "spaces") if tabs else ("spaces", "tabs")
    number, places, rows = 1, list[int](), list[tuple[str, ...]]()
    for place, line in enumerate([*lines, ""], 1):
        if not _has_word(line):
            if rows:
                yield ColumnSentence(number, tuple(places), tuple(rows))
                number, places, rows = number + 1, [], []
            continue
        where = position(file, place, number, len(rows) + 1)
        shown = repr(line[:SHOWN] + ("..." if len(line) > SHOWN else ""))
        if ("\t" in line) != tabs and len(line.split()) > 1:
            raise ValueError(
                f"{where}: expected {between} between the columns, as in line {first}, got {other}: {shown}"
            )
        row = _fields(line, tabs)
        if len(row) != width:
            columns = "1 column" if width == 1 else f"{width} columns between {between}"
            raise ValueError(f"{where}: expected {columns}, as in line {first}, got {len(row)}: {shown}")
        places.append(place)
        rows.append(tuple(row))


def _has_word(line: str) -> bool:
    """Whether a line has a word; empty lines and lines between documents do not."""
    return bool(line.strip(" \t\r")) and DOCUMENT not in line.split()


def _fields(line: str, tabs: bool) -> list[str]:
    return [field.strip(" ") for field in line.split("\t")] if tabs else [field for field in line.split(" ") if field]
