"""Span corruption of documents, with a removed span to predict: `prefix MASK suffix MASK span`.

Source: CS224N assignment 5, after T5 (Raffel et al. 2020); Guu et al. 2020 (REALM), section 3.4, for spans of names and
numbers.
"""

import bisect
import re
from collections.abc import Iterable, Sequence

import numpy as np

from jaxnlp.text.characters import MASK

SHORTEST_DOCUMENT = 4
"""Minimum number of characters of a document, also after truncation."""


def span_corruption(document: str, sequence_length: int, rng: np.random.Generator) -> str:
    """`prefix MASK suffix MASK span`: a span of a truncated document is removed and predicted.

    The truncated length is uniform from 4 to 7/8 of the block, or to the document's end; the span's length is uniform
    from 1 to about half of that, a quarter on average (rounded down), and its position is uniform within the truncated
    document. Differs from common solutions, whose spans may start after the end of a short document.
    """
    longest = min(len(document), sequence_length * 7 // 8)
    length = int(rng.integers(SHORTEST_DOCUMENT, longest + 1))
    masked = int(rng.integers(1, max(2, length // 4 * 2)))
    start = int(rng.integers(0, length - masked + 1))
    truncated = document[:length]
    return f"{truncated[:start]}{MASK}{truncated[start + masked :]}{MASK}{truncated[start : start + masked]}"


def split_title(document: str) -> tuple[str, str]:
    """`Name. Text` as (`Name`, `Text`). Full stops of initials do not end the name, unless there are no others."""
    ends = list(re.finditer(r"\S+\. ", document))
    end = next((end for end in ends if not re.fullmatch(r"([^\W\d]\.)+ ", end.group())), ends[0] if ends else None)
    return ("", document) if end is None else (document[: end.end() - 2], document[end.end() :])


def salient_spans(text: str, title: str = "") -> list[tuple[int, int]]:
    """Start and end of each sequence of capitalised words, and of each number, without words of the title."""
    known = set(re.findall(r"\w+", title))
    spans: list[tuple[int, int]] = []
    for match in re.finditer(r"\w[\w'\u2019-]*", text):
        word, start, end = match.group(), match.start(), match.end()
        if not (word[0].isupper() or word[0].isdigit()) or word in known:
            continue
        follows = bool(spans) and text[spans[-1][1] : start] == " " and text[spans[-1][0]].isupper()
        if follows and word[0].isupper():
            spans[-1] = (spans[-1][0], end)
        else:
            spans.append((start, end))
    return spans


def answer_spans(texts: Sequence[str], answers: Iterable[str]) -> list[list[tuple[int, int]]]:
    """For each text, start and end of each answer in it; of overlapping ones, the longest."""
    answer = re.compile(rf"\b(?:{'|'.join(map(re.escape, sorted(set(answers), key=len, reverse=True)))})\b")
    return [[match.span() for match in answer.finditer(text)] for text in texts]


def recalled_facts(
    title: str,
    text: str,
    spans: list[tuple[int, int]],
    max_length: int,
    rng: np.random.Generator,
    *,
    most_words: int = 4,
) -> tuple[str, int]:
    """`Title. words MASK span MASK words MASK span MASK ...`: spans in a random order, each after its previous words.

    Only the title is the same in all examples with a fact, so the model learns to recall the fact from the title. In
    the text's order, it would learn the fact as a continuation of previous words, which a question does not have.

    Args:
      title: of the document `Title. Text`.
      text: without the title.
      spans: start and end in the text of the spans to predict; at least one.
      max_length: of the example, in characters, unless the first fact is longer.
      rng: draws order and contexts.
      most_words: maximum random number of words before a span.

    Returns:
      The example, and the number of its first characters, which are not scored.
    """
    words = [match.start() for match in re.finditer(r"\S+", text)]
    example = f"{title}."
    given = len(example)
    for index in rng.permutation(len(spans)):
        start, end = spans[index]
        before = bisect.bisect_left(words, start)
        count = min(before, int(rng.integers(0, most_words + 1)))
        context = text[words[before - count] : start] if count else ""
        fact = f" {context}{MASK}{text[start:end]}{MASK}"
        if len(example) + len(fact) > max_length and len(example) > given:
            break
        example += fact
    return example, given
