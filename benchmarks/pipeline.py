"""`python -m benchmarks.pipeline`: how fast processes make the batches of a recipe, next to its step on an H100.

The step is the estimate of `benchmarks.compiled`. The host keeps up if it makes batches faster than the device uses
them; twice as fast leaves room for other work. It writes the table of docs/accelerators.md.
"""

import contextlib
import datetime
import itertools
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.compiled import PAGE
from benchmarks.compiled import RESULTS as COMPILED
from benchmarks.markdown import with_table
from jaxnlp.cli.messages import exit_status
from train.config import update
from train.recipes import load_recipe
from train.run.machine import commit, device_name, short_commit

RESULTS = Path("docs/results/pipeline.json")
MARKERS = ("<!-- begin pipeline -->", "<!-- end pipeline -->")
RUNS = ("gpt_shakespeare", "multi30k_transformer", "names_pretrain_a5", "awd_lstm", "vit_cifar10")
WARM_UP, BATCHES = 20, 600
EPOCHS = 2
"""That each process makes while the time is taken; before, each makes one."""
WORKERS = (0, 2, 8)
"""`--data.num-workers`; 0 = the process that trains makes the batches."""


def seconds_a_batch(recipe: str, workers: int) -> float:
    """Mean seconds for a batch as on a GPU, after the first ones, over at least `BATCHES`."""
    config = update(load_recipe(recipe), **{"data.few_lengths": True})
    batches: Any = iter(config.data.load(config.seed).with_workers(workers).train)
    with contextlib.closing(batches):
        _read(batches, WARM_UP, epochs=workers)
        started = time.perf_counter()
        count = _read(batches, BATCHES, epochs=(1 + EPOCHS) * workers)
        return (time.perf_counter() - started) / count


def _read(batches: Any, least: int, *, epochs: int) -> int:
    """Reads at least this many batches, and all up to an epoch. Returns: their number."""
    count = 0
    while count < least or batches.get_state()["epoch"] < epochs:
        dict(next(batches))  # a lazy batch is made when it is read
        count += 1
    return count


def rows() -> list[dict[str, Any]]:
    """A row for each recipe and number of workers: seconds of a batch and of the fastest step, and how many batches are
    made in a step."""
    steps: dict[str, list[float]] = {}
    for row in json.loads(COMPILED.read_text(encoding="utf-8")):
        if row["program"].startswith("step "):
            steps.setdefault(row["run"], []).append(row["estimated_seconds"])
    found = []
    for recipe, workers in itertools.product(RUNS, WORKERS):
        batch, step = seconds_a_batch(recipe, workers), min(steps[recipe])
        row = {"run": recipe, "workers": workers, "batch_seconds": batch, "step_seconds": step, "ratio": step / batch}
        found.append(row)
    where = {
        "device": device_name(),
        "cores": os.cpu_count(),
        "date": datetime.date.today().isoformat(),
        "commit": commit(),
    }
    return [row | where for row in found]


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as a Markdown table, with the machine."""
    where = rows[0]
    lines = [
        f"Measured on {where['cores']} cores of {where['device']}, {where['date']}, at commit "
        f"{short_commit(where['commit'])}.",
        "",
        "| run | workers | ms for a batch | estimated ms for a step on an H100 | batches in a step |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    lines += [
        f"| {row['run']} | {row['workers']} | {row['batch_seconds'] * 1e3:.2f} | {row['step_seconds'] * 1e3:.1f} | "
        f"{row['ratio']:.1f} |"
        for row in rows
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    found = rows()
    RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(with_table(page, table(found), MARKERS), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(exit_status(main))
