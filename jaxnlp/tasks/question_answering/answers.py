"""Answers to questions, by models that were trained on `question MASK answer MASK`."""

from collections.abc import Sequence

import numpy as np

from jaxnlp.corpus import errors_as
from jaxnlp.decoding.completion import complete
from jaxnlp.decoding.generation import Decoder
from jaxnlp.input_files.text_files import is_blank
from jaxnlp.text.characters import MASK, PAD, CharacterVocabulary
from jaxnlp.text.questions import Question
from jaxnlp.typing import Params

MAX_ANSWER = 32
"""Maximum number of tokens of an answer without an end."""


class QuestionError(ValueError):
    """A question that the model cannot read; the message has the question and the reason."""


def answer(decoder: Decoder, params: Params, vocabulary: CharacterVocabulary, questions: Sequence[str]) -> list[str]:
    """The greedy continuation of each question and MASK, up to the next MASK.

    Args:
      decoder: the model's step function and cache.
      params: its parameters.
      vocabulary: must have PAD and MASK.
      questions: without MASK.

    Raises: QuestionError for a question that `prompt_of` refuses.
    """
    prompts = [prompt_of(decoder, vocabulary, question) for question in questions]
    stop = int(vocabulary.encode(MASK)[0])
    completions = complete(decoder, params, prompts, stop=stop, max_new_tokens=MAX_ANSWER)
    return [vocabulary.decode(tokens) for tokens in completions]


def prompt_of(decoder: Decoder, vocabulary: CharacterVocabulary, question: str) -> np.ndarray:
    """The ids [T] of a question and MASK.

    Raises: QuestionError for a question that is empty, leaves no room for an answer, or has unknown characters.
    """
    if is_blank(question) or MASK in question or PAD in question:
        raise QuestionError(f"a question must have text, without {MASK!r} and {PAD!r}, got {question!r}")
    with errors_as(QuestionError, f"question {question!r}"):
        prompt = vocabulary.encode(question + MASK)
    if decoder.capacity is not None and len(prompt) >= decoder.capacity:
        raise QuestionError(
            f"question {question!r} has {len(question)} characters; it must fit the model's context of "
            f"{decoder.capacity} together with MASK and an answer"
        )
    return prompt


def exact_match(answers: Sequence[str], questions: Sequence[Question]) -> float:
    """Share of answers that equal the expected ones exactly."""
    return sum(a == q.answer for a, q in zip(answers, questions, strict=True)) / len(questions)
