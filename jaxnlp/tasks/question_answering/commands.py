"""`jaxnlp predict RUN`: answers to questions."""

import dataclasses
import itertools
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tyro

from jaxnlp.commands.files import blank_rows, chunks, report_blank, rows_of
from jaxnlp.decoding.completion import BATCH_SIZES, complete
from jaxnlp.decoding.generation import decoder_of, prompt_buckets
from jaxnlp.inference import one_or_many, require_texts, unless_blank
from jaxnlp.tasks import Command, Trained
from jaxnlp.tasks.question_answering.answers import answer, one_line
from jaxnlp.text.characters import MASK


@dataclasses.dataclass(frozen=True)
class Predict(Command):
    """Answers questions, one line for each.

    The answer to a blank question is blank, and a note on standard error counts blank questions.
    """

    texts: tyro.conf.Positional[tuple[str, ...]] = ()
    """Questions; none = those of the file, or of standard input."""
    file: Path | None = None
    """A UTF-8 file with one question a line; - = standard input."""
    json: bool = False
    """Print a JSON object for each question, with its answer."""

    def __call__(self, trained: Trained) -> None:
        """Prints the answers. Those to the first questions are printed before the rest is read.

        Raises:
          QuestionError: for a question with unknown characters, or one that is too long.
          ValueError, OSError: for questions that are missing or cannot be read.
        """
        count, blank = 0, list[int]()
        for rows in chunks(rows_of(self.texts, (), self.file, count=1)):
            questions = [question for (question,) in rows]
            blank += blank_rows(rows, count)
            count += len(rows)
            for question, found in zip(questions, ask(trained, questions), strict=True):
                if self.json:
                    print(json.dumps({"question": question, "answer": found}, ensure_ascii=False))
                else:
                    print(one_line(found))
        report_blank(blank, count, self.texts, self.file)


def warm_up_ask(trained: Trained) -> None:
    """Compiles the programs of `ask` ahead, for questions of all lengths."""
    decoder = decoder_of(trained.model)
    for length, rows in itertools.product(prompt_buckets(decoder.capacity), BATCH_SIZES):
        prompts = [np.zeros(length, np.int32)] * rows
        complete(decoder, trained.separate_params, prompts, stop=-1, max_new_tokens=2)


@one_or_many
def ask(trained: Trained, questions: Sequence[str]) -> list[str]:
    """The answer to each question, or to one; that to a blank question is blank.

    Args:
      questions: one question, or a list of N.

    Raises: QuestionError for a question that the model cannot read.
    """
    if MASK not in trained.processor.characters:
        raise ValueError(f"the run in {trained.folder} was not trained on questions; it has: generate")

    def answers(rows: list[tuple[str]]) -> list[str]:
        decoder = decoder_of(trained.model)
        return answer(decoder, trained.separate_params, trained.processor, [question for (question,) in rows])

    return unless_blank([(question,) for question in require_texts(questions, "questions")], answers, "")
