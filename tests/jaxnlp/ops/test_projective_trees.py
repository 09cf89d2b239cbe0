import numpy as np
import pytest

from jaxnlp.ops.projective_trees import eisner, projective_log_normalizer, projective_marginals
from tests.jaxnlp.ops.tree_checks import TreeChecks, compiled


class TestProjectiveTrees(TreeChecks):
    projective = True
    functions = compiled(eisner, projective_log_normalizer, projective_marginals)


def test_crossing_arcs_are_not_taken_even_if_they_are_best():
    scores = np.zeros((6, 5, 6), np.float32)
    scores[1, [0, 1, 2, 3], [3, 0, 2, 2]] = 9.0  # 3 -> 1 crosses the arc from ROOT to 2
    scores[1, 0, 2] = 1.0
    assert TestProjectiveTrees().all_of(scores)[0][1].tolist() == [2, 0, 2, 2, 0]


def test_wrong_shapes_are_refused():
    with pytest.raises(ValueError, match=r"expected scores \[B, T, T \+ 1\].* got scores \(2, 3, 3\), lengths \(2,\)"):
        eisner(np.zeros((2, 3, 3)), np.array([3, 3]))
