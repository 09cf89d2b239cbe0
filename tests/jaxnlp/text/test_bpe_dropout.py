import math
from collections import Counter

import numpy as np
import pytest

from jaxnlp.text import bpe_dropout as module
from jaxnlp.text.bpe_dropout import BPEDropout
from jaxnlp.text.segmentation import outcomes
from jaxnlp.text.subword_training import train_subwords
from jaxnlp.text.subwords import END, UNKNOWN, Subwords
from tests.jaxnlp.text.test_segmentation import MERGES, exact_distribution

LETTERS = Subwords("bpe", ("a", "b", "c", "d", *MERGES), (-8.0, -8.0, -8.0, -8.0, *MERGES.values()))


@pytest.mark.parametrize("dropout", [0.0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("least", [0.0, 0.05, 0.5, 2.0])
def test_outcomes_have_the_exact_distribution_once_the_others_are_followed(dropout, least):
    expected = exact_distribution(tuple("abcd"), dropout)
    found = Counter()
    for tokens, probability, final in outcomes("abcd", MERGES, dropout=dropout, least=least):
        for result, share in ({tokens: 1.0} if final else exact_distribution(tokens, dropout)).items():
            found[result] += probability * share
    assert {one for one, probability in found.items() if probability} <= set(expected)
    for result, probability in expected.items():
        assert math.isclose(found[result], probability, abs_tol=1e-12)


@pytest.mark.parametrize(
    ("limit", "value"), [("LEAST", 1 / 32), ("LEAST", 50), ("LEAST", 10_000), ("LONGEST", 4), ("MOST_IDS", 0)]
)
def test_draws_have_the_exact_distribution_whether_tables_are_long_or_short(monkeypatch, limit, value):
    monkeypatch.setattr(module, limit, value)
    words, dropout = 4_000, 0.3
    drawn = BPEDropout(LETTERS, ["abcd"] * words + ["b"], dropout)(np.random.default_rng(0))
    assert LETTERS.words("abcd") == ["▁abcd"]  # nothing is merged with the blank
    counts = Counter(tuple(LETTERS.tokens(row)[1:-1]) for row in drawn[:words])
    expected = exact_distribution(tuple("abcd"), dropout)
    assert set(counts) <= set(expected)
    for result, probability in expected.items():
        deviation = math.sqrt(words * probability * (1 - probability)) + 1
        assert abs(counts[result] - words * probability) < 4.5 * deviation, result


def test_texts_survive_and_rates_of_zero_and_one_change_nothing_and_merge_nothing():
    texts = ["the sea the shore", "", "a house in 東京", "houses", "the the"]
    subwords = train_subwords(texts * 3, "bpe", 300)
    plain = [[*subwords.encode(text), END] for text in texts]
    assert [row.tolist() for row in BPEDropout(subwords, texts, 0.0)(np.random.default_rng(0))] == plain
    characters = [[*(id for word in subwords.words(text) for id in subwords.ids_of([*word])), END] for text in texts]
    assert [row.tolist() for row in BPEDropout(subwords, texts, 1.0)(np.random.default_rng(0))] == characters
    draw = BPEDropout(subwords, texts, 0.3)
    for seed in range(20):
        rows = [row.tolist() for row in draw(np.random.default_rng(seed))]
        assert [subwords.decode(row) for row in rows] == texts
        assert all(row.count(END) == 1 and row[-1] == END for row in rows)
        assert rows == [row.tolist() for row in BPEDropout(subwords, texts, 0.3)(np.random.default_rng(seed))]


def test_consecutive_unknown_characters_are_one_token():
    (row,) = BPEDropout(LETTERS, ["xyz xyz"], 0.5)(np.random.default_rng(0))
    assert row.tolist() == [UNKNOWN, END]


@pytest.mark.parametrize(
    ("kind", "rate", "message"),
    [("words", 0.1, "needs subwords of kind bpe, got words"), ("bpe", 1.5, r"rate must be in \[0, 1\], got 1.5")],
)
def test_dropout_is_refused_where_there_are_no_merges(kind, rate, message):
    texts = ["the sea the shore"] * 3
    with pytest.raises(ValueError, match=message):
        BPEDropout(train_subwords(texts, kind, 300), texts, rate)
