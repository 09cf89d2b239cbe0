"""Answers to questions, by models that were trained on `question MASK answer MASK`."""

from collections.abc import Sequence

from jaxnlp.decoding.complete import complete
from jaxnlp.decoding.generate import Decoder
from jaxnlp.text import UnknownTokenError
from jaxnlp.text.characters import MASK, PAD
from jaxnlp.text.vocabulary import Vocabulary
from jaxnlp.typing import Params

LONGEST_ANSWER = 32
"""Tokens after which an answer that does not end is cut."""


class QuestionError(ValueError):
    """A question that cannot be asked; the message shows it and says why."""


def answer(decoder: Decoder, params: Params, vocabulary: Vocabulary, questions: Sequence[str]) -> list[str]:
    """What a model writes after each question and MASK, up to the next MASK, most probable character by character.

    Args:
      decoder: the model's step function and cache.
      params: its parameters.
      vocabulary: what its tokens mean.
      questions: without MASK.

    Raises:
      QuestionError: for a question that is empty or cannot be spelt, or leaves no room for an answer.
    """
    prompts = []
    for question in questions:
        if not question.strip() or MASK in question or PAD in question:
            raise QuestionError(f"a question has some text, without {MASK!r} and {PAD!r}, got {question!r}")
        try:
            prompt = vocabulary.encode(question + MASK)
        except UnknownTokenError as error:
            raise QuestionError(f"question {question!r} cannot be spelt: {error}") from error
        if decoder.capacity is not None and len(prompt) >= decoder.capacity:
            raise QuestionError(
                f"question {question!r} has {len(question)} characters; the model's context of {decoder.capacity} must "
                "hold it, MASK and an answer"
            )
        prompts.append(prompt)
    stop = int(vocabulary.encode(MASK)[0])
    completions = complete(decoder, params, prompts, stop=stop, max_new_tokens=LONGEST_ANSWER)
    return [vocabulary.decode(tokens) for tokens in completions]
