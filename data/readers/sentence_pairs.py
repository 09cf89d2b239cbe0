"""Sentences and their translations in files: two files with one sentence per line, or one file with tabs."""

import collections
import hashlib
import itertools
import logging
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.sparse

from data import DataError
from data.readers.missing_values import warn_of_missing
from jaxnlp.corpus import SourceRows
from jaxnlp.input_files.delimited import Record, repeated_headers
from jaxnlp.input_files.json_objects import is_json
from jaxnlp.input_files.tables import is_table, warn_of_tables
from jaxnlp.input_files.text_files import UTF_8, is_blank, read_text_file, warn_of_skipped
from jaxnlp.text.translation import SentencePair

_logger = logging.getLogger(__name__)
_HEADINGS = {"source", "target", "src", "tgt", "trg", "input", "output", "text", "sentence", "translation", "reference"}
"""Headings of columns of sentences, besides names and codes of languages."""
_LANGUAGES = {
    *("arabic", "chinese", "czech", "dutch", "english", "finnish", "french", "german", "greek", "hebrew", "hindi"),
    *("italian", "japanese", "korean", "latin", "persian", "polish", "portuguese", "romanian", "russian", "spanish"),
    *("swedish", "turkish", "ukrainian", "urdu", "vietnamese", "deutsch", "español", "français", "italiano"),
}
_LANGUAGE = re.compile(r"[a-z]{2}([-_][a-z]{2,4})?")
_QUOTED = re.compile(r'\s*"(?:[^"]|"")*"\s*')


class ReadPairs(NamedTuple):
    """The content of files of sentences.

    Attributes:
      pairs: the pairs, or only sources.
      source: all lines.
      alone: sources with a blank target in a file of pairs; none in a file of sources only.
    """

    pairs: tuple[SentencePair, ...]
    source: SourceRows
    alone: tuple[SentencePair, ...]


def read_pairs(
    paths: Sequence[Path], *, reverse: bool = False, encoding: str = UTF_8, fate: str = "skipped", known: bool = False
) -> ReadPairs:
    """The pairs of one or two files, without white space around sentences, and all lines of the files.

    Pairs with a blank sentence are skipped, with a warning, and so is a header in one file, such as English and German.

    Args:
      paths: a file of sources and a file of targets, with one sentence per line; or one file whose lines have a source,
        a tab and a target, and perhaps ignored columns. Files that end in .gz are decompressed.
      reverse: whether the targets come first.
      encoding: of the files.
      fate: of pairs with a blank sentence, for the warning.
      known: whether the columns are those of a public data set, without warnings.

    Raises:
      FileNotFoundError: when a file does not exist.
      DataError: naming the file and, if possible, the line, when a file cannot be read, has a line without a partner,
        or has only blank sentences, or when two files are the same or two tables.
    """
    files = [_lines(path, encoding) for path in paths]
    if len(paths) == 2 and paths[0].samefile(paths[1]):
        raise DataError(f"{paths[0]} is given twice, as sources and as targets; give two files, or one with tabs")
    if len(paths) == 1:
        columns = [_columns(paths[0], number, line) for number, line in enumerate(files[0], 1)]
        if not known:
            _warn_of_quotes(paths[0], columns)
        if header := _is_header(paths[0], columns[0]):
            records = [Record(line, [*pair]) for line, pair in enumerate(columns[1:], 2)]
            repeated = repeated_headers(records, [name.strip() for name in columns[0]], str(paths[0]))
            columns = [("", "") if line in {1, *repeated} else pair for line, pair in enumerate(columns, 1)]
        if not known:
            _warn_of_columns(paths[0], files[0])
    else:
        _refuse_unequal(paths, *files)
        _refuse_tables(paths, files)
        warn_of_tables(paths)
        header, columns = False, list(itertools.zip_longest(files[0], files[1], fillvalue=""))
    if reverse:
        columns = [(target, source) for source, target in columns]
    rows = [(_stripped(source), _stripped(target)) for source, target in columns]
    if not known:
        warn_of_missing(paths[0], ((line, text) for line, row in enumerate(rows, 1) for text in row))
    return _pairs(" and ".join(map(str, paths)), rows, header=header, fate=fate)


