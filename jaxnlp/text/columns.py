"""Texts in columns, the format of CoNLL's shared tasks: one word a line, and an empty line after each sentence.

All lines have the same number of columns, separated by tabs or by spaces. A no-break space is part of a word. A
line of only white space, or of characters without width, is empty.

These lines have no word:

- Lines with -DOCSTART- separate documents.
- Comments come before a sentence, start with # and white space, #begin or #end, and have another number of columns.
- If the first column numbers the words, lines numbered 8-9 and 8.1 are multiword tokens and empty nodes, as in CoNLL-U.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from jaxnlp.corpus import DataError

DOCUMENT = "-DOCSTART-"
"""The word of lines between CoNLL's documents, which are not part of a sentence."""
SHOWN = 60
"""Maximum number of characters of a line or an entity in a message."""

_WITH_POSITION = re.compile(r".\d+")
_COMMENT = re.compile(r"#(?:[ \t]+\S|(?:begin|end) )")
_NO_WORD = re.compile(r"\d+[-.]\d+")


class ColumnSentence(NamedTuple):
    """A sentence of T words.

    Attributes:
      number: number of the sentence, from 1.
      lines: each word's line number, from 1 [T].
      rows: the columns of each word [T].
    """

    number: int
    lines: tuple[int, ...]
    rows: tuple[tuple[str, ...], ...]

    def column(self, index: int, file: str) -> tuple[str, ...]:
        """A column of all words [T]; negative numbers count from the end.

        Raises: DataError, naming the line, the sentence and the word, when the column is missing or empty.
        """
        for word, (line, row) in enumerate(zip(self.lines, self.rows, strict=True), 1):
            if not -len(row) <= index < len(row) or not row[index]:
                raise DataError(
                    f"{position(file, line, self.number, word)}: expected text in column {index}, where 0 is the first "
                    f"column, got {', '.join(map(repr, row))[:SHOWN]}"
                )
        return tuple(row[index] for row in self.rows)


class ColumnFile(NamedTuple):
    """A text in columns.

    Attributes:
      lines: without line ends.
      separator: a tab or a space.
      width: number of columns.
      sentences: at least one.
      numbered: whether the first column numbers the words of each sentence.
    """

    lines: list[str]
    separator: str
    width: int
    sentences: list[ColumnSentence]
    numbered: bool

    def words(self, index: int, file: str) -> list[tuple[str, ...]]:
        """The column of the words, for each sentence.

        Raises: DataError as `ColumnSentence.column`; also for a column of the words' numbers.
        """
        if self.numbered and self.width > 1 and index in (0, -self.width):
            raise DataError(
                f"{file}: column {index} numbers the words; choose the column of the words, such as 1, with "
                "--data.word-column in training and --word-column in predict"
            )
        return [sentence.column(index, file) for sentence in self.sentences]

    def with_column(self, values: Sequence[Sequence[str]], otherwise: str) -> str:
        """The text with a further column.

        Empty lines and comments stay unchanged; all other lines have the same number of columns, so that scorers that
        split at each separator can read the text.

        Args:
          values: the value of each word, for each sentence; between columns with blanks, a blank in it becomes _.
          otherwise: the value of lines without a word, and of columns that a line between documents lacks.
        """
        joined = (lambda value: value) if self.separator == "\t" else (lambda value: "_".join(value.split()))
        rows = {
            line: (*row, joined(value))
            for sentence, column in zip(self.sentences, values, strict=True)
            for line, row, value in zip(sentence.lines, sentence.rows, column, strict=True)
        }
        lines = []
        for number, line in enumerate(self.lines, 1):
            fields = rows.get(number)
            if fields is None and not _is_empty(line) and not _COMMENT.match(line):
                fields = tuple(_fields(line, self.separator == "\t") if self.separator in line else line.split())
                fields += (otherwise,) * (self.width + 1 - len(fields))
            kept = "" if _is_empty(line) else line.strip(" \t\r")
            lines.append(kept if fields is None else self.separator.join(fields))
        return "\n".join(lines) + "\n"


