"""Sources of texts: Python's documentation, a public corpus, or the user's file."""

import fnmatch
import logging
import os
import pydoc_data.topics
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from data import DataError, refuse_path
from data.download import TINY_SHAKESPEARE, locate
from jaxnlp.input_files.tables import warn_of_tables
from jaxnlp.input_files.text_files import UTF_8, is_blank, read_text_file, warn_of_skipped
from jaxnlp.input_files.web_addresses import absence
from jaxnlp.text import UnknownTokenError

OWN_TEXT = "for your own text, set --data.source text_file and give it with --data.path"
"""The alternative to the files of a known text."""
TextSource = Literal["python_docs", "tiny_shakespeare", "text_file"]

_logger = logging.getLogger(__name__)


def python_topics() -> list[str]:
    """The topics of the language reference in every Python installation, for `help()`, in alphabetical order.

    Some topics are parts of others. The text differs a little between Python versions.
    """
    topics = pydoc_data.topics.topics
    return [topics[name] for name in sorted(topics)]


def python_docs() -> str:
    """`python_topics` as one text: about 700,000 characters of English prose and grammar."""
    return "\n".join(python_topics())


def source_text(source: TextSource, path: str | None = None, encoding: str = UTF_8) -> str:
    """The whole text of a source.

    Args:
      source: `python_docs` takes no path; `tiny_shakespeare` is found by `data.download` unless a path is given;
        `text_file` needs one.
      path: the user's file.
      encoding: of the user's file.

    Raises:
      DataError: for a superfluous or missing path.
      FileNotFoundError: when the file is not found, with the remedy.
    """
    match source:
        case "python_docs":
            refuse_path(source, path, OWN_TEXT)
            return python_docs()
        case "tiny_shakespeare":
            return read_text_file(locate(TINY_SHAKESPEARE, path))
        case "text_file":
            if path is None:
                raise DataError("data.source text_file needs the file: give it with --data.path FILE")
            warn_of_tables([Path(path)])
            return read_text_file(Path(path), encoding)


def text_files(given: Sequence[str]) -> list[Path]:
    """The text files of file names, folders, and patterns such as "poems/*.txt"; sorted.

    A folder means all .txt and .txt.gz files in and below it, without hidden ones. A warning counts other ignored
    files. Linked folders are read, each folder once.

    Raises:
      DataError: when a file is given twice, or a folder or a pattern has no files.
      FileNotFoundError: when there is no such file, also where a link leads.
      PermissionError: for a folder that cannot be read.
    """
    given_as: dict[Path, str] = {}
    paths: list[Path] = []
    for name in given:
        path = Path(name)
        if path.is_dir():
            there = list(_fitting(path, ("**",)))
            files = [file for file in there if file.name.lower().endswith((".txt", ".txt.gz")) and _is_file(file)]
            others = sorted(file for file in {*there} - {*files} if file.is_file())
            if not files:
                raise DataError(
                    f'the folder {path} has no .txt files; give others by a pattern: --data.path "{path}/*"'
                )
            if others:
                _logger.warning(
                    "%s: files that are ignored, because their names do not end in .txt or .txt.gz: %s, such as %s",
                    *(path, f"{len(others):,}", others[0].relative_to(path)),
                )
        elif path.is_file():
            files = [path]
        elif any(sign in name for sign in "*?["):
            files = list(filter(_is_file, dict.fromkeys(_fitting(Path(), path.parts))))
            if not files:
                raise DataError(f"no file fits the pattern {name}")
        else:
            raise FileNotFoundError(
                f"the text file {path} {absence(path)}; give text files, a folder or a pattern with --data.path"
            )
        for file in files:
            if (same := file.resolve()) in given_as:
                raise DataError(f"{file} is given twice, by {given_as[same]} and by {name}")
            given_as[same] = name
            paths.append(file)
    return sorted(paths)


