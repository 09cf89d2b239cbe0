"""The table of what 8 bits a weight cost, in docs/weights.md."""

import json
import math

import pytest

from benchmarks.int8 import MARKERS, PAGE, RESULTS, mean_loss, row_of, table
from benchmarks.markdown import with_table


def test_the_page_has_the_table_of_the_recorded_rows():
    page = PAGE.read_text(encoding="utf-8")
    assert page == with_table(page, table(json.loads(RESULTS.read_text(encoding="utf-8"))), MARKERS)


def test_the_loss_is_that_of_the_run_and_8_bits_change_it_little(finished_run):
    found = row_of(finished_run.folder)
    logged = [json.loads(line) for line in (finished_run.folder / "metrics.jsonl").read_text().splitlines()]
    best = min(line["validation/loss"] for line in logged if "validation/loss" in line)
    assert found["loss"] == pytest.approx(best, rel=1e-4)
    assert found["loss"] != found["loss_int8"] == pytest.approx(found["loss"], rel=0.02)
