import doctest
import itertools

import numpy as np
import pytest

from data.pipelines import lengths as module
from data.pipelines.lengths import few_lengths, fitting, multiples, up_to


def cost(examples, chosen):
    """Positions of all examples, each padded to the next length."""
    return sum(chosen[np.searchsorted(chosen, length)] for length in examples)


@pytest.mark.parametrize("most", [1, 2, 3, 4])
@pytest.mark.parametrize("seed", range(3))
def test_no_other_lengths_have_less_padding(seed, most):
    examples = np.random.default_rng(seed).geometric(0.08, size=60).clip(max=48).tolist()
    found = few_lengths(examples, 48, most=most, multiple=4)
    assert found[-1] == 48
    assert len(found) <= most
    examples.append(48)  # the last length counts as that of an example
    others = (
        cost(examples, [*chosen, 48])
        for count in range(most)
        for chosen in itertools.combinations(range(4, 48, 4), count)
    )
    assert cost(examples, found) == min(others)


def test_few_different_lengths_are_all_kept():
    assert few_lengths([3, 3, 9], 32) == (8, 16, 32)
    assert few_lengths([30], 30) == (30,)


@pytest.mark.parametrize("few", [False, True])
def test_multiples_reach_the_longest_example_and_not_the_maximum(few):
    assert multiples([3, 40, 17], 128, 16, few=few)[-1] == 48
    assert multiples([3, 100], 110, 16, few=few)[-1] == 110
    assert len(multiples([3, 40], 128, 16, few=few)) == (1 if few else 3)


def test_a_length_fits_the_first_that_is_not_shorter():
    assert [fitting(length, (8, 16, 20)) for length in (1, 8, 9, 20)] == [8, 8, 16, 20]


def test_the_examples_of_the_docstrings_run():
    assert doctest.testmod(module) == (0, 4)


def test_no_length_above_the_first_that_fits_is_needed():
    assert up_to(5, (4, 8, 16), [5], few=False) == (4, 8)
    assert up_to(16, (4, 8, 16), [5], few=False) == up_to(99, (4, 8, 16), [5], few=False) == (4, 8, 16)


def test_few_lengths_stay():
    assert up_to(16, (4, 8, 16), [5, 9], few=True) == (4, 8, 16)
