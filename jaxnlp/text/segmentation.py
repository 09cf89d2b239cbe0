"""Words cut into pieces of a vocabulary: byte-pair merges, and the most probable pieces of a unigram model."""

import heapq
import math
import random
from collections.abc import Mapping

UNKNOWN_PENALTY = 10.0
"""How much less than the lowest score of a piece that of an unknown character is, as in SentencePiece."""


def merged(
    word: str, scores: Mapping[str, float], *, dropout: float = 0.0, generator: random.Random | None = None
) -> list[str]:
    """A word's characters, merged into pieces: always the two neighbours whose piece has the highest score.

    Of equal scores the leftmost is merged. O(N log N) for N characters.

    Args:
      word: the word.
      scores: of the pieces.
      dropout: before each merge, each possible merge is left out with this probability; the word is finished when all
        are left out.
      generator: decides which; required for dropout.

    Returns:
      Pieces; a single character need not be in `scores`.

    Source: Sennrich et al. 2016; Provilkov et al. 2020 for dropout.
    """
    symbols: list[str | None] = list(word)  # None: merged into a symbol on its left
    count = len(symbols)
    after, before = list(range(1, count + 1)), list(range(-1, count - 1))
    possible: list[tuple[float, int, str]] = []  # the best first; those that are no longer neighbours stay in it

    def consider(left: int) -> None:
        if left >= 0 and after[left] < count:
            piece = f"{symbols[left]}{symbols[after[left]]}"
            if piece in scores:
                heapq.heappush(possible, (-scores[piece], left, piece))

    for place in range(count - 1):
        consider(place)
    left_out: list[tuple[float, int, str]] = []
    while possible:
        merge = heapq.heappop(possible)
        _, left, piece = merge
        right = after[left]
        if symbols[left] is None or right == count or f"{symbols[left]}{symbols[right]}" != piece:
            continue
        if dropout and generator is not None and generator.random() < dropout:
            left_out.append(merge)
            continue
        symbols[left], symbols[right] = piece, None
        after[left] = after[right]
        if after[left] < count:
            before[after[left]] = left
        consider(before[left])
        consider(left)
        while left_out:
            heapq.heappush(possible, left_out.pop())
    return [symbol for symbol in symbols if symbol is not None]


def most_probable(word: str, scores: Mapping[str, float], *, longest: int, unknown: float) -> list[str]:
    """The pieces whose scores have the highest sum, by dynamic programming.

    Args:
      word: the word.
      scores: log probabilities of the pieces.
      longest: the number of characters in the longest piece.
      unknown: score of a character that is no piece.

    Returns:
      Pieces; characters that are no pieces are among them.

    Source: Kudo 2018, section 3.2.
    """
    best = [0.0] + [-math.inf] * len(word)
    begins = [0] * (len(word) + 1)
    for start in range(len(word)):
        for end in range(start + 1, min(start + longest, len(word)) + 1):
            score = scores.get(word[start:end])
            if score is None:
                if end > start + 1:
                    continue
                score = unknown
            if best[start] + score > best[end]:
                best[end], begins[end] = best[start] + score, start
    pieces, end = list[str](), len(word)
    while end:
        pieces.append(word[begins[end] : end])
        end = begins[end]
    return pieces[::-1]
