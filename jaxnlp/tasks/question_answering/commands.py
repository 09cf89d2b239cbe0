"""`jaxnlp predict RUN`: answers to questions."""

import dataclasses
import itertools
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tyro

from jaxnlp.decoding.completion import complete
from jaxnlp.decoding.generation import decoder_of, prompt_buckets
from jaxnlp.inference.arguments import one_or_many
from jaxnlp.inference.batches import BATCH_SIZES
from jaxnlp.input_files.notes import report_blank, report_skipped
from jaxnlp.input_files.rows import TextColumns, chunks, position_of, rows_of
from jaxnlp.tasks import Command, Trained
from jaxnlp.tasks.question_answering.answers import QuestionError, answer, prompt_of
from jaxnlp.text.blank_texts import blank_rows, is_blank, unless_blank
from jaxnlp.text.characters import MASK
from jaxnlp.text.raw_texts import one_line, require_texts


@dataclasses.dataclass(frozen=True)
class Predict(Command):
    """Answers questions, one line for each.

    The answer is blank if the question is blank, too long, or has unknown characters. Notes on standard error count
    these questions.
    """

    texts: tyro.conf.Positional[tuple[str, ...]] = ()
    """Questions; none = those of the file, or of standard input."""
    file: Path | None = None
    """A file with one question a line, up to a tab: a place after it is ignored; - = standard input."""
    json: bool = False
    """Print a JSON object for each question, with its answer."""

    def __call__(self, trained: Trained) -> None:
        """Prints the answers, those to the first questions before it reads the rest.

        Raises: ValueError, OSError for questions that are missing or unreadable, and when the model can read none.
        """
        count, blank, skipped = 0, list[int](), list[str]()
        lines = rows_of(
            self.texts, (), self.file, count=1, columns=TextColumns.of_run(trained.config)._replace(texts=())
        )
        for rows in chunks((line.partition("\t")[0],) for (line,) in lines):
            blank += blank_rows(rows, count)
            readable = list[str]()
            for (question,) in rows:
                count += 1
                problem = None if is_blank((question,)) else _problem(trained, question)
                if problem is not None:
                    skipped.append(f"{position_of(self.texts, self.file, count)}: {problem}")
                readable.append("" if problem is not None else question)
            for (question,), text in zip(rows, ask(trained, readable), strict=True):
                if self.json:
                    print(json.dumps({"question": question, "answer": text}, ensure_ascii=False))
                else:
                    print(one_line(text))
        if skipped and count == len(skipped):
            raise ValueError(skipped[0])
        report_skipped(skipped, count, "questions", "answer")
        report_blank(blank, count, self.texts, self.file)


def _problem(trained: Trained, question: str) -> str | None:
    """Why the model cannot read a question."""
    try:
        prompt_of(decoder_of(trained.model), trained.processor, question)
    except QuestionError as error:
        return str(error)
    return None


def warm_up_ask(trained: Trained) -> None:
    """Compiles the programs of `ask` ahead, for questions of all lengths."""
    decoder = decoder_of(trained.model)
    for length, rows in itertools.product(prompt_buckets(decoder.capacity), BATCH_SIZES):
        prompts = [np.zeros(length, np.int32)] * rows
        complete(decoder, trained.inference_params, prompts, stop=-1, max_new_tokens=2)


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
        return answer(decoder, trained.inference_params, trained.processor, [question for (question,) in rows])

    return unless_blank([(question,) for question in require_texts(questions, "questions")], answers, "")
