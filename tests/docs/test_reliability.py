"""The page about reliability says what was recorded."""

import json

import pytest

from benchmarks.markdown import with_table
from tests.faults import record as fuzzing
from tests.torture.soak import MARKERS, table


@pytest.fixture
def page(root):
    return (root / "docs" / "reliability.md").read_text(encoding="utf-8")


@pytest.fixture
def recorded(root):
    return lambda name: json.loads((root / "docs" / "results" / f"{name}.json").read_text(encoding="utf-8"))


def test_the_table_of_the_long_run_is_that_of_its_record(page, recorded):
    assert page == with_table(page, table(recorded("soak")), MARKERS)


def test_nothing_grew_in_the_long_run(recorded):
    for part in recorded("soak")[1:]:
        first, *others = part["samples"]
        assert others[-1]["resident_mb"] < 1.05 * first["resident_mb"], part["what"]
        assert all(sample["compilations"] == first["compilations"] for sample in others), part["what"]
        assert max(sample["checkpoints"] for sample in others) <= 4  # one of them is being written


def test_the_table_of_senseless_files_and_options_is_that_of_its_record(page, recorded):
    assert page == with_table(page, fuzzing.table(recorded("fuzzing")), fuzzing.MARKERS)


def test_no_file_and_no_option_led_to_another_error(recorded):
    for row in recorded("fuzzing"):
        assert {row.get("finds", 0), row.get("differences", 0), row.get("find", 0)} == {0}, row
