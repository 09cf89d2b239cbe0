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
    assert all(row["commit"] and "-dirty" not in row["commit"] for row in (*recorded, *steps))


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


def test_the_table_has_the_batches_of_no_worker_and_of_the_best_number_of_workers():
    where = {"cores": 2, "device": "CPU", "date": "today", "commit": "0" * 40}
    seconds = {"awd_lstm": (0.004, 0.002, 0.01), "vit_digits": (0.01, 0.02, 0.01)}
    rows = [
        {"run": run, "examples": 5.0, "batch_seconds": dict(zip(map(str, WORKERS), of, strict=True))} | where
        for run, of in seconds.items()
    ]
    step = {"estimated_seconds": 0.01, "commit": "1" * 40 + "-dirty", "jax": "0.11.2"}
    shown = table(rows, [{"run": run} | step for run in seconds]).splitlines()
    assert shown[0] == (
        f"Measured on 2 cores of CPU, today, at commit {'0' * 12}. "
        f"Steps estimated by jax 0.11.2 at commit {'1' * 12}-dirty."
    )
    assert shown[-2:] == [
        "| awd_lstm | 1,250 | 2,500 | 500 | 10.0 | 2.5 | 5.0 |",
        "| vit_digits | 500 | 250 | 500 | 10.0 | 1.0 | 1.0 |",
    ]


def test_results_are_kept_in_the_order_of_the_recipes(tmp_path):
    first, *_, last = runs()
    for run, seconds in ((last, 1.0), (first, 2.0), (last, 3.0)):
        record(tmp_path / "rows.json", {"run": run, "seconds": seconds})
    rows = json.loads((tmp_path / "rows.json").read_text())
    assert [tuple(row.values()) for row in rows] == [(first, 2.0), (last, 3.0)]
