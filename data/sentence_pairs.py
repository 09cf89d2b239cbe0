"""Sentences and their translations in files: two files whose lines belong together, or one with tabs."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from data import DataError
from data.text_sources import read_utf8
from jaxnlp.text.translation import SentencePair


def read_pairs(paths: Sequence[Path], *, reverse: bool = False) -> tuple[SentencePair, ...]:
    """The pairs of one or two files, without the white space around a sentence; pair n is in line n + 1.

    Args:
      paths: a file of sources and one of targets, a sentence a line; or one file of sources and targets with a tab
        between them, further columns are ignored. Compressed by gzip if the name ends in .gz.
      reverse: the targets come first.

    Raises:
      FileNotFoundError, DataError: when a file cannot be read, an empty sentence or a line without a partner occurs;
        the message says in which file and line.
    """
    if len(paths) == 1:
        columns = [_columns(paths[0], place, line) for place, line in _numbered(paths[0])]
    else:
        first, second = (_sentences(path) for path in paths)
        _refuse_unequal(paths, first, second)
        columns = list(zip(first, second, strict=True))
    return tuple(SentencePair(*(pair[::-1] if reverse else pair)) for pair in columns)


def read_pairs_or_sources(path: Path, *, reverse: bool = False) -> tuple[SentencePair, ...]:
    """The pairs of a file with a tab in its first line, as `read_pairs`; otherwise each line is a source alone."""
    if "\t" in read_utf8(path).partition("\n")[0]:
        return read_pairs([path], reverse=reverse)
    return tuple(map(SentencePair, _sentences(path)))


def held_out(pairs: Sequence[SentencePair], fraction: float) -> tuple[list[int], list[int]]:
    """Numbers of the pairs to train on, and of those held out; pairs with the same source are on the same side.

    Which are held out depends on the sources alone, not on their order or a seed.

    Raises: DataError: when there are fewer than two distinct sources.
    """
    sources = sorted({pair.source for pair in pairs}, key=lambda text: hashlib.sha256(text.encode()).digest())
    if len(sources) < 2:
        raise DataError(f"{len(sources)} distinct sentences cannot be divided into training and validation")
    count = min(max(1, round(fraction * len(sources))), len(sources) - 1)
    chosen = set(sources[:count])
    train = [number for number, pair in enumerate(pairs) if pair.source not in chosen]
    return train, [number for number, pair in enumerate(pairs) if pair.source in chosen]


def _numbered(path: Path) -> list[tuple[int, str]]:
    """Lines and their numbers from 1. Only a line feed ends a line."""
    return list(enumerate(read_utf8(path).removesuffix("\n").split("\n"), 1))


def _sentences(path: Path) -> list[str]:
    sentences = []
    for number, line in _numbered(path):
        if not line.strip():
            raise DataError(f"{path}, line {number} is empty; remove this line, and that of its translation")
        sentences.append(line.strip())
    return sentences


def _columns(path: Path, number: int, line: str) -> tuple[str, str]:
    columns = [column.strip() for column in line.split("\t")[:2]]
    if len(columns) < 2:
        raise DataError(f"{path}, line {number}: expected two sentences with a tab between them, got {line[:60]!r}")
    for name, column in zip(("first", "second"), columns, strict=True):
        if not column:
            raise DataError(f"{path}, line {number}: the {name} sentence is empty; remove the line")
    return columns[0], columns[1]


def _refuse_unequal(paths: Sequence[Path], first: Sequence[str], second: Sequence[str]) -> None:
    if len(first) == len(second):
        return
    line = min(len(first), len(second))
    longer, sentences = (paths[0], first) if len(first) > len(second) else (paths[1], second)
    raise DataError(
        f"{paths[0]} has {len(first):,} lines, {paths[1]} has {len(second):,}; line {line + 1} of {longer} has no "
        f"partner: {sentences[line][:60]!r}"
    )
