"""Which cases of a sweep `make test` runs."""

import types

import pytest

from tests.conftest import evenly_spaced, pytest_collection_modifyitems


@pytest.mark.parametrize(
    ("count", "chosen", "numbers"), [(5, 1, [0]), (5, 2, [0, 4]), (5, 3, [0, 2, 4]), (3, 3, [0, 1, 2]), (2, 7, [0, 1])]
)
def test_chosen_cases_are_evenly_spaced(count, chosen, numbers):
    assert evenly_spaced(count, chosen) == numbers


def cases_of(name, count, *chosen):
    """Items as pytest collects them, with a list of the marks that they are given."""
    for number in range(count):
        marks, given = [types.SimpleNamespace(args=args) for args in chosen], []
        yield types.SimpleNamespace(
            nodeid=f"{name}[{number}]",
            keywords={"sweep"} if chosen else set(),
            iter_markers=lambda _, marks=marks: iter(marks),
            given=given,
            add_marker=given.append,
        )


def test_the_cases_of_each_sweep_that_are_not_chosen_are_thorough():
    items = [*cases_of("a", 4, (2,)), *cases_of("b", 3, (1,)), *cases_of("c", 2)]
    pytest_collection_modifyitems(items)
    thorough = [item.nodeid for item in items if [mark.name for mark in item.given] == ["thorough"]]
    assert thorough == ["a[1]", "a[2]", "b[1]", "b[2]"]


@pytest.mark.parametrize("chosen", [((),), ((0,),), ((1,), (2,))])
def test_a_sweep_that_chooses_no_number_of_cases_is_refused(chosen):
    with pytest.raises(pytest.UsageError, match=r"a: expected one mark sweep\(N\) with N >= 1"):
        pytest_collection_modifyitems(list(cases_of("a", 2, *chosen)))
