"""Hypotheses of a search as texts."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple


class Hypothesis(NamedTuple):
    """A text that a search returns, its tokens, and their score."""

    text: str
    tokens: Sequence[int]
    score: float


def distinct_texts(
    sequences: Iterable[tuple[Sequence[int], float]], decode: Callable[[Sequence[int]], str]
) -> list[Hypothesis]:
    """The hypotheses with distinct texts: of several sequences of subwords with one text, the first.

    Args:
      sequences: tokens and scores, best first; those with score -inf do not exist.
      decode: from tokens to their text.
    """
    kept: dict[str, Hypothesis] = {}
    for tokens, score in sequences:
        if score != -math.inf:
            text = decode(tokens)
            kept.setdefault(text, Hypothesis(text, tokens, score))
    return list(kept.values())
