"""The table of programs for a TPU in docs/accelerators.md, and what it must say."""

import json

import pytest

from benchmarks.compiled import PAGE, table
from benchmarks.compiled_tpu import MARKERS, RESULTS, RUNS
from benchmarks.markdown import with_table

MEMORY = 16e9
SECONDS = 60
"""Of CPU time, for a program."""
WITHOUT_ATTENTION = ("lstm_lm_hw4", "chr_en_lstm", "conll_bilstm_crf", "ud_parser")
"""Runs whose programs have no attention of several heads."""


ROWS = json.loads(RESULTS.read_text(encoding="utf-8"))


def test_the_page_has_the_table_of_the_recorded_rows():
    page = PAGE.read_text(encoding="utf-8")
    assert page == with_table(page, table(ROWS), MARKERS)
    assert {row["run"] for row in ROWS} == {*RUNS}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['run']}: {row['program']}")
def test_each_program_has_kernels_of_attention_fits_in_the_memory_of_the_tpu_and_compiles_in_a_minute(row):
    new = 0 if row["donated_arrays"] else row["output_bytes"]
    assert row["argument_bytes"] + row["temporary_bytes"] + new < MEMORY
    attends = row["program"] != "initial state" and row["run"] not in WITHOUT_ATTENTION
    assert ("tpu_custom_call" in row["custom_calls"]) == attends
    assert row["compile_cpu_seconds"] < SECONDS
