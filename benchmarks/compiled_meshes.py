"""`python -m benchmarks.compiled_meshes`: compiles recipes for several devices that need not be there, as
`benchmarks.compiled` does for one.

It writes the tables of docs/scaling_costs.md. `python -m benchmarks.compiled_meshes --table` writes them again from the
recorded rows and the formulas.
"""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax

from benchmarks.compiled import record
from benchmarks.markdown import with_table
from benchmarks.mesh_costs import Costs, costs, transformer_activations
from jaxnlp.cli.messages import exit_status
from jaxnlp.models.gpt import GPTConfig
from train.parallel.rules import placements
from train.recipes import load_recipe
from train.run.machine import short_commit

PAGE = Path("docs/scaling_costs.md")
LARGE, REACH = (Path(f"docs/results/compiled_{name}.json") for name in ("meshes", "v5e"))
LARGE_RUNS: dict[str, tuple[str, ...]] = {
    "gpt_1b, fsdp, 16 TPU v5e": ("gpt_1b", "--target=v5e:4x4", "--parallel=fsdp"),
    "gpt_1b, fsdp, 8 H100": ("gpt_1b", "--target=h100:8", "--parallel=fsdp"),
    "gpt_1b, fsdp, data=4,model=2, 8 H100": ("gpt_1b", "--target=h100:8", "--parallel=fsdp", "--mesh=data=4,model=2"),
    "gpt2_small, jit, 8 H100": ("gpt2_small", "--target=h100:8"),
    "gpt2_small, fsdp, 8 H100": ("gpt2_small", "--target=h100:8", "--parallel=fsdp"),
    "gpt2_small, fsdp, 8 TPU v5e": ("gpt2_small", "--target=v5e:2x4", "--parallel=fsdp"),
}
"""The names of the first table's runs, and the arguments of `jaxnlp compile`."""
REACH_RUNS: dict[str, tuple[str, ...]] = {
    **{
        name: (name, "--target=v5e:2x2")
        for name in ("gpt_shakespeare_cpu", "names_pretrain", "lstm_lm_hw4", "multi30k_transformer", "vit_digits")
    },
    "gpt_shakespeare_cpu, 256 TPUs": ("gpt_shakespeare_cpu", "--target=v5e:16x16", "--data.batch-size=256"),
}
"""The second table's: data parallel on four TPUs, and on the most of this kind."""
VOCABULARY = 50_257


def large_table(rows: list[dict[str, Any]]) -> str:
    """Steps and evaluations: memory, what crosses the links, and the estimate."""
    lines = [
        *_where(rows),
        "| run | program | GB of arguments | GB of temporaries | arrays reused | transfers (GB) | estimated ms | "
        "ms on the links | of the peak |",
        "| --- | --- | ---: | ---: | ---: | --- | ---: | ---: | ---: |",
    ]
    for row in (row for row in rows if row["program"] != "initial state"):
        donated = f"{row['reused_arrays']} of {row['donated_arrays']}" if row["donated_arrays"] else ""
        lines.append(
            f"| {row['run']} | {row['program']} | {row['argument_bytes'] / 1e9:.2f} | "
            f"{row['temporary_bytes'] / 1e9:.2f} | {donated} | {_transfers(row, 1e9)} | "
            f"{row['estimated_seconds'] * 1e3:.1f} | {row['link_seconds'] * 1e3:.1f} | {row['peak_share']:.0%} |"
        )
    return "\n".join(lines) + "\n"


def reach_table(rows: list[dict[str, Any]]) -> str:
    """All programs: the time to compile, copies and transfers."""
    lines = [
        *_where(rows),
        "| recipe | program | CPU seconds | kernels | copies | transfers (MB) |",
        "| --- | --- | ---: | ---: | ---: | --- |",
    ]
    for row in rows:
        counts = f"{row['compile_cpu_seconds']:.1f} | {row['kernels']:,} | {row['copies']}"
        lines.append(f"| {row['run']} | {row['program']} | {counts} | {_transfers(row, 1e6)} |")
    return "\n".join(lines) + "\n"


def _where(rows: list[dict[str, Any]]) -> list[str]:
    first, commits = rows[0], sorted({short_commit(row["commit"]) for row in rows})
    at = f"at commit{'s' if len(commits) > 1 else ''} {' and '.join(commits)}"
    return [f"Compiled with jax {first['jax']} on {first['device']}, {first['date']}, {at}.", ""]


def _transfers(row: dict[str, Any], unit: float) -> str:
    found = row["collectives"].items()
    return ", ".join(f"{sums['count']} {kind} ({sums['bytes'] / unit:.3g})" for kind, sums in found)


DEVICES = (1, 8, 64, 256, 1024)
MODES = {"jit": ("jit", 1), "fsdp": ("fsdp", 1), "tensor, model=4": ("tensor", 4), "fsdp, model=4": ("fsdp", 4)}
"""The modes of the table of formulas: whether they share parameters along `data`, and their devices along `model`."""


def costs_of(recipe: str, devices: int, mode: str, model_axis: int, vocabulary_size: int = VOCABULARY) -> Costs:
    """The costs of a GPT's recipe with a window on each device."""
    model = load_recipe(recipe).model
    assert isinstance(model, GPTConfig)
    vocabulary = SimpleNamespace(size=vocabulary_size, unit="tokens")
    inputs = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in model.inputs(vocabulary)]
    params = jax.eval_shape(model.build(vocabulary).init, jax.random.key(0), *inputs)["params"]
    mesh = {"data": devices // model_axis, "model": model_axis}
    positions, layers, remat = model.context_length, model.num_layers, model.compute.remat
    return costs(
        placements(model.parameter, params, mesh, fsdp=mode == "fsdp"),
        params,
        mesh,
        regathered=remat and model.compute.loops,
        of_kernels=2,
        activations=transformer_activations(model_axis, positions, model.width, layers, 2, remat=remat),
    )


def costs_table() -> str:
    """GB of the state, and GB that each device sends in a step, by recipe, mode and number of devices."""
    lines = [
        "| recipe | mode |" + "".join(f" {n:,}: state | sent |" for n in DEVICES),
        "| --- | --- |" + " ---: | ---: |" * len(DEVICES),
    ]
    for recipe in ("gpt2_small", "gpt_1b"):
        for name, (mode, model_axis) in MODES.items():
            cells = []
            for devices in DEVICES:
                found = costs_of(recipe, devices, mode, model_axis) if devices >= model_axis else None
                cells += ["", ""] if found is None else [f"{found.state / 1e9:.3g}", f"{found.sent / 1e9:.3g}"]
            lines.append(f"| {recipe} | {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def with_tables(page: str) -> str:
    """The page with all its tables."""
    page = with_table(page, costs_table(), ("<!-- begin costs -->", "<!-- end costs -->"))
    for path, table in ((LARGE, large_table), (REACH, reach_table)):
        markers = (f"<!-- begin {path.stem} -->", f"<!-- end {path.stem} -->")
        page = with_table(page, table(json.loads(path.read_text(encoding="utf-8"))), markers)
    return page


def main() -> None:
    if sys.argv[1:] != ["--table"]:
        record({REACH: REACH_RUNS, LARGE: LARGE_RUNS})
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(exit_status(main))
