"""Evaluators of extractive question answering: exact match and F1, and the best threshold for no answer."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from jaxnlp.config import Finite
from jaxnlp.corpus import DataError
from jaxnlp.ops.answer_spans import BestSpans
from jaxnlp.pages.content import MarkedText, Table
from jaxnlp.tasks import Evaluation, Evaluator, Metric, MetricKind, Scoring, Section
from jaxnlp.tasks.extractive_qa.answers import Answer, Candidates, best_spans_of, merge_windows
from jaxnlp.tasks.extractive_qa.scores import best_threshold, exact_match, f1
from jaxnlp.text.question_contexts import ContextQuestion

MAX_LISTED = 50
"""Number of answers listed in the report."""
MAX_SHOWN = 8
"""Number of contexts shown in the report, with the answer marked."""


@dataclasses.dataclass(frozen=True)
class Validation(Evaluator):
    """Exact match and F1 by SQuAD's definition, and the loss of the windows.

    predictions.json has the answers, {id: answer}; no_answer_scores.json has the log-probability of no answer minus
    that of the best answer, {id: difference}. SQuAD's evaluation script reads both.
    """

    no_answer_threshold: Finite | None = None
    """Predict no answer if its log-probability exceeds the best answer's by more than this; None = as in training."""

    def compile_ahead(self, scoring: Scoring) -> None:
        super().compile_ahead(scoring)
        scoring.compile_outputs(_spans(scoring))

    def __call__(self, scoring: Scoring) -> Evaluation:
        task: Any = scoring.trained.task
        threshold = task.no_answer_threshold if self.no_answer_threshold is None else self.no_answer_threshold
        questions: Sequence[ContextQuestion] = scoring.split.examples
        candidates = _candidates(scoring)
        answers = [one.ranked(threshold)[0] for one in candidates]
        split = scoring.split
        texts = split.in_rows([answer.text for answer in answers], "")  # of blank questions, too
        margins = split.in_rows([one.margin for one in candidates], 0.0)
        names = [one.name for one in questions] if split.source is None else split.source.names
        files = {
            "predictions.json": dict(zip(names, texts, strict=True)),
            "no_answer_scores.json": dict(zip(names, margins, strict=True)),
        }
        predictions = {name: json.dumps(held, ensure_ascii=False, indent=1) + "\n" for name, held in files.items()}
        sections = [_contexts(questions, answers)]
        if not scoring.split.scored:
            return Evaluation({}, predictions, sections)
        metrics = scoring.sums() | _metrics(questions, answers)
        return Evaluation(metrics, predictions, [_table(questions, answers), *sections])


@dataclasses.dataclass(frozen=True)
class Threshold(Evaluator):
    """The threshold for no answer with the best F1 on the split; give it with --no-answer-threshold."""

    @property
    def metrics(self) -> Mapping[str, MetricKind]:
        threshold = MetricKind("questions", "nats", title="threshold for no answer")
        return {"best_f1": MetricKind("questions", title="best F1"), "no_answer_threshold": threshold}

    def __call__(self, scoring: Scoring) -> Evaluation:
        questions: Sequence[ContextQuestion] = scoring.split.examples
        if not scoring.split.scored or len({bool(one.answers) for one in questions}) < 2:
            raise DataError(f"{scoring.split_name} needs questions with an answer, and questions without one")
        candidates = _candidates(scoring)
        values = [
            f1(one.answers[0].text, _texts(question)) if one.answers else 0.0
            for question, one in zip(questions, candidates, strict=True)
        ]
        margins, answerable = [one.margin for one in candidates], [bool(q.answers) for q in questions]
        threshold, value = best_threshold(margins, values, answerable)
        count = len(questions)
        return Evaluation({"best_f1": Metric(value, count), "no_answer_threshold": Metric(threshold, count)})


def _spans(scoring: Scoring) -> Any:
    task: Any = scoring.trained.task
    return scoring.once(best_spans_of, scoring.trained.model, task.max_answer_tokens)


def _candidates(scoring: Scoring) -> list[Candidates]:
    questions, trained = scoring.split.examples, scoring.trained
    spans: BestSpans = scoring.outputs(_spans(scoring))
    windows = trained.processor.windows(questions)
    rows = [jax.tree.map(lambda x, index=index: x[index], spans) for index in range(len(windows))]
    return merge_windows(questions, windows, rows)


def _texts(question: ContextQuestion) -> list[str]:
    return [answer.text for answer in question.answers or ()]


def _metrics(questions: Sequence[ContextQuestion], answers: Sequence[Answer]) -> dict[str, Metric]:
    right = np.array([exact_match(answer.text, _texts(q)) for q, answer in zip(questions, answers, strict=True)])
    values = np.array([f1(answer.text, _texts(q)) for q, answer in zip(questions, answers, strict=True)])
    answerable = np.array([bool(q.answers) for q in questions])
    metrics = {"exact_match": Metric(float(right.mean()), len(right)), "f1": Metric(float(values.mean()), len(right))}
    if 0 < answerable.sum() < len(right):
        count = int(answerable.sum())
        metrics["answerable/f1"] = Metric(float(values[answerable].mean()), count)
        metrics["unanswerable/accuracy"] = Metric(float(right[~answerable].mean()), len(right) - count)
    return metrics


def _table(questions: Sequence[ContextQuestion], answers: Sequence[Answer]) -> Section:
    right = [bool(exact_match(answer.text, _texts(q))) for q, answer in zip(questions, answers, strict=True)]
    rows = tuple(
        (q.question, answer.text or "no answer", " | ".join(dict.fromkeys(_texts(q))) or "no answer")
        for q, answer in zip(questions[:MAX_LISTED], answers[:MAX_LISTED], strict=True)
    )
    table = Table(
        ("question", "answer", "expected"),
        rows,
        marks=tuple("good" if one else "bad" for one in right[:MAX_LISTED]),
        note=f"{sum(right):,} of {len(right):,} right; the first {len(rows)} are listed.",
        folded=True,
    )
    return Section("Answers", table)


def _contexts(questions: Sequence[ContextQuestion], answers: Sequence[Answer]) -> Section:
    shown = zip(questions[:MAX_SHOWN], answers[:MAX_SHOWN], strict=True)
    paragraphs = tuple(
        (
            (f"{question.question} ", False),
            (question.context[: answer.start], False),
            (question.context[answer.start : answer.stop], True),
            (question.context[answer.stop :], False),
        )
        for question, answer in shown
    )
    return Section("Contexts", MarkedText(paragraphs, note="The answer is marked; without one, no answer was found."))
