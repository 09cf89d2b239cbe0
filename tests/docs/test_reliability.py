"""The page about reliability says what was recorded."""

import json

import pytest

from benchmarks.markdown import with_table
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


@pytest.mark.parametrize("files", ["plain", "folders", "coverage"])
def test_the_counts_of_changed_files_are_those_of_the_record(page, recorded, files):
    rows = [row for row in recorded("fuzzing") if row.get("files") == files]
    inputs, read, refused = (sum(row[name] for row in rows) for name in ("inputs", "read", "refused"))
    assert f"{len(rows)} readers" in page
    assert f" | {inputs:,} | {read:,} read, {refused:,} refused, no other error |" in page
    assert not any(row["finds"] for row in rows)


def test_the_counts_of_compared_files_and_of_options_are_those_of_the_record(page, recorded):
    compared = [row for row in recorded("fuzzing") if row["kind"] == "differential"]
    assert f" | {sum(row['inputs'] for row in compared):,} | no difference |" in page
    assert not any(row["differences"] for row in compared)
    (options,) = (row for row in recorded("fuzzing") if row["kind"] == "options")
    words = "0, -1, 1, 10^9, 10^18, nan, inf, 1e30, nothing and 10,000 characters"
    assert len(options["values"]) == len(words.replace("10,000", "10000").replace(" and", ",").split(","))
    assert f"| {options['options']} options with {words} | {options['cases']:,} | " in page
    assert f"| {options['accepted']} accepted, {options['refused']:,} refused in one line |" in page
    assert not options["find"]
