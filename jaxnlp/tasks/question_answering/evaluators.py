"""Evaluators of answers: exact matches, attention of an answer's characters, and a constant answer."""

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from jaxnlp.corpus import DataError, Split
from jaxnlp.decoding.completion import compile_completions
from jaxnlp.ops.compiler_options import jit
from jaxnlp.pages.content import HeatMap, Table
from jaxnlp.tasks import Evaluation, Evaluator, Metric, MetricKind, Scoring, Section
from jaxnlp.tasks.language_model.evaluators import compile_samples, decoder, sample_sections
from jaxnlp.tasks.question_answering.answers import answer, exact_match
from jaxnlp.text.characters import MASK
from jaxnlp.text.padding import padded, row_mask
from jaxnlp.text.questions import Question
from jaxnlp.text.raw_texts import one_line

MAX_MAPS = 4
"""Number of questions whose attention is shown."""
MAX_LISTED = 50
"""Number of answers listed in the report."""
SEEN = (("never", 0, 0), ("once", 1, 1), ("2 to 4", 2, 4), ("5 to 19", 5, 19), ("20 or more", 20, None))
"""Groups of questions by the count of their answer among the training answers."""


@dataclasses.dataclass(frozen=True)
class Validation(Evaluator):
    """The loss of the answers' characters and, on a split with questions, the share of exactly right answers."""

    def compile_ahead(self, scoring: Scoring) -> None:
        super().compile_ahead(scoring)
        compile_samples(scoring)
        model, params, questions = cast(Any, scoring.trained.model), scoring.whole_params(), scoring.split.examples
        if not len(questions):
            return
        lengths = [len(question.text) + 1 for question in questions]
        compile_completions(scoring.compile, decoder(scoring), params, lengths)
        if scoring.split.scored and model.config.attends:
            scoring.compile(scoring.once(jit, model.attention_maps), params, _padded((), model.capacity))

    def __call__(self, scoring: Scoring) -> Evaluation:
        metrics, sections = scoring.sums(), sample_sections(scoring)
        questions: Sequence[Question] = scoring.split.examples
        if not len(questions):
            return Evaluation(metrics, sections=sections)
        texts = [question.text for question in questions]
        given = answer(decoder(scoring), scoring.whole_params(), scoring.trained.processor, texts)
        predictions = {"answers.txt": "".join(f"{one_line(line)}\n" for line in scoring.split.in_rows(given, ""))}
        if scoring.split.scored:
            metrics["exact_match"] = Metric(exact_match(given, questions), len(questions))
            sections += answer_sections(questions, given, scoring.training)
            sections += attention_sections(scoring, questions, given)
        return Evaluation(metrics, predictions, sections)


@dataclasses.dataclass(frozen=True)
class ConstantAnswer(Evaluator):
    """A baseline: one answer to every question."""

    answer: str | None = None
    """The answer, such as London; None = the most frequent one among the training questions."""

    def __call__(self, scoring: Scoring) -> Evaluation:
        questions: Sequence[Question] = scoring.split.examples
        if not len(questions) or not scoring.split.scored:
            raise DataError(f"{scoring.split_name} has no questions with answers")
        constant = self.answer
        if constant is None:
            if scoring.training is None or not len(scoring.training.examples):
                raise DataError("the most frequent answer needs training questions; give --answer")
            counts = Counter(question.answer for question in scoring.training.examples)
            constant = counts.most_common(1)[0][0]
        share = exact_match([str(constant)] * len(questions), questions)
        return Evaluation({"exact_match": Metric(share, len(questions))}, remarks={"answer": constant})

    @property
    def metrics(self) -> Mapping[str, MetricKind]:
        return {"exact_match": MetricKind("questions")}


