"""Splits words into tokens of a vocabulary: by byte-pair merges, or by the most probable tokens of a unigram model."""

import heapq
import itertools
import math
import random
import struct
from collections.abc import Mapping, Sequence

UNKNOWN_PENALTY = 10.0
"""An unknown character scores this much less than the worst token, as in SentencePiece."""
_CLOSE = 0.01
"""Sums that differ by less may change their order by rounding, in texts of up to some thousand tokens."""
_FLOAT32 = struct.Struct("f")


def merged(
    word: Sequence[str], scores: Mapping[str, float], *, dropout: float = 0.0, generator: random.Random | None = None
) -> list[str]:
    """A word's tokens: its characters, merged step by step into the token with the highest score.

    Among equal scores, the leftmost is merged first. O(N log N) for N characters.

    Args:
      word: the word, or its tokens after some merges.
      scores: the score of each token.
      dropout: probability of dropping each possible merge at each step; the word is finished when all are dropped.
      generator: of random numbers; required for dropout.

    Returns:
      The tokens; single characters may be missing in `scores`.

    Source: Sennrich et al. 2016; Provilkov et al. 2020 for dropout.
    """
    symbols: list[str | None] = list(word)  # None: merged into a symbol on its left
    count = len(symbols)
    after, before = list(range(1, count + 1)), list(range(-1, count - 1))
    # Best first; it may have pairs that are no longer neighbours.
    pairs = (first + second for first, second in itertools.pairwise(word))
    possible = [(-scores[pair], i, pair) for i, pair in enumerate(pairs) if pair in scores]
    heapq.heapify(possible)
    left_out: list[tuple[float, int, str]] = []
    while possible:
        merge = heapq.heappop(possible)
        _, left, token = merge
        right = after[left]
        if symbols[left] is None or right == count or f"{symbols[left]}{symbols[right]}" != token:
            continue
        if dropout and generator is not None and generator.random() < dropout:
            left_out.append(merge)
            continue
        symbols[left], symbols[right] = token, None
        after[left] = after[right]
        if after[left] < count:
            before[after[left]] = left
        for first in (before[left], left):
            if first >= 0 and after[first] < count:
                token = f"{symbols[first]}{symbols[after[first]]}"
                if token in scores:
                    heapq.heappush(possible, (-scores[token], first, token))
        while left_out:
            heapq.heappush(possible, left_out.pop())
    return [symbol for symbol in symbols if symbol is not None]


def outcomes(
    word: str, scores: Mapping[str, float], *, dropout: float, least: float
) -> list[tuple[tuple[str, ...], float, bool]]:
    """The outcomes of `merged` with dropout, and their probabilities, which add up to 1.

    Args:
      word, scores, dropout: as for `merged`.
      least: minimum probability of tokens to merge further.

    Returns: for each outcome its tokens, its probability, and whether `merged` ends there; otherwise it continues.
    """
    found, reached = list[tuple[tuple[str, ...], float, bool]](), {tuple(word): 1.0}
    while reached:  # all of the same number of tokens
        after: dict[tuple[str, ...], float] = {}
        for tokens, chance in reached.items():
            if chance < least:
                found.append((tokens, chance, False))
                continue
            pairs = (first + second for first, second in itertools.pairwise(tokens))
            for _, i, pair in sorted((-scores[pair], i, pair) for i, pair in enumerate(pairs) if pair in scores):
                fewer = (*tokens[:i], pair, *tokens[i + 2 :])
                after[fewer] = after.get(fewer, 0.0) + chance * (1.0 - dropout)
                chance *= dropout
            found.append((tokens, chance, True))
        reached = after
    return found


def most_probable(word: str, scores: Mapping[str, float], *, longest: int, unknown: float) -> tuple[list[str], bool]:
    """A word's tokens with the highest sum of scores, by dynamic programming.

    Sums are rounded to float32, as in SentencePiece, so that rounding decides between equal sums. The rounding of a
    word's sums depends on the words before it.

    Args:
      word: the word, or a whole text.
      scores: the log probability of each token.
      longest: length of the longest token in characters.
      unknown: the score of a character that is not a token.

    Returns:
      The tokens, and characters that are not tokens; and whether rounding decides between nearly equal sums.

    Source: Kudo 2018, section 3.2.
    """
    best = [0.0] + [-math.inf] * len(word)
    begins, close = [0] * len(best), [False] * len(best)
    unknown = _float32(unknown)
    for start in range(len(word)):
        for end in range(start + 1, min(start + longest, len(word)) + 1):
            score = scores.get(word[start:end])
            if score is None:
                if end > start + 1:
                    continue
                score = unknown
            total = _float32(best[start] + score)
            if abs(total - best[end]) < _CLOSE:
                close[end] = True
            elif total > best[end]:
                close[end] = False
            if total > best[end]:
                best[end], begins[end] = total, start
    tokens, rounded, end = list[str](), False, len(word)
    while end:
        tokens.append(word[begins[end] : end])
        rounded |= close[end]
        end = begins[end]
    return tokens[::-1], rounded


def _float32(value: float) -> float:
    return _FLOAT32.unpack(_FLOAT32.pack(value))[0]
