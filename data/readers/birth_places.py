"""The files of the birth-place assignment: documents about people, and questions about them."""

import dataclasses
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from data import DataError, refuse_path
from data.download import locate_folder
from data.invented_people import invent
from data.pipelines.corruption import SHORTEST_DOCUMENT
from data.pipelines.fingerprints import fingerprint
from jaxnlp.corpus import SourceRows
from jaxnlp.input_files.text_files import is_blank, read_text_file, warn_of_skipped
from jaxnlp.text.characters import MASK, PAD, CharacterVocabulary
from jaxnlp.text.questions import Question


def read_documents(path: Path) -> list[str]:
    """The lines of a file, one document each. Blank and very short lines are skipped; warnings count them.

    Raises: FileNotFoundError, DataError when it cannot be read, or naming a line with a special token.
    """
    lines = _lines(path)
    for number, line in enumerate(lines, 1):
        _refuse_special(line, path, number)
    short = [number for number, line in enumerate(lines, 1) if 0 < len(line.strip()) < SHORTEST_DOCUMENT]
    warn_of_skipped(path, short, len(lines), "lines", f"shorter than {SHORTEST_DOCUMENT} characters")
    return [line for line in lines if len(line.strip()) >= SHORTEST_DOCUMENT]


class ReadQuestions(NamedTuple):
    """The questions of a file, by their lines, from 1.

    Attributes:
      questions: those with a place; or all, if places are optional and none has one.
      without: those with a blank place, in a file with places.
      lines: number of lines of the file.
    """

    questions: dict[int, Question]
    without: dict[int, Question]
    lines: int

    def source(self, lines: Iterable[int]) -> SourceRows:
        """The lines of the file as the source of the questions in some of them."""
        return SourceRows([line - 1 for line in lines], [str(number) for number in range(1, self.lines + 1)])


def read_questions(path: Path, *, labelled: bool = False, fate: str = "skipped") -> ReadQuestions:
    """The questions of a file: `question TAB place`, or only the question.

    Lines without a question are skipped; warnings count them, and the questions without a place if others have one.

    Args:
      path: the file.
      labelled: whether each line must have a tab, and at least one a place.
      fate: of questions without a place, for the warning.

    Raises: FileNotFoundError, DataError when it cannot be read, or a line is not a question.
    """
    questions, without = dict[int, Question](), dict[int, Question]()
    lines = _lines(path, lambda line: is_blank(line.partition("\t")[0]))
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        _refuse_special(line, path, number)
        text, tab, answer = line.partition("\t")
        if "\t" in answer.strip():
            raise DataError(f"{path}, line {number}: expected 'question', or 'question TAB place', got {line!r}")
        if labelled and not tab:
            raise DataError(f"{path}, line {number}: expected a tab and a place, got {line!r}; add the place")
        blank = is_blank(answer)
        (without if blank else questions)[number] = Question(text.strip(), None if blank else answer.strip())
    if not questions and not labelled:
        questions, without = without, {}
    warn_of_skipped(path, [*without], len(lines), "questions", "without a place", fate)
    return ReadQuestions(questions, without, len(lines))


def _lines(path: Path, blank_line: Callable[[str], bool] = is_blank) -> list[str]:
    """The lines of a file, "" for blank ones; a warning counts these."""
    lines = ["" if blank_line(line) else line for line in read_text_file(path).removesuffix("\n").split("\n")]
    blank = [number for number, line in enumerate(lines, 1) if not line]
    warn_of_skipped(path, blank, len(lines), "lines", "without text")
    return lines


def _refuse_special(line: str, path: Path, number: int) -> None:
    for name, character in (("MASK", MASK), ("PAD", PAD)):
        if character in line:
            raise DataError(
                f"{path}, line {number}: contains {character!r} (U+{ord(character):04X}), which is the {name} token; "
                "replace it"
            )


NamesSource = Literal["cs224n_a5", "invented"]

FOLDER = "cs224n_a5_names"
DOCUMENTS, TRAIN, DEV, TEST = "wiki.txt", "birth_places_train.tsv", "birth_dev.tsv", "birth_test_inputs.tsv"


@dataclasses.dataclass(frozen=True)
class NamesCorpus:
    """The assignment's documents, and the questions of each split."""

    documents: tuple[str, ...]
    train: tuple[Question, ...]
    dev: tuple[Question, ...]
    test: tuple[Question, ...]

    @property
    def vocabulary(self) -> CharacterVocabulary:
        """PAD and MASK, then the characters of the documents and all questions, and the line feed."""
        questions = (*self.train, *self.dev, *self.test)
        lines = [*self.documents, *(f"{question.text}{question.answer or ''}" for question in questions)]
        return CharacterVocabulary.of("\n".join(lines), special=PAD + MASK)

    def training_questions(self, held_out: int) -> tuple[tuple[Question, ...], tuple[Question, ...]]:
        """The training questions, without held-out ones and those of the dev and test files; and the held-out ones,
        which do not depend on a seed.

        Raises: DataError when no training question is left.
        """
        order = np.random.default_rng(0).permutation(len(self.train))
        held = tuple(self.train[index] for index in np.sort(order[:held_out]))
        never = {question.text for questions in (held, self.dev, self.test) for question in questions}
        kept = tuple(question for question in self.train if question.text not in never)
        if not kept:
            raise DataError(f"--data.held-out {held_out} leaves none of the {len(self.train)} training questions")
        return kept, held

    @property
    def fingerprint(self) -> str:
        """Changes with any character."""
        return fingerprint(repr(dataclasses.astuple(self)))


def read_names(source: NamesSource, path: str | None) -> NamesCorpus:
    """The assignment's four files, or invented people.

    Args:
      source: `cs224n_a5` is searched in `path`, then in JAXNLP_DATA; `invented` takes no path.
      path: the folder of the four files.

    Raises:
      FileNotFoundError: when the folder or one of its files is not found, with the remedy.
      DataError: naming a malformed line.
    """
    if source == "invented":
        refuse_path(source, path, "for files of people, set --data.source cs224n_a5")
        people = invent(seed=0)
        train, dev = (tuple(Question(*pair) for pair in pairs) for pairs in (people.train, people.dev))
        return NamesCorpus(people.documents, train, dev, tuple(map(Question, people.test)))
    folder = locate_folder(
        FOLDER,
        path,
        holds=f"{DOCUMENTS}, {TRAIN} and so on",
        otherwise="use invented people: --data.source invented",
    )
    missing = [name for name in (DOCUMENTS, TRAIN, DEV, TEST) if not (folder / name).is_file()]
    if missing:
        raise FileNotFoundError(f"{folder} does not have {', '.join(missing)}; copy the assignment's files there")
    return NamesCorpus(
        tuple(read_documents(folder / DOCUMENTS)),
        tuple(read_questions(folder / TRAIN, labelled=True).questions.values()),
        tuple(read_questions(folder / DEV, labelled=True).questions.values()),
        tuple(read_questions(folder / TEST).questions.values()),
    )
