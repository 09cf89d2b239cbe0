import itertools
import math
import random
from collections import Counter

import pytest

from jaxnlp.text.segmentation import merged, most_probable

MERGES = {piece: -float(rank) for rank, piece in enumerate(["ab", "bc", "abc", "cd", "abcd"])}


def quadratic(word, scores):
    """The definition: look at all neighbours again after each merge."""
    symbols = list(word)
    while True:
        pairs = [(-scores[a + b], place) for place, (a, b) in enumerate(itertools.pairwise(symbols)) if a + b in scores]
        if not pairs:
            return symbols
        place = min(pairs)[1]
        symbols[place : place + 2] = [symbols[place] + symbols[place + 1]]


def segmentations(word):
    for cuts in itertools.product([False, True], repeat=len(word) - 1):
        ends = [place + 1 for place, cut in enumerate(cuts) if cut] + [len(word)]
        yield [word[start:end] for start, end in itertools.pairwise([0, *ends])]


def test_merges_are_those_of_the_definition():
    generator = random.Random(0)
    for _ in range(300):
        word = "".join(generator.choices("abcde", k=generator.randrange(12)))
        scores = {"".join(generator.choices("abcd", k=n)): generator.randrange(4) for n in (2, 2, 2, 3, 3, 4)}
        assert merged(word, scores) == quadratic(word, scores)


def test_of_equal_scores_the_leftmost_is_merged():
    assert merged("aaaaa", {"aa": 0.0}) == ["aa", "aa", "a"]


def test_dropout_of_one_leaves_characters_and_of_zero_changes_nothing():
    assert merged("abcd", MERGES, dropout=1.0, generator=random.Random(0)) == list("abcd")
    assert merged("abcd", MERGES, dropout=0.0, generator=random.Random(0)) == merged("abcd", MERGES)


def exact_distribution(symbols, dropout):
    """Probabilities of all results: before each merge each possible one is left out independently."""
    pairs = sorted(
        (-MERGES[a + b], place) for place, (a, b) in enumerate(itertools.pairwise(symbols)) if a + b in MERGES
    )
    found = Counter({symbols: dropout ** len(pairs)})
    for number, (_, place) in enumerate(pairs):
        chance = dropout**number * (1 - dropout)
        after = (*symbols[:place], symbols[place] + symbols[place + 1], *symbols[place + 2 :])
        for result, probability in exact_distribution(after, dropout).items():
            found[result] += chance * probability
    return found


@pytest.mark.parametrize("dropout", [0.1, 0.5])
def test_dropout_has_the_published_distribution(dropout):
    expected = exact_distribution(tuple("abcd"), dropout)
    assert math.isclose(sum(expected.values()), 1.0)
    draws, generator = 20_000, random.Random(0)
    counts = Counter(tuple(merged("abcd", MERGES, dropout=dropout, generator=generator)) for _ in range(draws))
    assert set(counts) <= set(expected)
    for result, probability in expected.items():
        deviation = math.sqrt(draws * probability * (1 - probability)) + 1
        assert abs(counts[result] - draws * probability) < 4.5 * deviation, result


def test_the_most_probable_pieces_are_found():
    generator = random.Random(0)
    for _ in range(200):
        word = "".join(generator.choices("abc", k=generator.randrange(1, 8)))
        scores = {"".join(generator.choices("ab", k=n)): -generator.random() for n in (1, 1, 2, 2, 3, 4)}

        def total(pieces, scores=scores):
            return sum(scores.get(piece, -20.0 if len(piece) == 1 else -math.inf) for piece in pieces)

        best = max(map(total, segmentations(word)))
        pieces, _ = most_probable(word, scores, longest=4, unknown=-20.0)
        assert math.isclose(total(pieces), best, abs_tol=1e-4)


@pytest.mark.parametrize(("word", "rounded"), [("aaa", True), ("aab", True), ("baa", False), ("aa", False)])
def test_pieces_with_equal_sums_are_said_to_depend_on_rounding(word, rounded):
    scores = {"a": -2.0, "aa": -3.0, "b": -1.0, "ab": -2.0}  # a aa = aa a, aa b = a ab
    assert most_probable(word, scores, longest=2, unknown=-20.0)[1] == rounded


def test_sums_are_rounded_to_float32():
    scores = {"x": -1000.0, "a": -1.0, "aa": -2.00001}
    assert most_probable("aa", scores, longest=2, unknown=-20.0)[0] == ["a", "a"]
    assert most_probable("xaa", scores, longest=2, unknown=-20.0)[0] == ["x", "aa"]  # both sums are -1002


def test_an_empty_word_has_no_pieces():
    assert merged("", MERGES) == most_probable("", {}, longest=1, unknown=-1.0)[0] == []


def test_long_words_take_no_quadratic_time():
    assert len(merged("ab" * 20_000, MERGES)) == 20_000
