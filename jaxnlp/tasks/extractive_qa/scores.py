"""Exact match and F1 of answers, by SQuAD's definition."""

import itertools
import math
import re
import string
from collections import Counter
from collections.abc import Sequence

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalized(text: str) -> str:
    """The text in lower case, without ASCII punctuation and English articles, and with single blanks."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(answer: str, right: Sequence[str]) -> float:
    """1 if the answer equals a right one when both are normalised, else 0.

    Args:
      answer: "" = no answer.
      right: the right answers; () = the question has no answer.
    """
    return float(normalized(answer) in _normalized(right))


def f1(answer: str, right: Sequence[str]) -> float:
    """The largest F1 between the words of the answer and of a right one, all normalised. Args: as for `exact_match`.

    Without words on one side, it is 1 if both have none, else 0.

    Source: Rajpurkar et al. 2016, section 6.1; the evaluation script of SQuAD 2.0 for the empty case.
    """
    return max(_f1(normalized(answer).split(), one.split()) for one in _normalized(right))


def best_threshold(
    margins: Sequence[float], values: Sequence[float], answerable: Sequence[bool]
) -> tuple[float, float]:
    """The threshold on the margin of no answer with the best mean score, and that score.

    A question with a larger margin is predicted to have no answer. The threshold is halfway between two margins, so
    rounding it does not change predictions.

    Args:
      margins: `Candidates.margin` of each question.
      values: F1 of each question's best answer.
      answerable: whether each question has an answer.
    """
    rows = sorted(row for row in zip(margins, values, answerable, strict=True) if row[0] < math.inf)
    edges = [row[0] for row in rows]
    edges = [edges[0] - 2.0, *edges, edges[-1] + 2.0] if edges else [0.0, 0.0]
    between = [(low + high) / 2 for low, high in itertools.pairwise(edges)]
    total = best = float(len(answerable) - sum(answerable))  # below all margins, no question has an answer
    threshold = between[0]
    for (margin, value, has_answer), above in zip(rows, between[1:], strict=True):
        total += value if has_answer else -1.0
        if total > best and margin < above:
            best, threshold = total, above
    return threshold, best / len(margins)


def _normalized(right: Sequence[str]) -> list[str]:
    """The normalised right answers; only "" if none has a word."""
    return [text for text in map(normalized, right) if text] or [""]


def _f1(answer: Sequence[str], right: Sequence[str]) -> float:
    if not answer or not right:
        return float(not answer and not right)
    common = sum((Counter(answer) & Counter(right)).values())
    return 2 * common / (len(answer) + len(right))
