"""The table of batches in docs/accelerators.md."""

import json

import pytest

from benchmarks.markdown import with_table
from benchmarks.pipeline import MARKERS, PAGE, RESULTS, RUNS, rows, table


def test_the_page_has_the_table_of_the_recorded_rows():
    recorded = json.loads(RESULTS.read_text(encoding="utf-8"))
    page = PAGE.read_text(encoding="utf-8")
    assert page == with_table(page, table(recorded), MARKERS)
    assert [row["run"] for row in recorded] == [*RUNS]


@pytest.mark.thorough
@pytest.mark.realdata
def test_a_batch_is_compared_with_the_fastest_step(monkeypatch):
    monkeypatch.setattr("benchmarks.pipeline.RUNS", ("awd_lstm",))
    monkeypatch.setattr("benchmarks.pipeline.BATCHES", 2)
    (row,) = rows()
    assert row["step_seconds"] == pytest.approx(0.0086, rel=0.2)
    assert row["ratio"] == row["step_seconds"] / row["batch_seconds"] > 0.0
