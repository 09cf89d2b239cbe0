"""Documents as lists of sentences: a user's file, Python's language reference, or the pairs of a labelled data set."""

import itertools
import re
from pathlib import Path
from typing import Literal

from data import DataError, refuse_path
from data.download import locate_folder
from data.readers.labelled_data_sets import LABELLED, find_file, read_data_set_file
from data.readers.text_sources import OWN_TEXT, python_topics
from jaxnlp.input_files.tables import warn_of_tables
from jaxnlp.input_files.text_files import UTF_8, read_text_file
from jaxnlp.text.wordpiece import SPECIAL

DocumentSource = Literal["python_docs", "text_file", "afqmc"]

_SPECIAL = re.compile("|".join(map(re.escape, SPECIAL)))
_HEADING = re.compile(r"^[^\n]+\n([*=\-~^#])\1{2,}$", re.MULTILINE)
_SENTENCE_END = re.compile(r"""(?:(?<=[.!?:])|(?<=[.!?]["')]))\s+(?=["'(*]*[A-Z])""")


def read_documents(source: DocumentSource, path: str | None = None, encoding: str = UTF_8) -> list[list[str]]:
    """Sentences of each document of a source.

    Args:
      source: `python_docs` takes no path; `text_file` needs one, see `file_documents`; `afqmc`, see `pair_documents`.
      path: the user's file, or the folder of the data set; None = in JAXNLP_DATA.
      encoding: of the user's file.

    Raises:
      DataError: for a superfluous or missing path, or a file with other content.
      FileNotFoundError: when the file does not exist.
    """
    match source:
        case "python_docs":
            refuse_path(source, path, OWN_TEXT)
            return python_documents()
        case "text_file":
            if path is None:
                raise DataError("data.source text_file needs the file: give it with --data.path FILE")
            return file_documents(Path(path), encoding)
        case "afqmc":
            return pair_documents(source, path)


def file_documents(path: Path, encoding: str = UTF_8) -> list[list[str]]:
    """Documents of a file: one sentence a line, blank lines between documents.

    Raises:
      FileNotFoundError: when the file does not exist.
      DataError: naming the file, and the line if possible, when it is empty, damaged or in another encoding, has no
        sentences, or contains a special token of BERT.

    Source: the format of google-research/bert's create_pretraining_data.py.
    """
    warn_of_tables([path])
    text = read_text_file(path, encoding)
    match = _SPECIAL.search(text)
    if match is not None:
        raise DataError(
            f"{path}, line {text.count(chr(10), 0, match.start()) + 1}: contains {match.group()}, which is a special "
            "token; replace it"
        )
    documents: list[list[str]] = [[]]
    for line in text.split("\n"):
        sentence = line.strip()
        if sentence:
            documents[-1].append(sentence)
        elif documents[-1]:
            documents.append([])
    documents = [document for document in documents if document]
    if not documents:
        raise DataError(f"{path} has no sentences; expected one a line, and a blank line between documents")
    return documents


def pair_documents(data_set: str, path: str | None = None) -> list[list[str]]:
    """The training pairs of a labelled data set, each a document of two sentences, without the labels.

    Raises: FileNotFoundError when the folder or the file does not exist; DataError naming a malformed line.
    """
    files = LABELLED[data_set]
    folder = locate_folder(files.folder, path, holds=files.train, otherwise=OWN_TEXT)
    return [list(row.texts) for row in read_data_set_file(data_set, find_file(folder, files.train), labelled=True)[0]]


def python_documents() -> list[list[str]]:
    """Sentences of Python's language reference, a document for each section.

    Repeated sections are used once. Lines without a letter or a digit, such as underlines and rulers, are removed.
    """
    kept: set[str] = set()
    documents = []
    for section in (section for topic in python_topics() for section in _sections(topic)):
        paragraphs = _paragraphs(section)
        repeated = sum(len(paragraph) for paragraph in paragraphs if paragraph in kept)
        # Otherwise held-out text might occur in training.
        if 2 * repeated < sum(map(len, paragraphs)):
            documents.append([sentence for paragraph in paragraphs for sentence in sentences(paragraph)])
            kept.update(paragraphs)
    return documents


def _sections(text: str) -> list[str]:
    """Parts that start with an underlined heading."""
    starts = [match.start() for match in _HEADING.finditer(text)]
    return [text[a:b] for a, b in itertools.pairwise([0, *starts, len(text)])]


def _paragraphs(text: str) -> list[str]:
    """Text between blank lines, or lines without letters and digits, each on one line."""
    lines = [line if any(map(str.isalnum, line)) else "" for line in text.split("\n")]
    return [" ".join(block.split()) for block in re.split(r"\n\n+", "\n".join(lines)) if block.strip()]


def sentences(paragraph: str) -> list[str]:
    """A paragraph, split after full stops, question and exclamation marks and colons before a capital letter."""
    return _SENTENCE_END.split(paragraph)
