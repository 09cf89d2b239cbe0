import doctest
import itertools

import numpy as np
import pytest

from data.pipelines import lengths as module
from data.pipelines.lengths import few_lengths


def cost(examples, chosen):
    """Positions of all examples, each padded to the next length."""
    return sum(chosen[np.searchsorted(chosen, length)] for length in examples)


@pytest.mark.parametrize("most", [1, 2, 3, 4])
@pytest.mark.parametrize("seed", range(3))
def test_no_other_lengths_have_less_padding(seed, most):
    examples = np.random.default_rng(seed).geometric(0.08, size=60).clip(max=48).tolist()
    found = few_lengths(examples, 48, most=most, multiple=4)
    assert found[-1] == 48
    assert len(found) <= most + (max(examples) <= 44)
    longest = -(-max(examples) // 4) * 4
    others = (
        cost(examples, [*chosen, longest])
        for count in range(most)
        for chosen in itertools.combinations(range(4, longest, 4), count)
    )
    assert cost(examples, found) == min(others)


def test_few_different_lengths_are_all_kept():
    assert few_lengths([3, 3, 9], 32) == (8, 16, 32)
    assert few_lengths([30], 30) == (30,)


def test_the_example_of_the_docstring_runs():
    assert doctest.testmod(module) == (0, 1)
