"""Which cases of a sweep `make test` runs."""

import types

import pytest

from tests.conftest import covering, evenly_spaced, pytest_collection_modifyitems


@pytest.mark.parametrize(
    ("count", "chosen", "numbers"), [(5, 1, [0]), (5, 2, [0, 4]), (5, 3, [0, 2, 4]), (3, 3, [0, 1, 2]), (2, 7, [0, 1])]
)
def test_chosen_cases_are_evenly_spaced(count, chosen, numbers):
    assert evenly_spaced(count, chosen) == numbers


def test_chosen_cases_cover_every_value_of_every_parameter():
    cases = [{"a": a, "b": b, "c": c} for a in range(4) for b in range(3) for c in range(2)]
    kept = [cases[number] for number in covering(cases)]
    assert len(kept) == 4
    for name, count in (("a", 4), ("b", 3), ("c", 2)):
        assert {case[name] for case in kept} == set(range(count))


class Case:
    """A collected test, and the marks that it is given."""

    def __init__(self, name, number, indices, mark):
        self.nodeid, self.given, self._mark = f"{name}[{number}]", [], mark
        self.keywords = set() if mark is None else {"sweep"}
        self.callspec = types.SimpleNamespace(indices=indices)

    def get_closest_marker(self, name):
        return self._mark

    def add_marker(self, mark):
        self.given.append(mark.name)


def test_the_cases_of_each_sweep_that_are_not_chosen_are_thorough():
    square = [{"x": i, "y": j} for i in range(2) for j in range(2)]
    items = [
        Case(name, number, indices, mark)
        for name, mark in (("a", pytest.mark.sweep.mark), ("b", pytest.mark.sweep(1).mark), ("c", None))
        for number, indices in enumerate(square)
    ]
    pytest_collection_modifyitems(items)
    assert [item.nodeid for item in items if item.given == ["thorough"]] == ["a[1]", "a[2]", "b[1]", "b[2]", "b[3]"]
