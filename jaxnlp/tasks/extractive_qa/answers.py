"""Answers to questions about a context, from the best spans of its windows."""

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxnlp.inference.arguments import listed, one_or_many
from jaxnlp.inference.batches import Shape, in_batches, text_shapes, warm_up
from jaxnlp.inference.exportable import Exportable, axes_of_batches
from jaxnlp.ops.answer_spans import BestSpans, best_spans
from jaxnlp.ops.compiler_options import jit
from jaxnlp.tasks import Trained
from jaxnlp.text.blank_texts import unless_blank
from jaxnlp.text.question_contexts import ContextQuestion, ContextWindow, QuestionProcessor
from jaxnlp.text.raw_texts import require_texts
from jaxnlp.typing import Batch, Params

MAX_SPANS = 20
"""Number of best spans of each window to compare."""


class Answer(NamedTuple):
    """An answer.

    Attributes:
      text: a part of the context; "" = the context has no answer.
      start: its first character.
      stop: the character after its last one.
      log_prob: of the span in its window, or of no answer, the lowest of all windows.
    """

    text: str
    start: int
    stop: int
    log_prob: float

    @property
    def confidence(self) -> float:
        """The probability."""
        return math.exp(self.log_prob)


class Candidates(NamedTuple):
    """The candidates in the context of a question.

    Attributes:
      answers: with distinct texts, the best first; perhaps none.
      no_answer: the answer that there is none.
    """

    answers: tuple[Answer, ...]
    no_answer: Answer

    @property
    def margin(self) -> float:
        """The log-probability of no answer minus that of the best answer."""
        return self.no_answer.log_prob - self.answers[0].log_prob if self.answers else math.inf

    def ranked(self, threshold: float) -> list[Answer]:
        """All answers, the best first; no answer precedes those that it beats by more than the threshold."""
        better = [answer for answer in self.answers if self.no_answer.log_prob - answer.log_prob <= threshold]
        return [*better, self.no_answer, *self.answers[len(better) :]]


@one_or_many
def ask(
    trained: Trained,
    questions: Sequence[str],
    context: str | Sequence[str],
    *,
    n_best: int | None = None,
    no_answer_threshold: float | None = None,
) -> list[Any]:
    """The answer to each question in its context, or to one question.

    Args:
      questions: one question, or a list of N.
      context: a text for all questions, or a list of N. Long ones are read in windows.
      n_best: maximum number of answers with distinct texts in the list for each question; None = one answer, not a
        list.
      no_answer_threshold: no answer is returned if its log-probability exceeds the best span's by more than this; None
        = the task's.

    Returns: for each question an `Answer`, or a list of them. Its text is "" if the context has no answer. A blank
      question or context gives the text "", or an empty list.

    Raises: ValueError for arguments that are not texts, for unequal numbers of contexts and questions, for `n_best`
      below 1, and for an infinite threshold.
    """
    texts = require_texts(questions, "questions")
    one = isinstance(context, str)
    given = [context] if one else listed(context, "ask: expected one context")
    contexts = require_texts(given, "contexts") * (len(texts) if one else 1)
    if len(contexts) != len(texts):
        raise ValueError(f"give one context, or one for each of the {len(texts)} questions; got {len(contexts)}")
    if n_best is not None and n_best < 1:
        raise ValueError(f"n_best must be at least 1, got {n_best}")
    task: Any = trained.task
    threshold = task.no_answer_threshold if no_answer_threshold is None else no_answer_threshold
    if not math.isfinite(threshold):
        raise ValueError(f"no_answer_threshold must be a finite number, got {threshold}")
    nothing = Answer(*_NOWHERE, -math.inf)

    def answers(rows: list[tuple[str, str]]) -> list[Any]:
        examples = [ContextQuestion("", *row) for row in rows]
        ranked = [one.ranked(threshold) for one in find_answers(trained, examples)]
        return [row[0] if n_best is None else row[:n_best] for row in ranked]

    return unless_blank(list(zip(texts, contexts, strict=True)), answers, nothing if n_best is None else [])


