"""`python -m benchmarks.compiled_at_once` compiles a step of three runs at once, and one of a single run, for an H100
that need not be there. It needs jaxnlp[aot].

The command records the kernels of each program and their estimated time, and writes the table of docs/training.md. It
has no LSTM: a single run computes LSTMs by cuDNN, which cannot be compiled without a GPU.

`python -m benchmarks.compiled_at_once --table` writes the table again from the recorded rows.
"""

import json
import sys
from pathlib import Path
from typing import Any

import jax

from benchmarks.at_once import RUNS
from benchmarks.compiled import where
from benchmarks.markdown import with_table
from jaxnlp.cli.messages import exit_status
from jaxnlp.ops.compiler_options import jit_for
from train.at_once import step_of_all
from train.compile import compiled
from train.config import update
from train.parallel import mesh_parallel
from train.programs.of_run import RunProgram, programs_of
from train.programs.targets import Target, find_target
from train.recipes import load_recipe
from train.run.device import for_device
from train.run.init_from import begin
from train.run.machine import short_commit
from train.run.setup import set_up

PAGE, RESULTS = Path("docs/training.md"), Path("docs/results/compiled_h100_at_once.json")
MARKERS = ("<!-- begin compiled_h100_at_once -->", "<!-- end compiled_h100_at_once -->")
RECIPES = ("text_cnn", "vit_digits", "additions")


def row_of(recipe: str, target: Target) -> dict[str, Any]:
    """The kernels and the estimated seconds of both programs."""
    device, layout = target.devices[0], mesh_parallel("jit", target.devices)
    with target.tracing():
        configs = [for_device(update(load_recipe(recipe), seed=seed), device) for seed in range(RUNS)]
        setups = [set_up(begin(config)) for config in configs]
        alone = next(program for program in programs_of(setups[0], layout) if program.name.startswith("step"))
        state, batch = alone.arguments
        states = jax.tree.map(lambda x: jax.ShapeDtypeStruct((RUNS, *x.shape), x.dtype, sharding=x.sharding), state)
        program = jit_for(device, step_of_all(setups), donate_argnums=0)
        at_once = RunProgram("at once", program, (states, [batch] * RUNS))
        found = {name: compiled(one, target) for name, one in (("alone", alone), ("at_once", at_once))}
    counted = ("kernels", "estimated_seconds")
    return {"run": recipe, "runs": RUNS} | {f"{name}_{key}": row[key] for name, row in found.items() for key in counted}


def ratio(row: dict[str, Any]) -> float:
    """How many times as long as the step of all runs a step of each takes, by the estimate."""
    return row["runs"] * row["alone_estimated_seconds"] / row["at_once_estimated_seconds"]


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as a Markdown table."""
    first = rows[0]
    lines = [
        f"For the target h100, compiled with jax {first['jax']}, {first['date']}, at commit "
        f"{short_commit(first['commit'])}.",
        "",
        f"| recipe | kernels of a step | of {RUNS} runs at once | estimated ms of {RUNS} steps | at once | ratio |",
        "| --- |" + " ---: |" * 5,
    ]
    lines += [
        f"| `{row['run']}` | {row['alone_kernels']:,} | {row['at_once_kernels']:,} | "
        f"{row['runs'] * row['alone_estimated_seconds'] * 1e3:.2f} | {row['at_once_estimated_seconds'] * 1e3:.2f} | "
        f"{ratio(row):.1f} |"
        for row in rows
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    if sys.argv[1:] != ["--table"]:
        target = find_target("h100")
        rows = [row_of(recipe, target) for recipe in RECIPES]
        here = where()
        RESULTS.write_text(json.dumps([row | here for row in rows], indent=1) + "\n", encoding="utf-8")
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(with_table(page, table(json.loads(RESULTS.read_text(encoding="utf-8"))), MARKERS), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(exit_status(main))