def answer_sections(questions: Sequence[Question], given: Sequence[str], training: Split | None) -> list[Section]:
    """Shares of right answers by how often the answer occurs in training, and the first answers."""
    right = [q.answer == line for q, line in zip(questions, given, strict=True)]
    sections = []
    if training is not None:
        seen = Counter(question.answer for question in training.examples)
        rows = []
        for label, low, high in SEEN:
            group = [
                r
                for q, r in zip(questions, right, strict=True)
                if low <= seen[q.answer] and (high is None or seen[q.answer] <= high)
            ]
            if group:
                rows.append((label, len(group), sum(group) / len(group)))
        header = ("occurrences in training", "questions", "right")
        sections.append(Section("Accuracy by frequency of the answer", Table(header, tuple(rows), bars=(2,))))
    listed = tuple(
        (q.text, line, str(q.answer)) for q, line in zip(questions[:MAX_LISTED], given[:MAX_LISTED], strict=True)
    )
    table = Table(
        ("question", "answer", "expected"),
        listed,
        marks=tuple("good" if r else "bad" for r in right[:MAX_LISTED]),
        note=f"{sum(right):,} of {len(right):,} right; the first {len(listed)} are listed.",
        folded=True,
    )
    return [*sections, Section("Answers", table)]


def attention_sections(scoring: Scoring, questions: Sequence[Question], given: Sequence[str]) -> list[Section]:
    """For a few answers, the attention of each character through all layers."""
    model: Any = scoring.trained.model
    shown = [(q, line) for q, line in zip(questions, given, strict=True) if line][:MAX_MAPS]
    if not shown or not model.config.attends:
        return []
    vocabulary = scoring.trained.processor
    # The last character of an answer is generated and never read.
    texts = [vocabulary.encode(f"{q.text}{MASK}{line[:-1]}") for q, line in shown]
    maps = scoring.once(jit, model.attention_maps)
    weights = attention_to_inputs(maps(scoring.whole_params(), _padded(texts, model.capacity)))
    sections = []
    for number, ((question, line), rollout) in enumerate(zip(shown, weights, strict=False), 1):
        first = len(question.text)  # the position that predicts the answer's first character
        rows = rollout[first : first + len(line), : first + 1]
        verdict = "right" if line == question.answer else f"expected {question.answer}"
        heat = HeatMap(
            rows=tuple(line),
            columns=tuple(question.text + MASK),
            weights=tuple(map(tuple, rows.round(3).tolist())),
            title=f"{line} ({verdict})",
            note="The attention of each character of the answer through all layers (attention rollout). Rows are the "
            "answer, columns the question.",
        )
        sections.append(Section(f"Attention {number}", heat))
    return sections


def _padded(texts: Sequence[np.ndarray], capacity: int) -> np.ndarray:
    """[MAX_MAPS, T], T the capacity. Padding after a text does not change it, because the model is causal."""
    texts = texts[:MAX_MAPS]
    return padded(texts, row_mask(texts, MAX_MAPS, capacity))


def attention_to_inputs(maps: Mapping[str, Any]) -> np.ndarray:
    """Attention rollout: the share of each input in each output through all layers [B, T, T]; rows sum to 1.

    The matrices of the layers, averaged over heads, are multiplied. Half of each layer's output counts as the residual
    connection; half of a Perceiver's output is its input, and half comes through the latents.

    Args:
      maps: the result of `GPT.attention_maps`.

    Source: Abnar and Zuidema 2020.
    """
    means = {name: np.asarray(weights).mean(axis=2) for name, weights in maps.items()}
    stack = None
    for weights in means.get("blocks", ()):
        layer = 0.5 * weights + 0.5 * np.eye(weights.shape[1])
        stack = layer if stack is None else layer @ stack
    if "up_project" not in means:
        assert stack is not None
        return stack
    (down,), (up,) = means["down_project"], means["up_project"]
    latents = down if stack is None else stack @ down
    count, positions = latents.shape[1], up.shape[1]
    total = np.repeat(np.eye(positions)[None], len(up), axis=0)
    total[:, :, : up.shape[2] - count] += up[:, :, count:]  # inputs that are read next to the latents
    total[:, :, : latents.shape[2]] += up[:, :, :count] @ latents
    return 0.5 * total
