"""What tests of several functions share."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest


@pytest.fixture
def assert_gradients_of() -> Callable[..., None]:
    """Compares gradients with differences of a NumPy function in float64, along one random direction an array."""

    def check(function: Callable[..., np.ndarray], inputs: Any, gradients: Any, upstream: np.ndarray) -> None:
        arrays, tree = jax.tree.flatten(inputs)
        for number, (array, gradient) in enumerate(zip(arrays, jax.tree.leaves(gradients), strict=True)):
            direction = np.random.default_rng(number).normal(size=array.shape)
            sides = []
            for step in (1e-5, -1e-5):
                moved = [a.astype(np.float64) for a in arrays]
                moved[number] = moved[number] + step * direction
                sides.append(np.vdot(upstream, function(*jax.tree.unflatten(tree, moved))))
            np.testing.assert_allclose(np.vdot(gradient, direction), (sides[0] - sides[1]) / 2e-5, rtol=1e-4, atol=1e-4)

    return check
