"""Files of columns whose words are to be labelled."""

from pathlib import Path
from typing import NamedTuple

DOCUMENT = "-DOCSTART-"
"""The word of the lines between CoNLL's documents; these lines are no sentences."""


class ColumnFile(NamedTuple):
    """A file, and where its words are.

    Attributes:
      lines: of the file, without line ends.
      sentences: the words of each sentence, each with the number of its line, from 0.
      separator: what is between its columns: a tab, or a blank.
    """

    lines: list[str]
    sentences: list[list[tuple[int, str]]]
    separator: str


def read_columns(path: Path, word_column: int) -> ColumnFile:
    """A file with a word a line, and an empty line after each sentence.

    Raises: ValueError naming the line, when it has too few columns, tabs and blanks are mixed, or there are no words;
      OSError when it cannot be read.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8: {error.reason} at byte {error.start + 1}") from error
    first = next((line for line in lines if line.strip()), None)
    if first is None:
        raise ValueError(f"{path} has no words; expected a word a line")
    tabs = "\t" in first
    between, other = ("tabs", "blanks") if tabs else ("blanks", "tabs")
    sentences: list[list[tuple[int, str]]] = [[]]
    for place, line in enumerate(lines):
        if not line.strip():
            sentences.append([])
            continue
        where = f"{path}, line {place + 1} (sentence {sum(map(bool, sentences[:-1])) + 1})"
        if ("\t" in line) != tabs and len(line.split()) > 1:
            raise ValueError(f"{where}: expected {between} between the columns, as in the first line, got {other}")
        fields = [field.strip() for field in line.split("\t")] if tabs else line.split()
        if len(fields) <= word_column or not fields[word_column]:
            raise ValueError(f"{where}: expected a word in column {word_column}, got {len(fields)} columns: {line!r}")
        if fields[word_column] != DOCUMENT:
            sentences[-1].append((place, fields[word_column]))
    return ColumnFile(lines, [sentence for sentence in sentences if sentence], "\t" if tabs else " ")
