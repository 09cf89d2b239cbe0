"""`python -m benchmarks.pipeline`: how fast processes make the batches of each recipe, next to its step on an H100.

The host keeps up if it makes batches faster than the device uses them; twice as fast leaves room for other work.

`python -m benchmarks.pipeline --steps` estimates the steps first; it needs jaxnlp[aot]. Both record what they find for
each recipe at once, and the first writes the table of docs/accelerators.md. Names of recipes limit them to these.
"""

import contextlib
import datetime
import importlib.metadata
import json
import os
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.answers import minilm
from benchmarks.compiled import PAGE
from benchmarks.markdown import with_table
from jaxnlp.cli.messages import exit_status
from train.compile import compiled
from train.config import TrainConfig, update
from train.parallel import mesh_parallel
from train.programs.of_run import programs_of
from train.programs.targets import find_target
from train.recipes import load_recipe, recipe_names
from train.run.device import for_device
from train.run.init_from import begin
from train.run.machine import commit, device_name, short_commit
from train.run.setup import set_up

RESULTS, STEPS = Path("docs/results/pipeline.json"), Path("docs/results/pipeline_steps.json")
MARKERS = ("<!-- begin pipeline -->", "<!-- end pipeline -->")
WARM_UP, BATCHES = 20, 300
WORKERS = (0, 2, 8)
"""`--data.num-workers`; 0 = the process that trains makes the batches."""
AIM = 2.0
"""Batches that are made in a step."""


def runs() -> list[str]:
    """The recipes that need no file of the user's."""
    return [name for name in recipe_names() if not load_recipe(name).data.needs.startswith("your")]


def config_of(recipe: str) -> TrainConfig:
    """The config of a recipe; pretrained weights are those that the development tools install."""
    config = load_recipe(recipe)
    return config if config.init_from is None else update(config, init_from=minilm())


def fastest_step(recipe: str) -> float:
    """The estimated seconds of a recipe's step on an H100, for its fastest batch."""
    target = find_target("h100")
    layout = mesh_parallel("jit", target.devices, None)
    with target.tracing():
        setup = set_up(begin(for_device(config_of(recipe), target.devices[0])))
        steps = [program for program in programs_of(setup, layout) if program.name.startswith("step")]
        return min(compiled(program, target)["estimated_seconds"] for program in steps)


def measured(recipe: str) -> dict[str, Any]:
    """Seconds for a batch as on a GPU, by number of workers, and the mean number of examples in a batch."""
    config = update(config_of(recipe), **{"data.few_lengths": True})
    corpus = config.data.load(config.seed, begin(config).processor)
    seconds: dict[str, float] = {}
    for workers in WORKERS:
        ahead = max(workers, 1)  # each process makes an epoch ahead, or 16 batches
        batches: Any = iter(corpus.with_workers(workers).train)
        with contextlib.closing(batches):
            _read(batches, WARM_UP, epochs=ahead)
            started = time.perf_counter()
            count, examples = _read(batches, BATCHES, epochs=2 * ahead)
            seconds[str(workers)] = (time.perf_counter() - started) / count
    return {"examples": examples / count, "batch_seconds": seconds}


def _read(batches: Any, least: int, *, epochs: int) -> tuple[int, int]:
    """Reads at least this many batches, and all up to an epoch. Returns: their number, and that of their examples."""
    count = examples = 0
    while count < least or batches.get_state()["epoch"] < epochs:
        batch = dict(next(batches))  # a lazy batch is made when it is read
        count, examples = count + 1, examples + _examples(batch)
    return count, examples


def _examples(batch: dict[str, Any]) -> int:
    """The rows of a batch; of all its parts."""
    if "loss_mask" in batch:
        return len(batch["loss_mask"])
    return sum(_examples(part) for part in batch.values())


def record(path: Path, row: dict[str, Any]) -> None:
    """Adds the row of a run to a file of rows, in the order of the recipes."""
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    rows = {one["run"]: one for one in [*known, row]}
    text = json.dumps([rows[name] for name in runs() if name in rows], indent=1)
    path.write_text(text + "\n", encoding="utf-8")


def table(rows: list[dict[str, Any]], steps: list[dict[str, Any]]) -> str:
    """The rows as a Markdown table, with the machine."""
    of_step = {row["run"]: row["estimated_seconds"] for row in steps}
    devices = _each(f"{row['cores']} cores of {row['device']}" for row in rows)
    dates, commits, of_steps, jax = (
        _each(row[name] if name != "commit" else short_commit(row[name]) for row in of)
        for of, name in ((rows, "date"), (rows, "commit"), (steps, "commit"), (steps, "jax"))
    )
    lines = [
        f"Measured on {devices}, {dates}, at commit {commits}. Steps estimated by jax {jax} at commit {of_steps}.",
        "",
        "| recipe | "
        + " | ".join(f"examples a second, {workers} workers" for workers in WORKERS)
        + " | estimated ms for a step on an H100 | batches in a step, 0 workers | most batches in a step |",
        "| --- |" + " ---: |" * (len(WORKERS) + 3),
    ]
    for row in rows:
        seconds, step = row["batch_seconds"], of_step[row["run"]]
        rates = (f"{row['examples'] / seconds[str(workers)]:,.0f}" for workers in WORKERS)
        batches = f"{step / seconds['0']:.1f} | {step / min(seconds.values()):.1f}"
        lines.append(f"| {row['run']} | {' | '.join(rates)} | {step * 1e3:.1f} | {batches} |")
    return "\n".join(lines) + "\n"


def _each(values: Iterable[str]) -> str:
    return " and ".join(sorted({*values}))


def main(arguments: Sequence[str] = ()) -> None:
    names = [name for name in arguments if name != "--steps"] or runs()
    when = {"date": datetime.date.today().isoformat(), "commit": commit()}
    if "--steps" in arguments:
        when["jax"] = importlib.metadata.version("jax")
        for name in names:
            record(STEPS, {"run": name, "estimated_seconds": fastest_step(name)} | when)
        return
    where = {"device": device_name(), "cores": os.cpu_count()} | when
    for name in names:
        record(RESULTS, {"run": name} | measured(name) | where)
    found, steps = (json.loads(path.read_text(encoding="utf-8")) for path in (RESULTS, STEPS))
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(with_table(page, table(found, steps), MARKERS), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(exit_status(lambda: main(sys.argv[1:])))
