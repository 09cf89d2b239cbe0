"""The table of batches in docs/accelerators.md."""

import itertools
import json
import types

import pytest

from benchmarks import pipeline
from benchmarks.markdown import with_table
from benchmarks.pipeline import MARKERS, PAGE, RESULTS, RUNS, WORKERS, rows, table


def test_the_page_has_the_table_of_the_recorded_rows():
    recorded = json.loads(RESULTS.read_text(encoding="utf-8"))
    page = PAGE.read_text(encoding="utf-8")
    assert page == with_table(page, table(recorded), MARKERS)
    assert [(row["run"], row["workers"]) for row in recorded] == [*itertools.product(RUNS, WORKERS)]


class Data:
    """Data with a clock that only it advances: batches take a second each until each worker has made an epoch of 25,
    and then 4 ms."""

    def __init__(self, monkeypatch):
        self.now, self.made, self.workers = 0.0, 0, []
        monkeypatch.setattr(pipeline.time, "perf_counter", lambda: self.now)

    def load(self, seed):
        assert seed == 3
        return types.SimpleNamespace(with_workers=self.with_workers)

    def with_workers(self, number):
        self.workers.append(number)
        self.made = 0
        return types.SimpleNamespace(train=self)

    def __iter__(self):
        return self

    def __next__(self):
        self.made += 1
        self.now += 1.0 if self.made <= max(pipeline.WARM_UP, 25 * self.workers[-1]) else 0.004
        return {}

    def get_state(self):
        return {"epoch": self.made // 25}

    def close(self):
        pass


def test_batches_as_on_a_gpu_after_the_first_ones_are_compared_with_the_fastest_step(monkeypatch, tmp_path):
    data, changes = Data(monkeypatch), []
    programs = [("step 80x70", 0.02), ("step 80x71", 0.01), ("evaluation 80x70", 0.001)]
    compiled = [{"run": "awd_lstm", "program": name, "estimated_seconds": seconds} for name, seconds in programs]
    compiled.append({"run": "another", "program": "step 1x1", "estimated_seconds": 0.002})
    monkeypatch.setattr(pipeline, "COMPILED", tmp_path / "compiled.json")
    pipeline.COMPILED.write_text(json.dumps(compiled))
    monkeypatch.setattr(pipeline, "RUNS", ("awd_lstm",))
    monkeypatch.setattr(pipeline, "load_recipe", lambda name: types.SimpleNamespace(data=data, seed=3, name=name))
    monkeypatch.setattr(pipeline, "update", lambda config, **fields: changes.append((config.name, fields)) or config)
    row, *others = rows()
    assert data.workers == [*WORKERS]
    assert len(others) == len(WORKERS) - 1
    assert changes == [("awd_lstm", {"data.few_lengths": True})] * len(WORKERS)
    assert all(one["batch_seconds"] == pytest.approx(0.004) for one in (row, *others))
    assert row["step_seconds"] == 0.01
    assert row["ratio"] == pytest.approx(2.5)
    assert "| awd_lstm | 0 | 4.00 | 10.0 | 2.5 |" in table([row | {"commit": "0" * 40}])
