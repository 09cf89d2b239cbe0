"""Which cases of a sweep `make test` runs."""

import types

import pytest

from tests.conftest import LONGEST, ROOT, covering, evenly_spaced, group_of, in_part, pytest_collection_modifyitems


@pytest.mark.parametrize(
    ("count", "chosen", "numbers"), [(5, 1, [0]), (5, 2, [0, 4]), (5, 3, [0, 2, 4]), (3, 3, [0, 1, 2]), (2, 7, [0, 1])]
)
def test_chosen_cases_are_evenly_spaced(count, chosen, numbers):
    assert evenly_spaced(count, chosen) == numbers


def test_chosen_cases_cover_every_value_of_every_parameter():
    cases = [[a, b, c] for a in "pqrs" for b in "pqr" for c in "pq"]
    kept = [cases[number] for number in covering(cases)]
    assert len(kept) == 4
    assert [len(set(column)) for column in zip(*kept, strict=True)] == [4, 3, 2]


@pytest.mark.parametrize(("a", "b"), [(1, 2)], ids=["pair"])
@pytest.mark.parametrize("c", [3])
def test_pytest_gives_a_case_one_id_for_each_parametrize(request, a, b, c):
    assert list(request.node.callspec._idlist) == ["3", "pair"]


class Case:
    """A collected test, and the marks that it is given. The words `sweep` and `realdata` are in its name."""

    def __init__(self, name, number, ids, mark):
        self.nodeid, self.given, self._mark = f"{name}[{number}]", [], mark
        self.keywords = {"sweep", "realdata", name}
        self.callspec = types.SimpleNamespace(_idlist=ids)

    def get_closest_marker(self, name):
        return self._mark if self._mark is not None and self._mark.name == name else None

    def add_marker(self, mark):
        self.given.append(mark.name)


def test_the_cases_of_each_sweep_that_are_not_chosen_are_thorough():
    square = [[x, y] for x in "pq" for y in "pq"]
    items = [
        Case(name, number, ids, mark)
        for name, mark in (("a", pytest.mark.sweep.mark), ("b", pytest.mark.sweep(1).mark), ("c", None))
        for number, ids in enumerate(square)
    ]
    pytest_collection_modifyitems(items)
    assert [item.nodeid for item in items if item.given == ["thorough"]] == ["a[1]", "a[2]", "b[1]", "b[2]", "b[3]"]


def test_only_tests_with_the_mark_need_data_sets_not_those_with_the_word_in_their_name(monkeypatch):
    monkeypatch.delenv("JAXNLP_DATA", raising=False)
    items = [Case("marked", 0, ["p"], pytest.mark.realdata.mark), Case("test_realdata", 0, ["sweep"], None)]
    pytest_collection_modifyitems(items)
    assert [item.given for item in items] == [["skip"], []]


def test_the_tests_of_a_task_are_one_group_and_those_of_other_files_are_their_own():
    names = ("tests/jaxnlp/tasks/tagging/test_init.py", "tests/jaxnlp/tasks/tagging/test_commands.py")
    assert {group_of(name) for name in names} == {"tests/jaxnlp/tasks/tagging"}
    assert group_of("tests/jaxnlp/tasks/test_init.py") == "tests/jaxnlp/tasks/test_init.py"
    assert group_of("tests/train/test_loop.py") == "tests/train/test_loop.py"


def test_the_longest_files_exist_and_come_first():
    assert all((ROOT / file).is_file() for file in LONGEST)
    items = [Case(f"{file}::test", 0, [], None) for file in ("tests/a.py", *LONGEST, "tests/b.py")]
    pytest_collection_modifyitems(items)
    assert [item.nodeid.partition("::")[0] for item in items] == [*LONGEST, "tests/a.py", "tests/b.py"]


def test_parts_have_each_item_once():
    parts = [in_part(range(10), f"{number}/4") for number in range(4)]
    assert sorted(number for part in parts for number in part) == list(range(10))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
