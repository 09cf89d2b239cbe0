import itertools

import numpy as np
import pytest

from jaxnlp.tasks.extractive_qa.scores import best_threshold, exact_match, f1, normalized


@pytest.mark.parametrize(
    ("text", "expected"),
    [("The  Eiffel Tower!", "eiffel tower"), ("a cat, an ant", "cat ant"), ("theatre", "theatre"), ("U.S.", "us"),
     ("北京。", "北京。"), ("the", "")],
)  # fmt: skip
def test_case_punctuation_articles_and_blanks_do_not_count(text, expected):
    assert normalized(text) == expected


@pytest.mark.parametrize(
    ("answer", "right", "exact", "overlap"),
    [
        ("Denver Broncos", ["The Denver Broncos", "Denver Broncos"], 1.0, 1.0),
        ("the Broncos", ["Denver Broncos"], 0.0, 2 / 3),
        ("to to to win", ["to win to"], 0.0, 6 / 7),  # words count as often as in both
        ("Rome", ["Paris", "in Rome"], 0.0, 2 / 3),  # the best of the right answers
        ("", [], 1.0, 1.0),
        ("Rome", [], 0.0, 0.0),
        ("", ["Rome"], 0.0, 0.0),
        ("the", [], 1.0, 1.0),
        ("Rome", ["the", "Rome"], 1.0, 1.0),  # a right answer without words is none
    ],
)
def test_scores_are_those_of_the_official_definition(answer, right, exact, overlap):
    assert exact_match(answer, right) == exact
    assert f1(answer, right) == pytest.approx(overlap)


def test_the_best_threshold_is_that_of_an_exhaustive_search():
    draw = np.random.default_rng(0)
    for size in (1, 2, 7, 30):
        margins = draw.integers(-3, 4, size).astype(float)
        answerable = draw.random(size) < 0.6
        values = np.where(answerable, draw.random(size), 0.0)

        def mean_at(threshold, margins=margins, answerable=answerable, values=values):
            given = margins <= threshold
            return np.mean(np.where(given, np.where(answerable, values, 0.0), ~answerable))

        threshold, value = best_threshold(margins.tolist(), values.tolist(), answerable.tolist())
        assert value == pytest.approx(mean_at(threshold))
        assert value == pytest.approx(max(map(mean_at, itertools.chain([-10.0], margins))))


def test_questions_without_any_answer_have_none_at_every_threshold():
    assert best_threshold([float("inf"), 1.0], [0.0, 1.0], [False, True]) == (2.0, 1.0)
    assert best_threshold([float("inf")], [0.0], [True]) == (0.0, 0.0)
