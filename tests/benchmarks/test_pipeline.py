"""The table of batches in docs/accelerators.md."""

import json
import types

import pytest

from benchmarks import pipeline
from benchmarks.markdown import with_table
from benchmarks.pipeline import MARKERS, PAGE, RESULTS, STEPS, WORKERS, measured, record, runs, table


def test_the_page_has_the_table_of_the_recorded_rows():
    recorded, steps = (json.loads(path.read_text(encoding="utf-8")) for path in (RESULTS, STEPS))
    page = PAGE.read_text(encoding="utf-8")
    assert page == with_table(page, table(recorded, steps), MARKERS)
    assert [row["run"] for row in recorded] == [row["run"] for row in steps] == runs()


class Data:
    """Data with a clock that only it advances: batches take a second each until each worker has made an epoch of 25,
    and then 4 ms."""

    def __init__(self, monkeypatch):
        self.now, self.made, self.workers = 0.0, 0, []
        monkeypatch.setattr(pipeline.time, "perf_counter", lambda: self.now)

    def load(self, seed, processor):
        assert (seed, processor) == (3, "tokens")
        return types.SimpleNamespace(with_workers=self.with_workers)

    def with_workers(self, number):
        self.workers.append(number)
        self.made = 0
        return types.SimpleNamespace(train=self)

    def __iter__(self):
        return self

    def __next__(self):
        self.made += 1
        self.now += 1.0 if self.made <= max(pipeline.WARM_UP, 25 * max(self.workers[-1], 1)) else 0.004
        return {"part": {"loss_mask": range(2)}, "other": {"loss_mask": range(3)}}

    def get_state(self):
        return {"epoch": self.made // 25}

    def close(self):
        pass


def test_whole_epochs_of_batches_as_on_a_gpu_are_measured_after_the_first_ones(monkeypatch):
    data, changes = Data(monkeypatch), []
    monkeypatch.setattr(pipeline, "config_of", lambda name: types.SimpleNamespace(data=data, seed=3, name=name))
    monkeypatch.setattr(pipeline, "update", lambda config, **fields: changes.append((config.name, fields)) or config)
    monkeypatch.setattr(pipeline, "begin", lambda config: types.SimpleNamespace(processor="tokens"))
    row = measured("awd_lstm")
    assert data.workers == [*WORKERS]
    assert changes == [("awd_lstm", {"data.few_lengths": True})]
    assert row == {"examples": 5.0, "batch_seconds": {str(n): pytest.approx(0.004) for n in WORKERS}}
    where = {"run": "awd_lstm", "cores": 2, "device": "CPU", "date": "", "commit": "0" * 40}
    shown = table([where | row], [{"run": "awd_lstm", "estimated_seconds": 0.01}])
    assert shown.endswith("| awd_lstm | 1,250 | 1,250 | 1,250 | 10.0 | 2.5 |\n")


def test_results_are_kept_in_the_order_of_the_recipes(tmp_path):
    first, *_, last = runs()
    for run, seconds in ((last, 1.0), (first, 2.0), (last, 3.0)):
        record(tmp_path / "rows.json", {"run": run, "seconds": seconds})
    rows = json.loads((tmp_path / "rows.json").read_text())
    assert [tuple(row.values()) for row in rows] == [(first, 2.0), (last, 3.0)]
