"""The tables of docs/scaling_costs.md, and what they must say."""

import json

import pytest

from benchmarks.compiled_meshes import LARGE, LARGE_RUNS, PAGE, REACH, REACH_RUNS, costs_of, with_tables

MEMORY = {"H100": 80e9, "TPU v5e": 16e9}


def rows_of(path):
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.mark.thorough
def test_the_page_has_the_tables_of_the_recorded_rows_and_of_the_formulas():
    page = PAGE.read_text(encoding="utf-8")
    assert page == with_tables(page)
    assert {row["run"] for row in rows_of(LARGE)} == {*LARGE_RUNS}
    assert {row["run"] for row in rows_of(REACH)} == {*REACH_RUNS}


@pytest.mark.parametrize("row", rows_of(LARGE), ids=lambda row: f"{row['run']}: {row['program']}")
def test_each_program_fits_in_the_memory_of_its_devices_and_updates_its_state_in_place(row):
    memory = next(size for name, size in MEMORY.items() if row["run"].endswith(name))
    # An output that reuses an argument needs no memory of its own.
    new = 0 if row["donated_arrays"] else row["output_bytes"]
    assert row["argument_bytes"] + row["temporary_bytes"] + new < memory
    assert row["reused_arrays"] == row["donated_arrays"]


@pytest.mark.parametrize("row", rows_of(REACH), ids=lambda row: f"{row['run']}: {row['program']}")
def test_data_parallel_programs_for_tpus_compile_within_a_minute_and_only_sum(row):
    assert row["compile_cpu_seconds"] < 60
    assert row["collectives"].keys() <= {"all-reduce"}
    assert row["copies"] <= {"gpt_shakespeare_cpu": 40, "names_pretrain": 60}.get(row["run"], 150)


def test_a_compiled_state_has_the_size_of_the_formula():
    for run, mode, model_axis in (("gpt_1b, fsdp, 8 H100", "fsdp", 1), ("gpt2_small, jit, 8 H100", "jit", 1)):
        (step,) = (row for row in rows_of(LARGE) if row["run"] == run and row["program"].startswith("step"))
        expected = costs_of(run.partition(",")[0], 8, mode, model_axis).state
        assert step["argument_bytes"] == pytest.approx(expected, rel=0.02)


def test_256_devices_sum_what_the_formula_says():
    run = "gpt_shakespeare_cpu, 256 TPUs"
    (step,) = (row for row in rows_of(REACH) if row["run"] == run and row["program"].startswith("step"))
    extra = step["collectives"]["all-reduce"]["bytes"] - costs_of("gpt_shakespeare_cpu", 256, "jit", 1, 65).summed
    assert 0 <= extra < 100  # metrics
