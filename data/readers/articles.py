"""Articles of words, for word language models: WikiText-2, CMU 11-785's arrays of it, or any text."""

import csv
import dataclasses
import io
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import numpy as np

from data import DataError, errors_as
from data.download import DataNotFoundError, locate_folder
from data.pipelines.fingerprints import fingerprint, vocabulary_text
from data.readers.object_arrays import read_array, read_object_array
from data.readers.text_sources import OWN_TEXT, source_text
from jaxnlp.input_files.text_files import UTF_8, read_text_file
from jaxnlp.text import UnknownTokenError
from jaxnlp.text.words import EOL, UNK, WordVocabulary, whitespace_split

WordSource = Literal["cmu_hw4p1", "wikitext2", "python_docs", "text_file"]

FOLDERS = {"cmu_hw4p1": "cmu11785_hw4p1", "wikitext2": "wikitext2"}
OTHERWISE = f"{OWN_TEXT}, or use --data.source python_docs, which needs no files"


@dataclasses.dataclass(frozen=True, eq=False)
class Articles:
    """Independent texts of words, each [N] int32 with N > 0, and the vocabulary of their ids."""

    vocabulary: WordVocabulary
    train: tuple[np.ndarray, ...]
    validation: tuple[np.ndarray, ...]

    @property
    def fingerprint(self) -> str:
        """Changes with any word, and with the start of any article."""
        contents: list[str | np.ndarray] = [vocabulary_text(self.vocabulary)]
        for part in (self.train, self.validation):
            contents += [repr(list(map(len, part))), *(article.astype("<i4") for article in part)]
        return fingerprint(*contents)


def read_articles(
    source: WordSource,
    path: str | None = None,
    *,
    minimum_count: int = 1,
    validation_fraction: float = 0.1,
    vocabulary: WordVocabulary | None = None,
    encoding: str = UTF_8,
) -> Articles:
    """The articles of a source.

    Args:
      source: `cmu_hw4p1` and `wikitext2` are searched in `path`, then in JAXNLP_DATA; `python_docs` takes no path,
        `text_file` needs one; both give one article for training and one for validation.
      path: folder of the first two, file of the last.
      minimum_count: for python_docs and text_file: rarer words of the training part become UNK.
      validation_fraction: for python_docs and text_file: share of the words, at the end, that is held out.
      vocabulary: None = that of the source, or of the training part.
      encoding: for text_file: of the file.

    Raises:
      FileNotFoundError: when the data is not found, with the remedy.
      DataError: when the data is invalid or does not fit the vocabulary.
    """
    try:
        return _read(source, path, minimum_count, validation_fraction, vocabulary, encoding)
    except UnknownTokenError as error:
        raise DataError(f"data.source {source}: {error}; use a model that was trained on this data") from error


def _read(
    source: WordSource,
    path: str | None,
    minimum_count: int,
    validation_fraction: float,
    given: WordVocabulary | None,
    encoding: str,
) -> Articles:
    match source:
        case "cmu_hw4p1":
            holds = "the homework's dataset/vocab.npy, dataset/wiki.train.npy and dataset/wiki.valid.npy"
            articles = _read_homework(locate_folder(FOLDERS[source], path, holds=holds, otherwise=OTHERWISE))
            if given is not None and given != articles.vocabulary:
                raise DataError(
                    f"vocabularies differ: the model's has {given.size:,} words, that of data.source cmu_hw4p1 has "
                    f"{articles.vocabulary.size:,}; use a model that was trained on this data"
                )
            return articles
        case "wikitext2":
            holds = "train.txt and valid.txt"
            return _read_wikitext(locate_folder(FOLDERS[source], path, holds=holds, otherwise=OTHERWISE), given)
    words = whitespace_split(source_text(source, path, encoding))
    boundary = int(len(words) * (1.0 - validation_fraction))
    if not 0 < boundary < len(words):
        raise DataError(f"the text has too few words to hold out {validation_fraction} of them: {len(words)}")
    train, validation = words[:boundary], words[boundary:]
    vocabulary = given or _vocabulary_of(word for word, count in Counter(train).items() if count >= minimum_count)
    return Articles(vocabulary, (vocabulary.encode_words(train),), (vocabulary.encode_words(validation),))


def _vocabulary_of(words: Iterable[str]) -> WordVocabulary:
    """The words, EOL and UNK, in code point order: for WikiText-2 this is the homework's vocabulary."""
    return WordVocabulary(sorted({*words, EOL, UNK}), unknown=UNK)


