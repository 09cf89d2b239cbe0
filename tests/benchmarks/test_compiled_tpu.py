"""The tables of TPUs in docs/accelerators.md, and what they must say."""

import json

import pytest

from benchmarks.compiled_tpu import ATTENTION, IMPLEMENTATIONS, LENGTHS, PAGE, RESULTS, RUNS, with_tables

MEMORY = 16e9
SECONDS = 60
"""Of CPU time, for a program."""
WITHOUT_ATTENTION = ("lstm_lm_hw4", "chr_en_lstm", "conll_bilstm_crf", "ud_parser")
"""Runs whose programs have no attention of several heads."""


def rows_of(path):
    return json.loads(path.read_text(encoding="utf-8"))


def test_the_page_has_the_tables_of_the_recorded_rows():
    page = PAGE.read_text(encoding="utf-8")
    assert page == with_tables(page)
    assert {row["run"] for row in rows_of(RESULTS)} == {*RUNS}
    rows = rows_of(ATTENTION)
    assert [(row["positions"], row["implementation"]) for row in rows] == [
        (length, name) for length in LENGTHS for name in IMPLEMENTATIONS
    ]


def test_the_memory_of_flash_grows_with_the_length_and_that_of_vjp_with_its_square():
    sizes = {(row["positions"], row["implementation"]): row["temporary_bytes"] for row in rows_of(ATTENTION)}
    assert sizes[LENGTHS[-1], "flash"] / sizes[LENGTHS[-3], "flash"] == pytest.approx(4.0, rel=0.1)
    assert sizes[LENGTHS[1], "vjp"] / sizes[LENGTHS[0], "vjp"] == pytest.approx(4.0, rel=0.1)
    assert sizes[LENGTHS[-1], "vjp"] is None


@pytest.mark.parametrize("row", rows_of(RESULTS), ids=lambda row: f"{row['run']}: {row['program']}")
def test_each_program_has_kernels_of_attention_fits_in_the_memory_of_the_tpu_and_compiles_in_a_minute(row):
    new = 0 if row["donated_arrays"] else row["output_bytes"]
    assert row["argument_bytes"] + row["temporary_bytes"] + new < MEMORY
    attends = row["program"] != "initial state" and row["run"] not in WITHOUT_ATTENTION
    assert ("tpu_custom_call" in row["custom_calls"]) == attends
    assert row["compile_cpu_seconds"] < SECONDS
