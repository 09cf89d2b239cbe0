"""Scoring parameters on a split, and sampling from them."""

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import jax

from data import NumpyBatch, Question
from jaxnlp.decoding.generate import Decoder, generate
from jaxnlp.metrics import means, total
from jaxnlp.text.vocabulary import Vocabulary
from jaxnlp.typing import Batch, Metrics, Params, PyTree
from train.objectives import CarryingLoss, LossFunction, carrying
from train.parallel import Parallel
from train.step import eval_step


class EvaluationStep(NamedTuple):
    """The jitted evaluation step of an objective, and what it carries into the first batch of so many rows."""

    run: Callable[[Params, Batch, PyTree], tuple[Metrics, PyTree]]
    empty: Callable[[int], PyTree]


def compile_evaluation(loss_fn: LossFunction | CarryingLoss, layout: Parallel) -> EvaluationStep:
    """The jitted evaluation step of an objective."""
    return EvaluationStep(layout.compile_eval(functools.partial(eval_step, loss_fn=loss_fn)), carrying(loss_fn).empty)


def evaluate(
    step: EvaluationStep, params: Params, batches: Iterable[NumpyBatch], layout: Parallel
) -> tuple[dict[str, float], dict[str, int]]:
    """The objective's metrics over all batches, exact whatever their size, and over how many tokens or rows each is.

    Args:
      step: of `compile_evaluation`.
      params: laid out over the devices.
      batches: one pass over what is scored, in the order in which a model that carries its state reads it.
      layout: of the devices.
    """
    found, carry = [], None
    for batch in batches:
        if carry is None:
            carry = layout.empty_carry(step.empty, len(batch["loss_mask"]))
        metrics, carry = step.run(params, layout.put_batch(batch), carry)
        found.append(metrics)
    summed = total(jax.device_get(found))
    return means(summed), {name: int(count) for name, (_, count) in summed.items()}


def exact_match(answers: Sequence[str], questions: Sequence[Question]) -> float:
    """Share of answers that are the expected ones, character for character."""
    return sum(a == q.answer for a, q in zip(answers, questions, strict=True)) / len(questions)


def sample_text(
    decoder: Decoder, params: Params, vocabulary: Vocabulary, prompt: str, *, length: int, seed: int
) -> str:
    """The prompt and what the model adds to it at temperature 1; the same seed gives the same text."""
    tokens: Any = vocabulary.encode(prompt)[None]
    added = generate(decoder, params, tokens, max_new_tokens=length, key=jax.random.key(seed))
    return prompt + vocabulary.decode(int(token[0]) for token in added)
