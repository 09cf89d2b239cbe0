"""Word vectors from text files in the format of word2vec, GloVe and fastText."""

import codecs
import gzip
import itertools
import logging
import math
import unicodedata
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

_logger = logging.getLogger(__name__)
_LARGEST = 1e15
"""Maximum of a vector's numbers: the variance of larger ones is not finite in 32 bits."""


class WordVectors(NamedTuple):
    """Vectors of a vocabulary's words.

    Attributes:
      vectors: in the order of the words [V, D] float32.
      known: whether the file has the word [V] bool; other vectors are random.
    """

    vectors: np.ndarray
    known: np.ndarray


def read_word_vectors(path: str | Path, words: Sequence[str], *, seed: int = 0) -> WordVectors:
    """Reads the vectors of a vocabulary's words from a text file.

    Each line has a word and its D numbers, separated by blanks. The first line may be a header: the number of vectors,
    and D. Files that end in .gz are decompressed. The first line of a word counts. A word may contain blanks, as a few
    of GloVe's do.

    Vectors of missing words are uniform in [-a, a], with the variance of the known ones.

    Args:
      path: the file.
      words: the vocabulary, V distinct words in the order of their ids.
      seed: of the random vectors.

    Raises:
      FileNotFoundError: when the file does not exist.
      ValueError: naming file and line, for another number of columns, for numbers that are not finite, and for text
        that is not UTF-8; naming the file, when it is damaged, does not have the number of lines of its header, or has
        none of the words. Only the numbers of words of the vocabulary are checked.

    Source: Kim 2014, section 4.3, for the variance of random vectors.
    """
    path = Path(path).expanduser()
    rows = {word: row for row, word in enumerate(words)}
    lines = _lines(path)
    first = next(lines, None)
    if first is None:
        raise ValueError(f"{path} is empty")
    header = _header(first[1])
    width = len(first[1].split()) - 1 if header is None else header[1]
    if width < 1:
        raise ValueError(f"{path}, line 1: expected a word and its numbers, got {_shown(first[1])}")
    rest = lines if header else itertools.chain([first], lines)
    vectors, known, count = np.zeros((0, 0), np.float32), np.zeros(len(words), bool), 0
    for number, line in rest:
        count += 1
        try:
            word, columns = _split(line, width)
            if not vectors.size:  # after the first line has shown that the header's width is right
                vectors = np.zeros((len(words), width), np.float32)
            row = rows.get(unicodedata.normalize("NFC", word), rows.get(word))
            if row is not None and not known[row]:
                vectors[row], known[row] = _numbers(columns), True
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: {error}") from error
    if header is not None and count != header[0]:
        raise ValueError(f"{path} has {count} vectors, but its first line says {header[0]}: the file may be truncated")
    if not known.any():
        raise ValueError(f"{path} has none of the {len(words)} words of the vocabulary, such as {_examples(words)}")
    bound = math.sqrt(3.0 * float(vectors[known].var()))
    generator = np.random.default_rng(seed)
    vectors[~known] = generator.uniform(-bound, bound, (len(words) - int(known.sum()), width))
    return WordVectors(vectors, known)


def initial_word_vectors(path: str, words: Sequence[str], width: int, field: str) -> np.ndarray:
    """The vectors of `read_word_vectors`, for a model's embeddings [V, D]. Warns if few words are known.

    Args: words: the vocabulary; width: D of the model; field: its option.

    Raises: FileNotFoundError, ValueError as there, and for vectors of another width.
    """
    vectors, known = read_word_vectors(path, words)
    if vectors.shape[1] != width:
        raise ValueError(f"model.{field} must be that of {path}, {vectors.shape[1]}, got {width}")
    if known.mean() < 0.5:
        message = "%s has vectors of %d of the %d words; the others are initialised at random"
        _logger.warning(message, path, known.sum(), len(known))
    return vectors


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Lines, and their numbers from 1. Raises: FileNotFoundError; ValueError for a damaged file."""
    if not path.is_file():
        raise FileNotFoundError(f"the file of word vectors {path} does not exist")
    opener: Any = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rb") as file:
            for number, line in enumerate(file, 1):
                yield number, (line.removeprefix(codecs.BOM_UTF8) if number == 1 else line).rstrip()
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is not a gzip file, or is damaged: {error}") from error


def _header(line: bytes) -> tuple[int, int] | None:
    """The number of vectors and their width, if the line is a header; otherwise None."""
    columns = line.split()
    is_header = len(columns) == 2 and all(column.isdigit() and len(column) < 20 for column in columns)
    return (int(columns[0]), int(columns[1])) if is_header else None


def _split(line: bytes, width: int) -> tuple[str, bytes]:
    """The word of a line, and its numbers. Raises: ValueError for another number of columns."""
    word, numbers = [*line.split(None, 1), b"", b""][:2]
    if numbers.count(b" ") + 1 != width:
        columns = line.split()
        further = columns[1:-width]  # the rest of a word with blanks
        if len(columns) <= width or any(map(_is_number, further)):
            raise ValueError(f"expected a word and {width} numbers, got {len(columns)} columns: {_shown(line)}")
        word, numbers = b" ".join(columns[:-width]), b" ".join(columns[-width:])
    try:
        return word.decode(), numbers
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {word[error.start]:#04x} is not UTF-8") from error


def _numbers(columns: bytes) -> list[float]:
    """Raises: ValueError naming a column that is not a finite number."""
    parts = columns.split()
    for index, part in enumerate(parts, 1):
        if not _is_number(part):
            raise ValueError(f"number {index} must be a finite number up to {_LARGEST:g}, got {_shown(part)}")
    return list(map(float, parts))


def _is_number(column: bytes) -> bool:
    """Whether a column is a number; Python would also accept 1_000."""
    try:
        return b"_" not in column and abs(float(column)) <= _LARGEST
    except ValueError:
        return False


def _shown(line: bytes, most: int = 60) -> str:
    """The start of a line, for a message."""
    text = line.decode(errors="replace")
    return repr(text[:most] + ("..." if len(text) > most else ""))


def _examples(words: Sequence[str], most: int = 5) -> str:
    return ", ".join(map(repr, words[-most:]))  # the first ones are often special tokens
