"""The timing of our implementation and PyTorch's."""

import contextlib
import dataclasses
import sys
import types
from typing import ClassVar

import numpy as np
import pytest

from benchmarks.case import OURS, Case
from benchmarks.compile import rows
from benchmarks.dropout import cases
from benchmarks.measure import (
    LEAST_TURNS,
    NUMBERS,
    ImplementationError,
    Worker,
    _turns,
    compared,
    matmul_limits,
    measure,
    measure_against,
)


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


def test_the_share_of_an_unknown_limit_is_not_known():
    row = compared([0.5, 0.5], [1.0, 1.0], flop=1e9, limit_gflops=None)
    assert (row["gflops"], row["fraction_of_limit"]) == (pytest.approx(2.0), None)


@pytest.mark.thorough
def test_limits_are_rates_of_a_machine():
    limits = matmul_limits(size=512)
    assert limits.keys() == {"float32", "bfloat16"}
    assert all(1.0 < limit < 1e6 for limit in limits.values())


def test_without_a_count_of_operations_there_is_no_rate():
    row = compared([1.0, 1.0], [1.0, 1.0])
    assert row["gflops"] is None
    assert row["fraction_of_limit"] is None


@pytest.mark.thorough  # processes that import JAX and PyTorch; the row of an error is tested below without them
def test_implementations_run_in_their_own_processes_and_one_that_cannot_run_has_its_reason():
    (case,) = (dataclasses.replace(case, turn_seconds=0.01) for case in cases())
    unknown = {"compile": case.implementations["ours"]}  # to the worker
    measured, failed = measure(
        [dataclasses.replace(case, implementations=case.implementations | unknown)], limit_gflops=100.0
    )
    assert (measured["case"], measured["opponent"]) == ("dropout", "eager_f32")
    assert measured["ours_seconds"] > 0
    assert measured["theirs_seconds"] > 0
    assert failed["opponent"] == "compile"
    assert "compile" in failed["error"]
    assert measured.keys() == failed.keys() - {"error"}
    assert {failed[name] for name in NUMBERS} == {None}


def test_bfloat16_is_skipped_on_a_cpu_without_it(monkeypatch):
    monkeypatch.setattr("benchmarks.measure.operand_dtype", lambda name: None)
    started = []

    class Instant:
        def __init__(self, module, implementation, **settings):
            started.append(implementation)

        def wait_until_ready(self):
            return 1.0

        def run(self, number, steps):
            return 1.0

        def close(self):
            pass

    monkeypatch.setattr("benchmarks.measure.Worker", Instant)
    case = Case("a", {OURS: cases()[0].implementations[OURS], "eager_bf16": cases()[0].implementations[OURS]}, turns=2)
    (row,) = measure([case], limit_gflops=1.0)
    assert started == [OURS]
    assert "no bfloat16 instructions" in row["error"]


class Mortal:
    """Workers of which one ends in its first turn; they record what was started, with the number of the first case."""

    started: ClassVar[list[tuple[str, int]]] = []
    dies: ClassVar[str] = ""

    def __init__(self, module, implementation, *, number, **settings):
        self.implementation = implementation
        self.started.append((implementation, number))

    def wait_until_ready(self):
        return 1.0

    def run(self, number, steps):
        if self.implementation == self.dies and number == 0 and steps == 3:
            raise ImplementationError(self.implementation, "out of memory")
        return 1.0

    def close(self):
        pass


@pytest.mark.parametrize("dies", [OURS, "eager_f32"])
def test_a_process_that_ends_in_a_turn_has_its_reason_and_the_other_rows_follow(monkeypatch, dies):
    monkeypatch.setattr("benchmarks.measure.Worker", Mortal)
    monkeypatch.setattr(Mortal, "started", [])
    monkeypatch.setattr(Mortal, "dies", dies)
    names = {OURS: print, "eager_f32": print, "compile": print}
    found = list(measure([Case("a", names, str(n), turns=2, steps_a_turn=3) for n in range(2)], limit_gflops=1.0))
    reason = "ours: out of memory" if dies == OURS else "out of memory"
    first = [reason, reason] if dies == OURS else [reason, None]
    assert [row.get("error") for row in found] == [*first, None, None]
    assert [row["ratio"] for row in found[2:]] == [1.0, 1.0]
    assert set(Mortal.started) == {*((name, 0) for name in names), (dies, 1)}


class Workers:
    """Workers with a clock that only they advance; they record their runs."""

    def __init__(self, monkeypatch, seconds):
        self.now, self.ran = 0.0, []
        monkeypatch.setattr("benchmarks.measure.time.perf_counter", lambda: self.now)
        self.workers = {key: types.SimpleNamespace(run=self.runner(key, step)) for key, step in seconds.items()}

    def runner(self, key, seconds):
        def run(number, steps):
            self.now += seconds * steps
            self.ran.append(key)
            return seconds

        return run


