import math

import numpy as np
import pytest

from jaxnlp.ops.positions import sinusoidal_positions


def test_each_pair_of_features_is_a_point_that_turns_at_its_own_rate():
    found = np.asarray(sinusoidal_positions(50, 6))
    for t in (0, 1, 17, 49):
        for i in range(3):
            angle = t / 10_000.0 ** (2 * i / 6)
            np.testing.assert_allclose(found[t, 2 * i : 2 * i + 2], [math.sin(angle), math.cos(angle)], atol=1e-5)


def test_an_odd_width_is_refused():
    with pytest.raises(ValueError, match="must be even, got 7"):
        sinusoidal_positions(3, 7)