def _fitting(folder: Path, pattern: Sequence[str]) -> Iterator[Path]:
    """The paths that fit the parts of a pattern, as by `glob.glob`, which leaves out unreadable folders."""
    first, *rest = pattern
    if first == "**":
        for below in _folders(folder, set()):
            yield from _fitting(below, rest or ["*"])
        return
    entries = [folder / first]
    if any(sign in first for sign in "*?["):
        hidden = first.startswith(".")
        fits = (entry for entry in folder.iterdir() if hidden or not entry.name.startswith("."))
        entries = [entry for entry in fits if fnmatch.fnmatch(entry.name, first)]
    for entry in entries:
        if not rest:
            yield entry
        elif entry.is_dir():
            yield from _fitting(entry, rest)


def _folders(folder: Path, read: set[Path]) -> Iterator[Path]:
    """A folder and all below it, each once, without hidden ones and its ancestors. Args: read: the previous ones."""
    here = folder.resolve()
    read.add(here)
    yield folder
    for entry in sorted(folder.iterdir()):
        if not entry.name.startswith(".") and entry.is_dir():
            there = entry.resolve()
            if there not in read and not here.is_relative_to(there):
                yield from _folders(entry, read)


def _is_file(path: Path) -> bool:
    """Whether a path is a file. Raises: FileNotFoundError for a link to nothing."""
    if path.is_symlink() and not path.exists():
        raise FileNotFoundError(f"{path} is a link to {os.readlink(path)}, which does not exist; remove or correct it")
    return path.is_file()


def source_documents(source: TextSource, path: str | Sequence[str] | None = None, encoding: str = UTF_8) -> list[str]:
    """The texts of a source: one, or one for each of the user's files. A warning counts skipped blank ones of several.

    Args:
      source: as for `source_text`; only `text_file` takes several files.
      path: a file, a folder or a pattern of the user's, or several; see `text_files`.
      encoding: of the user's files.

    Raises:
      DataError: as `source_text` and `text_files`.
      FileNotFoundError: when a file is not found.
    """
    given = [path] if isinstance(path, str) else list(path or ())
    if source != "text_file":
        if len(given) > 1:
            raise DataError(f"data.source {source} takes one path, got {', '.join(given)}")
        return [source_text(source, *given)]
    if not given:
        raise DataError("data.source text_file needs the text: give files, a folder or a pattern with --data.path")
    files = text_files(given)
    warn_of_tables(files)
    if len(files) == 1:
        return [read_text_file(files[0], encoding)]
    texts = [read_text_file(file, encoding, may_be_empty=True) for file in files]
    blank = [file for file, text in zip(files, texts, strict=True) if is_blank(text)]
    if len(blank) == len(files):
        raise DataError(f"all {len(files):,} files are blank, such as {blank[0]}; give files with text")
    if blank:
        _logger.warning("blank files, which are skipped: %d of %d, the first is %s", len(blank), len(files), blank[0])
    return [text for text in texts if not is_blank(text)]


def tokens_to_score(path: Path, text: str, vocabulary: Any) -> np.ndarray:
    """The tokens of a file's text, [N] int32, without lines with unknown tokens, which a warning counts.

    Args:
      path: the file.
      text: its text.
      vocabulary: `jaxnlp.text.vocabulary.Vocabulary`.

    Raises: DataError when no line is left.
    """
    try:
        return vocabulary.encode(text)
    except UnknownTokenError as error:
        known, unknown, lines = list[str](), list[int](), re.findall(r".*\n|.+", text)
        for number, line in enumerate(lines, 1):
            try:
                vocabulary.encode(line)
                known.append(line)
            except UnknownTokenError:
                unknown.append(number)
        if not "".join(known).strip():
            raise DataError(f"{path}: {error}") from error
        warn_of_skipped(path, unknown, len(lines), "lines", f"with {vocabulary.unit} outside the vocabulary")
        return vocabulary.encode("".join(known))
