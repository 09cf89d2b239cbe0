import pytest

from tests.faults.record import added, as_rows, kind, table

COUNTS = {"read": 3, "refused": 7, "finds": 0, "messages": 2, "cpu_seconds": 0.5, "slowest_seconds": 0.25}
ROW = {"kind": "fuzz", "files": "plain", "reader": "csv", "inputs": 10, **COUNTS}


def test_counts_of_a_reader_are_added_up_and_the_slowest_read_is_kept():
    other = ROW | {"reader": "tsv"}
    assert added([ROW, other, ROW | {"slowest_seconds": 0.75}]) == [
        ROW | {"inputs": 20, "read": 6, "refused": 14, "messages": 4, "cpu_seconds": 1.0, "slowest_seconds": 0.75},
        other,
    ]


def test_outcomes_of_options_are_one_row():
    outcomes = [
        {"recipe": "a", "option": "x", "value": value, "kind": kind_, "text": "", "seconds": seconds}
        for value, kind_, seconds in [("0", "accepted", 0.5), ("", "refused", 1.5)]
    ]
    (row,) = as_rows(outcomes)
    counts = {name: row[name] for name in ("options", "cases", "accepted", "refused", "find", "slowest_seconds")}
    assert counts == {"options": 1, "cases": 2, "accepted": 1, "refused": 1, "find": 0, "slowest_seconds": 1.5}
    assert kind(row) == ("options", "")
    assert "1 options with 0 and nothing | 2 | 1 accepted, 1 refused in one line |" in table([row])


@pytest.mark.parametrize(("finds", "words"), [(0, "no other error"), (1, "1 other error"), (2, "2 other errors")])
def test_the_table_has_finds(finds, words):
    assert f"| 20 | 6 read, 14 refused, {words} |" in table(
        [ROW | {"finds": finds}, ROW | {"reader": "tsv", "finds": 0}]
    )
