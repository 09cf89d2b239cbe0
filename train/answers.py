"""Answers to a split's questions, for people to read: which are right, and what the model looked at."""

import functools
from collections import Counter
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from data import Question
from jaxnlp.text.characters import MASK
from jaxnlp.text.vocabulary import Vocabulary
from jaxnlp.typing import Array, Params

MOST_SHOWN = 4
"""Questions whose attention is shown."""
LENGTH_MULTIPLE = 32
"""Their texts are padded to multiples of it: few programs are compiled."""


def describe(
    model: Any,
    params: Params,
    vocabulary: Vocabulary,
    questions: Sequence[Question],
    answers: Sequence[str],
    training: Sequence[Question],
) -> dict[str, Any]:
    """What the report says about answers, as JSON.

    Args:
      model: a causal Linen module; its attention is shown where it has `attention_maps`.
      params: its parameters.
      vocabulary: what its tokens mean.
      questions: what was asked, answers known.
      answers: what the model said.
      training: the questions that it was trained on.

    Returns:
      `answers`: of each question its text, its answer, the model's, and how many training questions have that answer;
      `attention`: of a few, the text, both answers, and for each character of the model's a weight for each of the
      text's.
    """
    seen = Counter(question.answer for question in training)
    rows = [
        {"question": q.text, "answer": q.answer, "given": given, "seen": seen[q.answer]}
        for q, given in zip(questions, answers, strict=True)
    ]
    shown = [(q, given) for q, given in zip(questions, answers, strict=True) if given][:MOST_SHOWN]
    attention = []
    if shown and hasattr(model, "attention_maps"):
        # The last character of an answer is said and not read.
        tokens = _padded([vocabulary.encode(f"{q.text}{MASK}{given[:-1]}") for q, given in shown], model.capacity)
        for (question, given), weights in zip(shown, attention_to_inputs(_maps(model, params, tokens)), strict=False):
            first = len(question.text)  # the position that says the answer's first character
            said = weights[first : first + len(given), : first + 1]
            texts = {"text": question.text + MASK, "given": given, "answer": question.answer}
            attention.append(texts | {"weights": said.round(3).tolist()})
    return {"answers": rows, "attention": attention}


def _padded(texts: Sequence[np.ndarray], capacity: int) -> np.ndarray:
    """[MOST_SHOWN, T] with T in few sizes. What comes behind a text changes nothing of it: the model is causal."""
    longest = max(map(len, texts))
    tokens = np.zeros((MOST_SHOWN, min(-(-longest // LENGTH_MULTIPLE) * LENGTH_MULTIPLE, capacity)), np.int32)
    for row, text in zip(tokens, texts, strict=False):
        row[: len(text)] = text
    return tokens


@functools.partial(jax.jit, static_argnums=0)
def _maps(model: Any, params: Params, tokens: Array) -> dict[str, Array]:
    return model.attention_maps(params, tokens)


def attention_to_inputs(maps: dict[str, Any]) -> np.ndarray:
    """How much each output takes from each input through all layers, [B, T, T], rows summing to 1.

    Layers are multiplied, heads averaged; half of each layer's output counts as passed on by the residual connection.
    A Perceiver's outputs take half from their own input and half through the latents.

    Args:
      maps: of `attention_maps`, in any order.

    Source: Abnar and Zuidema 2020, attention rollout.
    """
    means = {name: np.asarray(weights).mean(axis=1) for name, weights in maps.items()}
    down, up = means.pop("down_project", None), means.pop("up_project", None)
    stack = None
    for number in range(len(means)):  # jit has sorted them by name, block_10 before block_2
        weights = means[f"block_{number}"]
        layer = 0.5 * weights + 0.5 * np.eye(weights.shape[1])
        stack = layer if stack is None else layer @ stack
    if down is None or up is None:
        assert stack is not None
        return stack
    latents = down if stack is None else stack @ down
    number, positions = latents.shape[1], up.shape[1]
    total = np.repeat(np.eye(positions)[None], len(up), axis=0)
    total[:, :, : up.shape[2] - number] += up[:, :, number:]  # inputs that stand beside the latents
    total[:, :, : latents.shape[2]] += up[:, :, :number] @ latents
    return 0.5 * total
