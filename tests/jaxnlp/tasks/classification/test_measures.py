import numpy as np
import pytest

from jaxnlp.tasks.classification.measures import MAX_POINTS, Measures, areas, line


def test_a_long_curve_keeps_its_ends_and_so_many_of_its_points():
    x = np.linspace(0.0, 1.0, 1_001)
    found = line("curve", x, x**2)
    assert (len(found.x), found.x[0], found.x[-1], found.y[-1]) == (MAX_POINTS, 0.0, 1.0, 1.0)
    assert line("short", x[:3], x[:3]).x == (0.0, 0.001, 0.002)
    assert [kind.of for kind in areas("texts").values()] == ["texts", "texts"]


def test_new_targets_must_define_what_they_measure():
    measures = Measures(None)
    for method, arguments in (("loss", 3), ("kinds", 2), ("scores", 2), ("ranking", 1), ("sections", 2), ("errors", 3)):
        with pytest.raises(TypeError, match=rf"Measures does not define {method}\(\)"):
            getattr(measures, method)(*[None] * arguments)
