"""`jaxnlp ask` of models that find answers in a text."""

import dataclasses
import html
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tyro

from jaxnlp.config import Count, Finite
from jaxnlp.input_files.notes import report_blank
from jaxnlp.input_files.rows import TextColumns, chunks, name_of, read_text, rows_of
from jaxnlp.input_files.text_files import is_blank
from jaxnlp.pages.page import page
from jaxnlp.saving.atomic_files import PAGES, require_place, write_file
from jaxnlp.tasks import Command, Trained
from jaxnlp.tasks.extractive_qa.answers import Answer
from jaxnlp.text.blank_texts import blank_rows
from jaxnlp.text.raw_texts import one_line

_STYLE = """
body { max-width: 900px }
h2 { margin-top: 2em; font-size: 1.1rem }
p { white-space: pre-wrap }
mark { padding: .1em .2em; border-radius: 4px; color: inherit; background: hsl(140 70% 50% / .35) }
"""


@dataclasses.dataclass(frozen=True)
class Ask(Command):
    """Answers questions by parts of a text, one line for each question.

    The line is blank if the text has no answer, or the question is blank. Notes on standard error count both.
    """

    questions: tyro.conf.Positional[tuple[str, ...]] = ()
    """Questions; none = those of the file, or of standard input."""
    context: Path = dataclasses.field(kw_only=True)
    """The file with the text to find answers in; - = standard input."""
    file: Path | None = None
    """A file with one question a line, or a table with a column question; - = standard input."""
    n_best: Count = 1
    """Maximum number of answers to each question, the best first; above 1 with their confidences."""
    no_answer_threshold: Finite | None = None
    """Predict no answer if its log-probability exceeds the best answer's by more than this; None = as in training.
    Higher values give more answers."""
    json: bool = False
    """Print a JSON object for each question: its answers, their positions in the text, and their confidences."""
    html: Path | None = None
    """Also write a page of the text with the best answer to each question marked."""

    def further_files(self) -> tuple[Path | None, ...]:
        return (self.context,)

    def __call__(self, trained: Trained) -> None:
        """Prints the answers.

        Raises: ValueError, OSError for a question or a text that is missing, blank or unreadable.
        """
        require_place(self.html, *PAGES, option="--html")
        if str(self.context) == "-" and not self.questions and str(self.file or "-") == "-":
            raise ValueError("standard input has either the text or the questions; give one of them another way")
        columns = TextColumns.of_run(trained.config)._replace(texts=("question",))
        context = read_text(self.context, columns, keep_line_ends=True)  # positions of answers are those of the file
        if is_blank(context):
            raise ValueError(f"{name_of(self.context)} is blank; expected the text that has the answers")
        options: dict[str, Any] = {"n_best": self.n_best, "no_answer_threshold": self.no_answer_threshold}
        blank, sections, count, without = list[int](), list[str](), 0, 0
        for rows in chunks(rows_of(self.questions, (), self.file, count=1, columns=columns)):
            questions = [question for (question,) in rows]
            for question, answers in zip(questions, trained.ask(questions, context, **options), strict=True):
                print(self._shown(question, answers))
                without += bool(answers) and not answers[0].text
                if self.html is not None:
                    sections.append(_section(question, context, answers))
            blank += blank_rows(rows, count)
            count += len(rows)
        report_blank(blank, count, self.questions, self.file)
        if without:
            note = f"{name_of(self.context)} has no answer to {without:,} of {count:,} questions"
            print(f"note: {note}", file=sys.stderr)
        if self.html is not None:
            body = "\n".join(sections)
            write_file(self.html, page(f"Answers in {name_of(self.context)}", body, _STYLE).encode())
            print(f"answers in {self.html}", file=sys.stderr)

    def _shown(self, question: str, answers: Sequence[Answer]) -> str:
        if self.json:
            names = ("text", "start", "stop", "confidence")
            listed = [{name: getattr(answer, name) for name in names} for answer in answers]
            return json.dumps({"question": question, "answers": listed}, ensure_ascii=False)
        if self.n_best == 1:
            return one_line(answers[0].text) if answers else ""
        lines = [f"{answer.confidence:.3f}\t{one_line(answer.text) or '(no answer)'}" for answer in answers]
        return "\n".join([one_line(question), *lines])


def _section(question: str, context: str, answers: Sequence[Answer]) -> str:
    """A question, and the context with the best answer marked. Both are escaped."""
    heading = f"<h2>{html.escape(question)}</h2>"
    if not answers or not answers[0].text:
        return f"{heading}\n<p>No answer was found.</p>"
    best = answers[0]
    parts = context[: best.start], context[best.start : best.stop], context[best.stop :]
    before, answer, after = map(html.escape, parts)
    return f'{heading}\n<p>{before}<mark title="confidence {best.confidence:.2f}">{answer}</mark>{after}</p>'
