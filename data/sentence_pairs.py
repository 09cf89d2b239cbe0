"""Sentences and their translations in files: two files with one sentence per line, or one file with tabs."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from data import DataError
from jaxnlp.input_files.text_files import read_text_file
from jaxnlp.text.translation import SentencePair


def read_pairs(paths: Sequence[Path], *, reverse: bool = False) -> tuple[SentencePair, ...]:
    """The pairs of one or two files, without white space around sentences; pair n is in line n + 1.

    Args:
      paths: a file of sources and a file of targets, with one sentence per line; or one file whose lines have a source,
        a tab and a target, and maybe further columns, which are ignored. Files that end in .gz are decompressed.
      reverse: whether the targets come first.

    Raises:
      FileNotFoundError: when a file does not exist.
      DataError: when a file cannot be read, or has an empty sentence or a line without a partner; the message names the
        file and the line.
    """
    if len(paths) == 1:
        columns = [_columns(paths[0], place, line) for place, line in _numbered(paths[0])]
    else:
        lines = [_numbered(path) for path in paths]
        _refuse_unequal(paths, *lines)
        remedy = "remove this line and its translation"
        columns = list(zip(*(_sentences(*of, remedy) for of in zip(paths, lines, strict=True)), strict=True))
    return tuple(SentencePair(*(pair[::-1] if reverse else pair)) for pair in columns)


def read_pairs_or_sources(path: Path, *, reverse: bool = False) -> tuple[SentencePair, ...]:
    """The pairs of a file, as `read_pairs`; when no line has a tab, all lines are only sources."""
    lines = _numbered(path)
    if any("\t" in line for _, line in lines):
        return read_pairs([path], reverse=reverse)
    return tuple(map(SentencePair, _sentences(path, lines, "remove it")))


def held_out(pairs: Sequence[SentencePair], fraction: float) -> tuple[list[int], list[int]]:
    """The indices of the training pairs, and of the held-out pairs; pairs with equal sources stay together.

    The choice depends only on the sources, not on their order or a seed.

    Raises: DataError when there are fewer than two distinct sources.
    """
    sources = sorted({pair.source for pair in pairs}, key=lambda text: hashlib.sha256(text.encode()).digest())
    if len(sources) < 2:
        raise DataError(f"{len(sources)} distinct sentences cannot be divided into training and validation")
    count = min(max(1, round(fraction * len(sources))), len(sources) - 1)
    chosen = set(sources[:count])
    train = [number for number, pair in enumerate(pairs) if pair.source not in chosen]
    return train, [number for number, pair in enumerate(pairs) if pair.source in chosen]


def _numbered(path: Path) -> list[tuple[int, str]]:
    """The lines with their numbers, from 1. Only a line feed ends a line."""
    return list(enumerate(read_text_file(path, old_line_ends=False).removesuffix("\n").split("\n"), 1))


def _sentences(path: Path, lines: Sequence[tuple[int, str]], remedy: str) -> list[str]:
    sentences = []
    for number, line in lines:
        if not line.strip():
            raise DataError(f"{path}, line {number} is empty; {remedy}")
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


def _refuse_unequal(paths: Sequence[Path], first: Sequence[tuple[int, str]], second: Sequence[tuple[int, str]]) -> None:
    if len(first) == len(second):
        return
    longer, lines = (paths[0], first) if len(first) > len(second) else (paths[1], second)
    number, line = lines[min(len(first), len(second))]
    raise DataError(
        f"{paths[0]} has {len(first):,} lines, {paths[1]} has {len(second):,}; line {number} of {longer} has no "
        f"partner: {line.strip()[:60]!r}"
    )
