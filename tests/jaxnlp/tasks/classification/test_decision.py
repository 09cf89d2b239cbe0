import numpy as np

from jaxnlp.targets import Classes, Scale
from jaxnlp.tasks.classification.decision import decided, on_host


def test_decisions_follow_the_threshold():
    two, several = Classes(("a", "b")), Classes(("a", "b"), several=True)
    found = np.array([[0.7, 0.3], [0.2, 0.8]])
    assert decided(two, found) == [0, 1]
    assert decided(two, found, 0.25) == [1, 1]
    assert decided(several, found) == [(0,), (1,)]
    assert decided(several, found, 0.25) == [(0, 1), (1,)]
    assert decided(several, np.array([[0.1, 0.2]])) == [()]


def test_numbers_are_on_the_scale_of_the_labels_and_within_its_ends():
    found = on_host(Scale(1.0, 5.0), np.array([0.5, -0.2, 1.5], np.float32))
    np.testing.assert_allclose(found, [3.0, 1.0, 5.0])
    assert decided(Scale(1.0, 5.0), found) == [3.0, 1.0, 5.0]
