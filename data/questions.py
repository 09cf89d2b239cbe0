"""Questions and answers in characters: `question MASK answer MASK`, scored on the answer."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np

from data import DataConfig, DataError, NumpyBatch, Split, require_processor
from data.pipelines.buckets import Buckets, array_buckets
from data.pipelines.corruption import SHORTEST_DOCUMENT
from data.pipelines.lengths import multiples
from data.readers.birth_places import read_questions
from jaxnlp.config import BatchSize, Natural, Within
from jaxnlp.input_files.text_files import warn_of_skipped
from jaxnlp.text import UnknownTokenError
from jaxnlp.text.characters import MASK, CharacterVocabulary
from jaxnlp.text.questions import Question

LENGTH_MULTIPLE = 16
"""Of the lengths of batches."""


@dataclasses.dataclass(frozen=True)
class Questions(DataConfig):
    """Settings of questions: a data set of its own adds `load`."""

    length_field: ClassVar[str] = "sequence_length"

    sequence_length: Annotated[int, Within(f"[{2 * SHORTEST_DOCUMENT}, 2147483648)")] = 128
    """Maximum length of an example in characters, T (the assignment's block size). Longer documents are truncated;
    longer questions are an error."""
    held_out: Natural = 200
    """Number of training questions that are held out for validation; 0 = validate on the dev split."""
    evaluation_batch_size: BatchSize = 100
    """Number of examples in an evaluation step."""

    @property
    def max_length(self) -> int:
        """T."""
        return self.sequence_length

    def buckets(self, lengths: Sequence[int]) -> Buckets[NumpyBatch]:
        """How examples become batches. Args: lengths: of all examples."""
        return array_buckets(multiples(lengths, self.sequence_length, LENGTH_MULTIPLE, few=self.few_lengths))

    def question_text(self, question: Question) -> tuple[str, int]:
        """`question MASK place MASK`, and its number of characters before the place, which are not scored.

        Raises: DataError, with the question, when it is too long.
        """
        given = question.text + MASK
        text = f"{given}{question.answer or ''}{MASK}"
        if len(text) > self.sequence_length + 1:  # the last character is only a target
            raise DataError(
                f"question {question.text!r} with answer {question.answer!r} needs {len(text)} characters; "
                f"at most {self.sequence_length + 1} fit (data.sequence_length {self.sequence_length})"
            )
        return text, len(given)

    def question_example(self, question: Question, vocabulary: CharacterVocabulary) -> NumpyBatch:
        """`question_text` as an example.

        Raises: DataError, with the question, when it is too long or contains unknown characters.
        """
        try:
            return as_examples([self.question_text(question)], vocabulary)[0]
        except UnknownTokenError as error:
            raise DataError(f"question {question.text!r}, answer {question.answer!r}: {error}") from error

    def read_file(self, path: Path, processor: Any) -> Split[Question]:
        """Reads a file of questions, with or without places.

        Questions that are too long, or have characters outside the vocabulary, are skipped; those with a blank place
        are not scored. Warnings count both.

        Raises: FileNotFoundError, DataError naming the file, and the line if possible.
        """
        vocabulary = require_processor(processor, CharacterVocabulary)
        read = read_questions(path, fate="not scored")
        splits, skipped = list[Split[Question]](), dict[int, DataError]()
        for questions in (read.questions, read.without):
            examples = dict[int, NumpyBatch]()
            for line, question in questions.items():
                try:
                    examples[line] = self.question_example(question, vocabulary)
                except DataError as error:
                    skipped[line] = error
            if examples:
                buckets = self.buckets([len(example["tokens"]) for example in examples.values()])
                kept = [questions[line] for line in examples]
                split = question_split(buckets, kept, [*examples.values()], self.evaluation_batch_size)
                splits.append(dataclasses.replace(split, source=read.source(examples)))
        if not splits:
            line, first = next(iter(skipped.items()))
            raise DataError(f"{path}, line {line}: {first}") from first
        why = "too long, or with characters outside the vocabulary"
        warn_of_skipped(path, sorted(skipped), read.lines, "questions", why)
        whole, *rest = splits
        return dataclasses.replace(whole, unlabelled=next(iter(rest), None))


def question_split(
    buckets: Buckets[NumpyBatch], questions: Sequence[Question], examples: Sequence[NumpyBatch], batch_size: int
) -> Split[Question]:
    """The split of questions; with batches if their answers are known."""
    if not questions or questions[0].answer is None:
        return Split(examples=tuple(questions), scored=False)
    batches, rows = buckets.one_pass(examples, batch_size)
    return Split(batches, tuple(questions), rows)


def as_examples(texts: Sequence[tuple[str, int]], vocabulary: CharacterVocabulary) -> list[NumpyBatch]:
    """Characters 0..n-2 of each text as `tokens`, 1..n-1 as `targets`, and whether these are scored as `loss_mask`.

    Args:
      texts: each with its number of first characters that are not scored.
      vocabulary: of their characters.
    """
    ids = vocabulary.encode("".join(text for text, _ in texts))  # one call takes a tenth of the time
    places = np.arange(max((len(text) for text, _ in texts), default=0))
    examples, start = [], 0
    for text, given in texts:
        end = start + len(text)
        loss_mask = places[1 : len(text)] >= given
        examples.append({"tokens": ids[start : end - 1], "targets": ids[start + 1 : end], "loss_mask": loss_mask})
        start = end
    return examples
