"""The harness that times ours beside PyTorch."""

import dataclasses

import pytest

from benchmarks.case import Case
from benchmarks.dropout import cases
from benchmarks.measure import NUMBERS, SideError, Worker, compared, matmul_limits, measure


def test_ratio_is_the_median_of_the_rounds_ratios_and_not_the_ratio_of_medians():
    row = compared([1.0, 2.0, 10.0], [3.0, 2.0, 40.0])
    assert row["ratio"] == 3.0
    assert row["ours_seconds"] == 2.0
    assert row["theirs_seconds"] == 3.0


def test_rate_and_share_of_the_limit_come_from_our_median():
    row = compared([0.5, 0.5, 0.5], [1.0, 1.0, 1.0], flop=1e9, limit_gflops=8.0)
    assert row["gflops"] == pytest.approx(2.0)
    assert row["fraction_of_limit"] == pytest.approx(0.25)
    assert row["spread"] == 0.0


def test_tokens_are_counted_by_our_seconds():
    row = compared([0.5, 0.5, 0.5], [1.0, 1.0, 1.0], tokens=64)
    assert row["tokens_per_second"] == pytest.approx(128.0)
    assert compared([0.5, 0.5], [1.0, 1.0])["tokens_per_second"] is None


def test_limits_are_rates_of_a_machine():
    limits = matmul_limits()
    assert limits.keys() == {"float32", "bfloat16"}
    assert all(1.0 < limit < 1e6 for limit in limits.values())


def test_without_a_count_of_operations_there_is_no_rate():
    row = compared([1.0, 1.0], [1.0, 1.0])
    assert row["gflops"] is None
    assert row["fraction_of_limit"] is None


def test_both_sides_run_in_processes_of_their_own_and_give_a_row():
    (case,) = (dataclasses.replace(case, turn_seconds=0.01) for case in cases())
    (row,) = measure([case], limit_gflops=100.0)
    assert (row["case"], row["opponent"]) == ("dropout", "eager_f32")
    assert row["ours_seconds"] > 0
    assert row["theirs_seconds"] > 0


def test_a_rival_that_cannot_run_is_told_with_its_reason():
    (case,) = (dataclasses.replace(case, turn_seconds=0.01) for case in cases())
    broken = Case("dropout", {**case.sides, "compile": case.sides["ours"]})  # the worker knows no such side
    rows = list(measure([broken], limit_gflops=100.0))
    assert {row["opponent"]: "error" in row for row in rows} == {"eager_f32": False, "compile": True}
    assert "compile" in rows[1]["error"]
    assert rows[0].keys() == rows[1].keys() - {"error"}
    assert {rows[1][name] for name in NUMBERS} == {None}


def test_a_side_of_ours_that_cannot_run_is_an_error():
    with pytest.raises(SideError, match="nothing"):
        Worker("dropout", "nothing", huge_pages=False).wait_until_ready()