def position(file: str, line: int, sentence: int, word: int) -> str:
    """The position of a word, for messages; numbers start at 1."""
    return f"{file}, line {line} (sentence {sentence}, word {word})"


def without_positions(rows: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Characters without their positions in segmented words, as in Weibo NER: X of X1, or unchanged if any word lacks
    one."""
    if all(_WITH_POSITION.fullmatch(word) for row in rows for word in row):
        return [tuple(word[0] for word in row) for row in rows]
    return list(rows)


def parse_columns(text: str, file: str) -> ColumnFile:
    """The sentences of a file's text.

    Args:
      text: with LF at line ends.
      file: the name of the file, for messages.

    Raises: DataError without words, for a line with another number of columns than the first one, or with tabs instead
    of spaces; it names the file, the line, the sentence and the word, and what was expected.
    """
    lines = text.removesuffix("\n").split("\n")
    with_word = [number for number, line in enumerate(lines, 1) if _has_word(line)]
    if not with_word:
        raise DataError(f"{file} has no sentences; expected a word a line, and an empty line after each sentence")
    first = next((number for number in with_word if not _COMMENT.match(lines[number - 1])), with_word[0])
    tabs = "\t" in lines[first - 1]
    width = len(_fields(lines[first - 1], tabs))
    sentences = list(_sentences(lines, file, first, width, tabs=tabs))
    numbered = _numbered(sentences)
    # A file of numbers from 1, one in each sentence, may also have words that are numbers.
    has_numbers = any(len(one.rows) > 1 for one in numbered) or (numbered and ".conllu" in Path(file).suffixes)
    return ColumnFile(lines, "\t" if tabs else " ", width, numbered or sentences, bool(has_numbers))


def _sentences(lines: list[str], file: str, first: int, width: int, *, tabs: bool) -> Iterator[ColumnSentence]:
    between, other = ("tabs", "spaces") if tabs else ("spaces", "tabs")
    number, line_numbers, rows = 1, list[int](), list[tuple[str, ...]]()
    for line_number, line in enumerate([*lines, ""], 1):
        if not _has_word(line):
            if rows:
                yield ColumnSentence(number, tuple(line_numbers), tuple(rows))
                number, line_numbers, rows = number + 1, [], []
            continue
        row, fits = _fields(line, tabs), ("\t" in line) == tabs or len(line.split()) < 2
        if not rows and _COMMENT.match(line) and not (fits and len(row) == width):
            continue
        where = position(file, line_number, number, len(rows) + 1)
        shown = repr(line[:SHOWN] + ("..." if len(line) > SHOWN else ""))
        if not fits:
            raise DataError(
                f"{where}: expected {between} between the columns, as in line {first}, got {other}: {shown}"
            )
        if len(row) != width:
            columns = "1 column" if width == 1 else f"{width} columns between {between}"
            hint = "; write tabs between the columns, not commas" if "," in line and "," in lines[first - 1] else ""
            raise DataError(f"{where}: expected {columns}, as in line {first}, got {len(row)}: {shown}{hint}")
        line_numbers.append(line_number)
        rows.append(tuple(row))


def _numbered(sentences: Sequence[ColumnSentence]) -> list[ColumnSentence]:
    """The sentences without multiword tokens and empty nodes; [] if the first column does not number the words."""
    kept = []
    for number, lines, rows in sentences:
        words = [(line, row) for line, row in zip(lines, rows, strict=True) if not _NO_WORD.fullmatch(row[0])]
        if [row[0] for _, row in words] != [str(index) for index in range(1, len(words) + 1)] or not words:
            return []
        kept.append(ColumnSentence(number, tuple(line for line, _ in words), tuple(row for _, row in words)))
    return kept


def _has_word(line: str) -> bool:
    """Whether a line may have a word, so is not empty or between documents."""
    return not _is_empty(line) and DOCUMENT not in line.split()


def _is_empty(line: str) -> bool:
    return not line.strip().strip("\u200b\ufeff")


def _fields(line: str, tabs: bool) -> list[str]:
    return [field.strip(" ") for field in line.split("\t")] if tabs else [field for field in line.split(" ") if field]
