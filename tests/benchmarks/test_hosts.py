"""The table of what many hosts take for their rows in docs/scaling.md."""

import json

import numpy as np

from benchmarks.hosts import BATCHES, MARKERS, PAGE, RESULTS, ROWS, RUNS, seconds_a_batch, table
from benchmarks.markdown import with_table
from data import LazyBatch


def test_the_page_has_the_table_of_the_recorded_rows():
    recorded = json.loads(RESULTS.read_text(encoding="utf-8"))
    page = PAGE.read_text(encoding="utf-8")
    assert page == with_table(page, table(recorded), MARKERS)
    assert [row["run"] for row in recorded] == [*RUNS]


def test_the_first_host_makes_only_its_rows():
    made = []

    def rows(chosen):
        made.append(chosen.tolist())
        return {"loss_mask": np.ones(len(chosen), bool)}

    batches = (LazyBatch(3 * ROWS, rows) for _ in range(BATCHES + 1))
    assert seconds_a_batch(batches, 3) > 0
    assert made == [[*range(ROWS)]] * BATCHES
