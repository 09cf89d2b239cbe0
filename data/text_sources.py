"""Sources of texts: Python's documentation, a public corpus, or the user's file."""

import codecs
import gzip
import pydoc_data.topics
import zlib
from pathlib import Path
from typing import Literal, get_args

from data import DataError
from data.download import TINY_SHAKESPEARE, locate

TextSource = Literal["python_docs", "tiny_shakespeare", "text_file"]


def python_topics() -> list[str]:
    """The topics of the language reference in every Python installation, for `help()`, in alphabetical order.

    Some topics are parts of others. The text differs a little between Python versions.
    """
    topics = pydoc_data.topics.topics
    return [topics[name] for name in sorted(topics)]


def python_docs() -> str:
    """`python_topics` as one text: about 700,000 characters of English prose and grammar."""
    return "\n".join(python_topics())


def read_utf8(path: Path, *, old_line_ends: bool = True) -> str:
    """Reads a text file, uncompressed if its name ends in .gz; line ends become LF.

    Args:
      path: the file.
      old_line_ends: whether a single CR also ends a line; otherwise it becomes a blank.

    Raises:
      FileNotFoundError: when the file does not exist.
      DataError: when it is damaged, not UTF-8 (with the line of the first bad byte) or empty.
    """
    if not path.is_file():
        raise FileNotFoundError(
            f"the text file {path} does not exist; give a UTF-8 file (--data.path, --data.train, --file)"
        )
    raw = path.read_bytes()
    if path.suffix == ".gz":
        try:
            raw = gzip.decompress(raw)
        except (OSError, EOFError, zlib.error) as error:
            raise DataError(f"{path} is not a gzip file, or is damaged: {error}") from error
    raw = raw.removeprefix(codecs.BOM_UTF8)
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise DataError(
            f"{path}, line {line}: byte {raw[error.start]:#04x} is not UTF-8; convert the file, "
            f"for example with: iconv -f latin1 -t utf-8"
        ) from error
    if not text:
        raise DataError(f"{path} is empty")
    return text.replace("\r\n", "\n").replace("\r", "\n" if old_line_ends else " ")


def read_text(source: TextSource, path: str | None = None) -> str:
    """The whole text of a source.

    Args:
      source: `python_docs` takes no path; `tiny_shakespeare` is found by `data.download` unless a path is given;
        `text_file` needs one.
      path: the user's file.

    Raises:
      DataError: for an unknown source, or a superfluous or missing path.
      FileNotFoundError: when the file is not found; the message says what to do.
    """
    match source:
        case "python_docs":
            if path is not None:
                raise DataError(f"data.source python_docs is embedded and takes no path, got {path}")
            return python_docs()
        case "tiny_shakespeare":
            return read_utf8(locate(TINY_SHAKESPEARE, path))
        case "text_file":
            if path is None:
                raise DataError("data.source text_file needs the file: give it with --data.path FILE")
            return read_utf8(Path(path))
        case _:
            raise DataError(f"data.source must be one of {', '.join(get_args(TextSource))}, got {source!r}")
