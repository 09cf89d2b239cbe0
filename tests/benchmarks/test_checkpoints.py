"""The table of what a checkpoint costs in docs/scaling.md."""

import json

import jax
import pytest

from benchmarks import checkpoints
from benchmarks.checkpoints import MARKERS, PAGE, RESULTS, RUNS, restoring, saving, set_up_run, table
from benchmarks.compiled import text_of_words
from benchmarks.markdown import with_table


def test_the_page_has_the_table_of_the_recorded_rows():
    recorded = json.loads(RESULTS.read_text(encoding="utf-8"))
    page = PAGE.read_text(encoding="utf-8")
    assert page == with_table(page, table(recorded), MARKERS)
    assert [(row["run"], row["process"]) for row in recorded] == [
        (name, number) for name, count in RUNS.items() for number in range(count)
    ]


@pytest.mark.thorough
def test_a_run_goes_on_while_its_checkpoint_is_written_and_memory_is_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints, "CHANGES", checkpoints.CHANGES | {"model.width": 64, "model.num_layers": 1})
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        run = set_up_run(text_of_words(tmp_path / "text.txt", count=4_000), tmp_path / "run")
        found = saving(*run, tmp_path / "run") | restoring(*run, tmp_path / "run")
    assert found["steps_meanwhile"] >= 1
    assert 0 < found["pause_seconds"] < found["written_seconds"]
    assert found["state_bytes"] > 0
    assert found["restoring_seconds"] > 0


def test_the_peak_of_memory_begins_anew():
    before = checkpoints._begin_of_a_peak()
    block = bytearray(64 * 2**20)
    block[:: 2**12] = b"x" * len(block[:: 2**12])  # which touches each page
    assert checkpoints._peak() - before > 60 * 2**20
    del block
    checkpoints._begin_of_a_peak()
    assert checkpoints._peak() - before < 30 * 2**20
