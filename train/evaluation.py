"""Scoring parameters on a split, asking them questions, and sampling from them."""

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax

from data import DataError, NumpyBatch, Question
from jaxnlp.decoding.complete import complete
from jaxnlp.decoding.generate import Decoder, generate
from jaxnlp.metrics import means, total
from jaxnlp.text.characters import MASK, CharacterVocabulary, UnknownCharacterError
from jaxnlp.typing import Batch, Metrics, Params
from train.objectives import LossFunction
from train.parallel import Parallel
from train.step import eval_step

LONGEST_ANSWER = 32
"""Characters after which an answer that does not end is cut."""


def compile_evaluation(loss_fn: LossFunction, layout: Parallel) -> Callable[[Params, Batch], Metrics]:
    """The jitted evaluation step of an objective."""
    return layout.compile_eval(functools.partial(eval_step, loss_fn=loss_fn))


def evaluate(
    step: Callable[[Params, Batch], Metrics], params: Params, batches: Iterable[NumpyBatch], layout: Parallel
) -> tuple[dict[str, float], int]:
    """The objective's metrics over all batches, exact whatever their size, and the number of scored tokens.

    Args:
      step: of `compile_evaluation`.
      params: laid out over the devices.
      batches: one pass over what is scored.
      layout: of the devices.
    """
    summed = total(jax.device_get([step(params, layout.put_batch(batch)) for batch in batches]))
    return means(summed), int(summed["loss"][1])


def answer(
    decoder: Decoder, params: Params, vocabulary: CharacterVocabulary, questions: Sequence[Question]
) -> list[str]:
    """What the model writes after each question and MASK, up to the next MASK, greedily.

    Raises:
      DataError: for a question that cannot be spelt, or leaves no room for an answer; the message shows it.
    """
    capacity = decoder.empty_cache(1).capacity
    prompts = []
    for question in questions:
        try:
            prompt = vocabulary.encode(question.text + MASK)
        except UnknownCharacterError as error:
            raise DataError(f"question {question.text!r} cannot be spelt: {error}") from error
        if len(prompt) >= capacity:
            raise DataError(
                f"question {question.text!r} has {len(question.text)} characters; the model's context of {capacity} "
                "must hold it, MASK and an answer"
            )
        prompts.append(prompt)
    stop = int(vocabulary.encode(MASK)[0])
    return [
        vocabulary.decode(tokens)
        for tokens in complete(decoder, params, prompts, stop=stop, max_new_tokens=LONGEST_ANSWER)
    ]


def exact_match(answers: Sequence[str], questions: Sequence[Question]) -> float:
    """Share of answers that are the expected ones, character for character."""
    return sum(a == q.answer for a, q in zip(answers, questions, strict=True)) / len(questions)


def sample_text(
    decoder: Decoder, params: Params, vocabulary: CharacterVocabulary, prompt: str, *, length: int, seed: int
) -> str:
    """The prompt and what the model adds to it at temperature 1; the same seed gives the same text."""
    tokens: Any = vocabulary.encode(prompt)[None]
    added = generate(decoder, params, tokens, max_new_tokens=length, key=jax.random.key(seed))
    return prompt + vocabulary.decode(int(token[0]) for token in added)