def read_pairs_or_sources(paths: Sequence[Path], *, reverse: bool = False, encoding: str = UTF_8) -> ReadPairs:
    """The pairs of files, as `read_pairs`; if it is one file without a tab, all its lines are only sources.

    Raises: as `read_pairs`; DataError for one file that is a table or JSON and has no tab.
    """
    if len(paths) > 2:
        raise DataError(f"give one file, or one of sources and one of targets, got {', '.join(map(str, paths))}")
    lines = _lines(paths[0], encoding)
    if len(paths) == 2 or any("\t" in line for line in lines):
        return read_pairs(paths, reverse=reverse, encoding=encoding, fate="not scored")
    has_commas = is_table(paths[0]) and ".tsv" not in paths[0].suffixes
    if has_commas or is_json("\n".join(lines)):
        raise DataError(
            f"{paths[0]}: a table or JSON without tabs; expected two sentences with a tab between them in each line, "
            "or one sentence to translate: convert it, and give the file a name in .txt"
        )
    return _pairs(str(paths[0]), [(_stripped(line), None) for line in lines])


def _pairs(
    name: str, rows: Sequence[tuple[str, str | None]], *, header: bool = False, fate: str = "skipped"
) -> ReadPairs:
    """The rows without blank sentences as pairs, and all rows.

    Args:
      name: of the files, for the warning.
      rows: of the files.
      header: line 1 was a header, and is now blank.
      fate: of pairs with a blank sentence, for the warning.
    """
    pairs = tuple(SentencePair(*row, line) for line, row in enumerate(rows, 1) if row[0] and row[1] != "")
    lines = {pair.line for pair in pairs}
    blank = [line for line in range(1 + header, len(rows) + 1) if line not in lines]
    warn_of_skipped(name, blank, len(rows) - header, "lines" if rows[0][1] is None else "pairs", "without text", fate)
    alone = tuple(SentencePair(row[0], None, line) for line, row in enumerate(rows, 1) if row[0] and row[1] == "")
    return ReadPairs(pairs, lines_of(pairs, len(rows)), alone)


def lines_of(pairs: Sequence[SentencePair], count: int) -> SourceRows:
    """The lines of files as the source of some pairs. Args: count: of the lines."""
    return SourceRows([pair.line - 1 for pair in pairs], [str(line) for line in range(1, count + 1)])


def held_out(
    pairs: Sequence[SentencePair], fraction: float, *, separate_targets: bool = False
) -> tuple[list[int], list[int]]:
    """The indices of the training pairs, and of the held-out pairs; pairs with equal sources stay together.

    The choice depends only on the sentences, not on their order or a seed.

    Args:
      pairs: sources and references.
      fraction: the share of the distinct sources that is held out.
      separate_targets: whether pairs with equal references stay together too. A group of pairs that is larger than
        the held-out share is used for training.

    Raises: DataError when there are fewer than two groups.
    """
    group_of = {pair.source: pair.source for pair in pairs}
    if separate_targets:
        group_of = _groups(pairs)
    sources = collections.Counter(group_of.values())
    if len(sources) < 2:
        what = "groups of pairs that share no source and no target" if separate_targets else "distinct sources"
        raise DataError(f"expected at least two {what}, for training and validation, got {len(sources)}")
    left = min(max(1, round(fraction * len(group_of))), len(group_of) - 1)
    chosen = set[str]()
    for group in sorted(sources, key=lambda text: hashlib.sha256(text.encode()).digest()):
        if sources[group] <= left:
            chosen.add(group)
            left -= sources[group]
    train = [index for index, pair in enumerate(pairs) if group_of[pair.source] not in chosen]
    return train, [index for index, pair in enumerate(pairs) if group_of[pair.source] in chosen]


def _groups(pairs: Sequence[SentencePair]) -> dict[str, str]:
    """The group of each source, named by the first of its sources in alphabetical order. Pairs that share a source or a
    reference, directly or through other pairs, are in one group."""
    sources, targets = sorted({pair.source for pair in pairs}), sorted({str(pair.reference) for pair in pairs})
    rows = {source: index for index, source in enumerate(sources)}
    columns = {target: len(sources) + index for index, target in enumerate(targets)}
    edges = np.array([(rows[pair.source], columns[str(pair.reference)]) for pair in pairs]).T
    size = len(sources) + len(targets)
    graph = scipy.sparse.coo_matrix((np.ones(len(pairs)), edges), shape=(size, size))
    labels = scipy.sparse.csgraph.connected_components(graph, directed=False)[1]
    first = dict[int, str]()
    return {source: first.setdefault(label, source) for source, label in zip(sources, labels, strict=False)}