def test_the_faster_process_of_an_opponent_takes_turns_with_ours(monkeypatch):
    started = Workers(monkeypatch, {(OURS, True): 0.1, ("opponent", False): 0.3, ("opponent", True): 0.2})
    turns = _turns(started.workers, 0, Case("a", {}, turns=4, turn_seconds=0.4))
    assert turns == {OURS: [0.1] * 4, "opponent": [0.2] * 4}
    assert started.ran[-8:].count(("opponent", True)) == started.ran[-8:].count((OURS, True)) == 4


def test_a_very_slow_implementation_takes_fewer_turns(monkeypatch):
    started = Workers(monkeypatch, {(OURS, True): 0.1, ("opponent", False): 30.0, ("opponent", True): 31.0})
    turns = _turns(started.workers, 0, Case("a", {}))
    assert [len(taken) for taken in turns.values()] == [LEAST_TURNS] * 2
    assert started.ran.count(("opponent", True)) == 1


def test_a_case_that_torch_cannot_compile_has_its_reason(monkeypatch):
    class Broken:
        def __init__(self, module, implementation, **settings):
            self.implementation = implementation

        def wait_until_ready(self):
            if self.implementation == "compile":
                raise ImplementationError("compile", "no compiler")
            return 1.0

        def close(self):
            pass

    monkeypatch.setattr("benchmarks.compile.Worker", Broken)
    eager, compiled = rows()
    assert (eager["ratio"], eager["ours_cold_seconds"]) == (1.0, 1.0)
    assert (compiled["opponent"], compiled["error"], compiled["ratio"]) == ("compile", "no compiler", None)


def test_the_gradient_of_dropout_is_that_of_another_array(monkeypatch):
    monkeypatch.setattr("benchmarks.dropout.SHAPE", (3, 2, 5, 7))
    (case,) = cases()
    y, (dx,) = case.implementations[OURS]()()
    y, dx = np.asarray(y), np.asarray(dx)
    np.testing.assert_array_equal(y == 0.0, dx == 0.0)
    assert not np.any((y == dx) & (y != 0.0))


@pytest.mark.thorough
def test_an_implementation_of_ours_that_cannot_run_is_an_error():
    worker = Worker("dropout", "nothing", huge_pages=False)
    with contextlib.closing(worker), pytest.raises(ImplementationError, match="nothing"):
        worker.wait_until_ready()


@pytest.mark.parametrize(
    ("answer", "message"),
    [("raise SystemExit('out of memory')", "out of memory"), ("print('a warning', flush=True)", "got 'a warning'")],
)
def test_a_process_that_ends_or_prints_something_else_in_a_turn_is_an_error(tmp_path, answer, message):
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "__init__.py").touch()
    code = f"import sys\nprint('ready', 0.0, flush=True)\nfor line in sys.stdin:\n    {answer}\n"
    (tmp_path / "benchmarks" / "worker.py").write_text(code)
    worker = Worker("dropout", "eager_f32", huge_pages=False, checkout=tmp_path)
    with contextlib.closing(worker):
        worker.wait_until_ready()
        with pytest.raises(ImplementationError, match=message) as caught:
            worker.run(0, 1)
    assert caught.value.implementation == "eager_f32"


@pytest.mark.parametrize(("number", "expected"), [(0, []), (2, ["2"])])
def test_a_process_is_told_the_variant_to_begin_with(monkeypatch, number, expected):
    """Workers of older checkouts take no number."""
    commands = []

    def start(command, **settings):
        commands.append(command)
        return types.SimpleNamespace(kill=lambda: None, communicate=lambda: None)

    monkeypatch.setattr("benchmarks.measure.subprocess.Popen", start)
    Worker("dropout", OURS, number=number, huge_pages=False).close()
    assert commands == [[sys.executable, "-m", "benchmarks.worker", "dropout", OURS, *expected]]


@pytest.fixture
def checkout(tmp_path):
    """A checkout whose every step takes half a second by its own account."""
    worker = tmp_path / "benchmarks" / "worker.py"
    worker.parent.mkdir()
    (worker.parent / "__init__.py").touch()
    worker.write_text(
        "import sys\n"
        "print('ready', 0.0, flush=True)\n"
        "for line in sys.stdin:\n"
        "    print(0.5 * int(line.split()[1]), flush=True)\n"
    )
    return tmp_path


@pytest.mark.thorough
def test_the_other_implementation_runs_the_code_of_the_other_checkout(checkout):
    (case,) = (dataclasses.replace(case, turn_seconds=0.01) for case in cases())
    (row,) = measure_against([case], checkout, limit_gflops=100.0)
    assert row["theirs_seconds"] == 0.5
    assert 0 < row["ours_seconds"] < 0.5
    assert row["opponent"] == str(checkout)


@pytest.mark.thorough
def test_a_checkout_that_cannot_run_the_case_is_an_error(checkout):
    (checkout / "benchmarks" / "worker.py").write_text("raise SystemExit('no such case')")
    with pytest.raises(ImplementationError, match="no such case"):
        list(measure_against(cases(), checkout, limit_gflops=100.0))