def _read_wikitext(folder: Path, given: WordVocabulary | None) -> Articles:
    """The text of the release: every line, also a blank one, ends with EOL. The vocabulary is the training part's."""
    train, validation = (
        _split_articles(read_text_file(_first_there(folder, f"{part}.txt", f"{part}.txt.gz", f"wiki.{part}.tokens")))
        for part in ("train", "valid")
    )
    vocabulary = given or _vocabulary_of(word for article in train for word in article)
    return Articles(vocabulary, *(tuple(map(vocabulary.encode_words, part)) for part in (train, validation)))


def _split_articles(text: str) -> list[list[str]]:
    """An article starts at each line `= Two or more words =`, as in the homework: titles of one word do not count."""
    articles: list[list[str]] = [[]]
    for line in text.removesuffix("\n").split("\n"):
        words = line.split()
        heading = len(words) > 3 and words[0] == words[-1] == "=" and words[1] != "="
        if heading and any(word != EOL for word in articles[-1]):
            articles.append([])
        articles[-1] += [*words, EOL]
    return articles


def _read_homework(folder: Path) -> Articles:
    """The homework's arrays: WikiText-2 without blank lines; each line ends with EOL."""
    vocabulary = read_homework_vocabulary(folder)
    train, validation = (
        _read_ids(_first_there(folder / "dataset", f"wiki.{part}.npy", f"wiki.{part}.npy.gz"), vocabulary.size)
        for part in ("train", "valid")
    )
    return Articles(vocabulary, train, validation)


def read_homework_vocabulary(folder: Path) -> WordVocabulary:
    """The vocabulary of the homework's ids. Raises: FileNotFoundError, DataError as `read_articles`."""
    path = _first_there(folder / "dataset", "vocab.npy", "vocab.npy.gz", "vocab.csv")
    words = _read_csv_words(path) if path.suffix == ".csv" else _read_array_words(path)
    with errors_as(DataError, path):
        return WordVocabulary(words, unknown=UNK if UNK in words else None)


def _first_there(folder: Path, *names: str) -> Path:
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise DataNotFoundError(f"{folder} does not have {' or '.join(names)}; add it, or {OTHERWISE}")


def _read_array_words(path: Path) -> list[str]:
    array = read_array(path)
    if array.ndim != 1 or array.dtype.kind != "U":
        raise DataError(f"{path}: expected words [V], got {array.dtype} {list(array.shape)}")
    return array.tolist()


def _read_csv_words(path: Path) -> list[str]:
    """Rows `id,word` after a header, with ids from 0."""
    rows = list(csv.reader(io.StringIO(read_text_file(path), newline="")))
    for index, row in enumerate(rows):
        expected = ["Id", "Token"] if index == 0 else [str(index - 1), "the word"]
        if len(row) != 2 or row[0] != expected[0]:
            raise DataError(f"{path}, row {index + 1}: expected {','.join(expected)}, got {','.join(row)!r}")
    return [word for _, word in rows[1:]]


def _read_ids(path: Path, vocabulary_size: int) -> tuple[np.ndarray, ...]:
    articles = read_object_array(path)
    if not articles:
        raise DataError(f"{path} contains no articles")
    return tuple(checked_ids(ids, f"{path}: article[{index}]", vocabulary_size) for index, ids in enumerate(articles))


def checked_ids(ids: np.ndarray, name: str, vocabulary_size: int, *, axes: str = "N") -> np.ndarray:
    """Word ids as int32.

    Args:
      ids: of any shape and dtype.
      name: their name in messages.
      vocabulary_size: V; ids must be in [0, V).
      axes: the expected axes, one letter each.

    Raises: DataError when the ids are not integers, have other axes, are empty, or are outside [0, V), with the first
      such id.
    """
    if ids.dtype.kind not in "iu":
        raise DataError(f"{name} is of dtype {ids.dtype}, expected integers: the ids of words")
    if ids.ndim != len(axes):
        raise DataError(f"{name} is of shape {list(ids.shape)}, expected [{', '.join(axes)}]")
    if not ids.size:
        raise DataError(f"{name} is empty; expected at least one id")
    outside = np.argwhere((ids < 0) | (ids >= vocabulary_size))
    if len(outside):
        index = outside[0].tolist()
        raise DataError(f"{name}{index} is {ids[tuple(index)]}, outside the vocabulary of {vocabulary_size} words")
    return ids.astype(np.int32)
