"""Questions and answers in characters: `question MASK answer MASK`, scored on the answer."""

import dataclasses
import functools
import logging
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np

from data import DataConfig, DataError, NumpyBatch, Split, errors_as, require_processor
from data.pipelines.buckets import Buckets
from data.pipelines.corruption import SHORTEST_DOCUMENT
from data.pipelines.lengths import multiples
from data.readers.birth_places import read_questions
from jaxnlp.config import BatchSize, Natural, Within
from jaxnlp.input_files.text_files import warn_of_skipped
from jaxnlp.text.characters import MASK, CharacterVocabulary
from jaxnlp.text.questions import Question

_logger = logging.getLogger(__name__)

LENGTH_MULTIPLE = 16
"""Lengths of batches are multiples of this."""


class ScoredText(NamedTuple):
    """A text as an example of a language model of characters.

    Attributes:
      text: its characters; each predicts the next one.
      given: number of first characters that are not scored.
      left_padding: number of PADs before it.
    """

    text: str
    given: int = 0
    left_padding: int = 0

    @property
    def positions(self) -> int:
        """Minimum T of a batch with it."""
        return self.left_padding + len(self.text) - 1


@dataclasses.dataclass(frozen=True)
class Questions(DataConfig):
    """The base of data sets of questions."""

    length_field: ClassVar[str] = "sequence_length"

    sequence_length: Annotated[int, Within(f"[{2 * SHORTEST_DOCUMENT}, 2147483648)")] = 128
    """Maximum length of an example in characters, T (the assignment's block size). Longer documents are truncated;
    longer questions are errors."""
    held_out: Natural = 200
    """Number of training questions that are held out for validation; 0 = validate on the dev split."""
    evaluation_batch_size: BatchSize = 100
    """Number of examples in an evaluation step."""

    @property
    def max_length(self) -> int:
        return self.sequence_length

    def buckets(self, lengths: Sequence[int], vocabulary: CharacterVocabulary) -> Buckets[ScoredText]:
        """Batches of texts. Args: lengths: of all texts, in positions; vocabulary: of their characters."""
        lengths = multiples(lengths, self.sequence_length, LENGTH_MULTIPLE, few=self.few_lengths)
        return Buckets(lengths, lambda text: text.positions, functools.partial(text_batch, vocabulary))

    def question_text(self, question: Question) -> ScoredText:
        """`question MASK place MASK`; the characters before the place are not scored.

        Raises: DataError, with the question, when it is too long.
        """
        given = question.text + MASK
        text = f"{given}{question.answer or ''}{MASK}"
        if len(text) > self.sequence_length + 1:  # the last character is only a target
            raise DataError(
                f"{_named(question)}: needs {len(text)} characters; "
                f"at most {self.sequence_length + 1} fit (data.sequence_length {self.sequence_length})"
            )
        return ScoredText(text, len(given))

    def readable_text(self, question: Question, vocabulary: CharacterVocabulary) -> ScoredText:
        """As `question_text`. Raises: DataError, with the question, also for characters outside the vocabulary."""
        text = self.question_text(question)
        with errors_as(DataError, _named(question)):
            vocabulary.encode(text.text)
        return text

    def read_file(self, path: Path, processor: Any) -> Split[Question]:
        """Reads a file of questions, with or without places.

        Questions that are too long, or have unknown characters, are skipped; those without a place are not scored. A
        place that is too long, or has unknown characters, makes its question wrong, and the loss leaves it out.
        Warnings count all three.

        Raises: FileNotFoundError, DataError naming the file, and the line if possible.
        """
        vocabulary = require_processor(processor, CharacterVocabulary)
        read = read_questions(path, fate="not scored")
        splits, skipped, wrong = list[Split[Question]](), dict[int, DataError](), list[int]()
        for questions in (read.questions, read.without):
            kept, texts = list[int](), list[ScoredText]()
            for line, question in questions.items():
                try:
                    self.readable_text(Question(question.text), vocabulary)
                except DataError as error:
                    skipped[line] = error
                    continue
                kept.append(line)
                try:
                    texts.append(self.readable_text(question, vocabulary))
                except DataError:
                    wrong.append(line)
            if kept:
                lengths = [text.positions for text in texts] or [1]  # no text is left if all places are wrong
                buckets = self.buckets(lengths, vocabulary)
                asked, without = [questions[n] for n in kept], [index for index, n in enumerate(kept) if n in wrong]
                split = question_split(buckets, asked, texts, self.evaluation_batch_size, without=without)
                splits.append(dataclasses.replace(split, source=read.source(kept)))
        if not splits:
            line, first = next(iter(skipped.items()))
            raise DataError(f"{path}, line {line}: {first}") from first
        why = "too long, or with characters outside the vocabulary"
        warn_of_skipped(path, sorted(skipped), read.lines, "questions", why)
        if wrong:
            _logger.warning(
                "%s: questions whose place is too long, or has characters outside the vocabulary, which are wrong, and "
                "not in the loss: %s of %s, the first in line %s",
                *(path, f"{len(wrong):,}", f"{read.lines:,}", wrong[0]),
            )
        whole, *rest = splits
        return dataclasses.replace(whole, unlabelled=next(iter(rest), None))


def _named(question: Question) -> str:
    return f"question {question.text!r}" + ("" if question.answer is None else f", answer {question.answer!r}")


def question_split(
    buckets: Buckets[ScoredText],
    questions: Sequence[Question],
    texts: Sequence[ScoredText],
    batch_size: int,
    *,
    without: Collection[int] = (),
) -> Split[Question]:
    """The split of questions; with batches if their answers are known. Args: without: questions that have no text."""
    if not questions or questions[0].answer is None:
        return Split(examples=tuple(questions), scored=False)
    batches, rows = buckets.one_pass(texts, batch_size)
    of_texts = np.array([index for index in range(len(questions)) if index not in without], int)
    return Split(batches, tuple(questions), of_texts[rows])


def text_batch(vocabulary: CharacterVocabulary, texts: Sequence[ScoredText], size: int, length: int) -> NumpyBatch:
    """Texts as a batch of B rows of T positions; the last rows are padding.

    Returns:
      `tokens` [B, T] int32, all characters of a text but the last; `targets` [B, T] int32, all but the first;
      `loss_mask` [B, T] bool, True at the targets that are scored.
    """
    starts, answers, ends = np.zeros((3, size, 1), int)
    starts[: len(texts), 0] = [text.left_padding for text in texts]
    answers[: len(texts), 0] = [text.left_padding + text.given for text in texts]
    ends[: len(texts), 0] = [text.left_padding + len(text.text) for text in texts]
    places = np.arange(length + 1)
    inside = (starts <= places) & (places < ends)
    ids = np.zeros(inside.shape, np.int32)
    ids[inside] = vocabulary.encode("".join(text.text for text in texts))  # faster than a call for each text
    followed = inside[:, :-1] & inside[:, 1:]
    return {
        "tokens": np.where(followed, ids[:, :-1], 0),
        "targets": np.where(followed, ids[:, 1:], 0),
        "loss_mask": followed & (places[1:] >= answers),
    }
