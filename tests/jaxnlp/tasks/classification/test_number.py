import numpy as np
import pytest

from jaxnlp.targets import Number
from jaxnlp.tasks.classification.number import NumberMeasures

LABELS = np.array([1.0, 2.0, 3.0, 5.0])
MEASURES = NumberMeasures(Number(1.0, 5.0))
FOUND = np.array([1.5, 2.0, 2.0, 5.0])


def test_scores_are_their_definitions():
    measured = MEASURES.scores(LABELS, FOUND)
    assert measured.keys() == MEASURES.kinds(LABELS, "texts").keys()
    assert measured["mean_absolute_error"].value == pytest.approx(1.5 / 4)
    assert measured["root_mean_squared_error"].value == pytest.approx(np.sqrt(1.25 / 4))
    assert measured["pearson"].value == pytest.approx(np.corrcoef(LABELS, FOUND)[0, 1])
    assert measured["spearman"].value == pytest.approx(np.corrcoef([1, 2, 3, 4], [1, 2.5, 2.5, 4])[0, 1])


def test_a_constant_correlates_with_nothing():
    measured = MEASURES.scores(LABELS, np.ones(4))
    assert (measured["pearson"].value, measured["spearman"].value) == (0.0, 0.0)


def test_the_report_follows_the_scale_and_shows_the_largest_errors():
    mean, perfect = MEASURES.sections(LABELS, FOUND)[0].content.lines
    assert mean.x == tuple(LABELS)
    assert mean.y == tuple(FOUND)
    assert perfect.x == perfect.y == (1.0, 5.0)
    assert MEASURES.errors(LABELS, FOUND, 2) == [2, 0]