def _stripped(text: str) -> str:
    return "" if is_blank(text) else text.strip()


def _lines(path: Path, encoding: str) -> list[str]:
    """The lines of a file. Only a line feed ends a line, or, in a file without one, a carriage return."""
    return read_text_file(path, encoding, old_line_ends=False).removesuffix("\n").split("\n")


def _columns(path: Path, number: int, line: str) -> tuple[str, str]:
    """The source and the target of a line; both blank for a blank line."""
    if is_blank(line):
        return "", ""
    columns = line.split("\t")[:2]
    if len(columns) < 2:
        raise DataError(
            f"{path}, line {number}: expected two sentences with a tab between them, got {line[:60]!r}; convert CSV "
            "and JSON to lines with a tab, or give two files, one of sources and one of targets"
        )
    return columns[0], columns[1]


def _warn_of_quotes(path: Path, columns: Sequence[tuple[str, str]]) -> None:
    """Warns of a table that is probably written with quotes: around each sentence, or doubled in some."""
    filled = [(line, pair) for line, pair in enumerate(columns, 1) if any(pair)]
    quoted = [line for line, pair in filled if any(map(_QUOTED.fullmatch, pair))]
    doubled = any('""' in text[1:-1] and _QUOTED.fullmatch(text) for _, pair in filled for text in pair)
    if doubled or (quoted and all(_QUOTED.fullmatch(text) for _, pair in filled for text in pair)):
        _logger.warning(
            "%s: lines with a sentence between quotes: %s of %s, the first in line %d; quotes are read as characters: "
            "if a spreadsheet wrote them, write the table without quotes",
            *(path, f"{len(quoted):,}", f"{len(filled):,}", quoted[0]),
        )


def _is_header(path: Path, first: tuple[str, str]) -> bool:
    """Whether line 1 is a header: both cells are names of columns or languages, or one is, and the other may be a code
    of a language. Two words such as no and ja may be codes or texts, and are read as a pair. Both cases are warned of.
    """
    cells = [text.strip().lower() for text in first]
    names = [cell in _HEADINGS | _LANGUAGES for cell in cells]
    if not all(name or _LANGUAGE.fullmatch(cell) for name, cell in zip(names, cells, strict=True)):
        return False
    shown = " and ".join(map(repr, first))
    if any(names):
        _logger.warning(
            "%s: line 1 is read as a header: %s; if it is a pair, write an empty line above it", path, shown
        )
        return True
    _logger.warning("%s: line 1 is read as a pair: %s; if it is a header, remove the line", path, shown)
    return False


def _warn_of_columns(path: Path, lines: Sequence[str]) -> None:
    """Warns of lines with further nonblank columns, with the pair read from the first one."""
    split = [line.split("\t") for line in lines]
    further = [index for index, columns in enumerate(split) if any(map(str.strip, columns[2:]))]
    if further:
        _logger.warning(
            "%s: lines with more than two columns: %s of %s, the first in line %d; the first two are read, such as %r "
            "and %r",
            *(path, f"{len(further):,}", f"{len(lines):,}", further[0] + 1),
            *(column[:60] for column in split[further[0]][:2]),
        )


def _refuse_tables(paths: Sequence[Path], files: Sequence[Sequence[str]]) -> None:
    """Raises DataError when all lines of both files have a tab: probably each is a table of pairs."""
    if all("\t" in line for lines in files for line in lines if not is_blank(line)):
        raise DataError(
            f"each line of {paths[0]} and {paths[1]} has a tab; of two files, one has the sources and one the targets: "
            "give a file of pairs alone, and pairs for validation with --data.validation"
        )


def _refuse_unequal(paths: Sequence[Path], first: Sequence[str], second: Sequence[str]) -> None:
    """Raises DataError when one file has further nonblank lines."""
    shorter = min(len(first), len(second))
    longer, lines = (paths[0], first) if len(first) > len(second) else (paths[1], second)
    for number, line in enumerate(lines[shorter:], shorter + 1):
        if not is_blank(line):
            raise DataError(
                f"{paths[0]} has {len(first):,} lines, {paths[1]} has {len(second):,}; line {number} of {longer} has "
                f"no partner: {line.strip()[:60]!r}"
            )