def warm_up_ask(trained: Trained) -> None:
    """Compiles the programs of `ask` ahead."""
    warm_up(text_shapes(trained.processor.max_length), _computation(trained, ()))


def find_answers(trained: Trained, questions: Sequence[ContextQuestion]) -> list[Candidates]:
    """The candidates of each question in its context."""
    windows = trained.processor.windows(questions)
    shapes = text_shapes(trained.processor.max_length)
    rows = in_batches([len(window.tokens) for window in windows], shapes, _computation(trained, windows))
    return merge_windows(questions, windows, rows)


def best_spans_of(model: Any, max_tokens: int) -> Any:
    """The function from parameters and a batch to the best spans."""
    return functools.partial(_best_spans, model, max_tokens)


def merge_windows(
    questions: Sequence[ContextQuestion], windows: Sequence[ContextWindow], rows: Sequence[BestSpans]
) -> list[Candidates]:
    """The candidates of each question. Args: rows: the best spans of each window."""
    best: list[dict[str, Answer]] = [{} for _ in questions]
    nothing = [math.inf] * len(questions)
    for window, row in zip(windows, rows, strict=True):
        context, texts = questions[window.question_index].context, best[window.question_index]
        nothing[window.question_index] = min(nothing[window.question_index], float(row.no_answer))
        for (first, last), log_prob in zip(row.spans, row.log_probs, strict=True):
            if log_prob == -np.inf:
                break
            start, stop = int(window.offsets[first, 0]), int(window.offsets[last, 1])
            text = context[start:stop]
            if text not in texts or texts[text].log_prob < log_prob:
                texts[text] = Answer(text, start, stop, float(log_prob))
    return [
        Candidates(tuple(sorted(texts.values(), key=lambda answer: -answer.log_prob)), Answer(*_NOWHERE, log_prob))
        for texts, log_prob in zip(best, nothing, strict=True)
    ]


def _computation(trained: Trained, windows: Sequence[ContextWindow]) -> Any:
    processor: QuestionProcessor = trained.processor
    task: Any = trained.task

    def compute(indices: Sequence[int], shape: Shape) -> BestSpans:
        batch = processor.batch([windows[index] for index in indices], *shape)
        return _jitted(trained.model, task.max_answer_tokens, trained.inference_params, batch)

    return compute


def _best_spans(model: Any, max_tokens: int, params: Params, batch: Batch) -> BestSpans:
    scores = model.apply({"params": params}, *(batch[name] for name in model.config.reads))
    return best_spans(scores, batch["answer_mask"], max_tokens=max_tokens, k=MAX_SPANS)


_jitted = jit(_best_spans, static_argnums=(0, 1))
_NOWHERE = ("", 0, 0)


def exports(trained: Trained) -> dict[str, Exportable]:
    """`answer`: the best spans of windows; `score`: the scores of their tokens."""
    task: Any = trained.task
    find, names = best_spans_of(trained.model, task.max_answer_tokens), (*trained.model.config.reads, "answer_mask")

    def apply(params: Params, inputs: Batch) -> dict[str, Any]:
        return find(params, inputs)._asdict()

    def score(params: Params, inputs: Batch) -> dict[str, Any]:
        read = (inputs[name] for name in trained.model.config.reads)
        return {"scores": trained.model.apply({"params": params}, *read)}

    axes, inputs = axes_of_batches(
        functools.partial(trained.processor.batch, ()), names, longest=trained.processor.max_length
    )
    returns = "the best spans [B, k, 2], first and last token; their log_probs [B, k]; log-probability of no_answer [B]"
    scores = "scores [B, T, 2] of tokens as the first and as the last one of the answer"
    without_mask = {name: inputs[name] for name in trained.model.config.reads}
    return {
        "answer": Exportable(returns, apply, axes, inputs, onnx=False),
        "score": Exportable(scores, score, axes, without_mask),
    }
