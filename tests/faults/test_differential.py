import pytest

from tests.faults.differential import CHECKS, check


@pytest.mark.parametrize("name", CHECKS)
def test_readers_give_what_their_counterparts_give(name):
    check(name, 40)


@pytest.mark.thorough
@pytest.mark.parametrize("name", CHECKS)
def test_readers_give_what_their_counterparts_give_for_many_inputs(name):
    check(name, 400, seed=1)
