"""`python -m benchmarks.compiled_meshes`: compiles recipes for several devices that need not be there, as
`benchmarks.compiled` does for one.

It writes the tables of docs/scaling_costs.md. `python -m benchmarks.compiled_meshes --table` writes them again from the
recorded rows. `--reach` compiles only the second table's runs, and `--large` only the first's.
"""

import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.compiled import record
from benchmarks.markdown import with_table

PAGE = Path("docs/scaling_costs.md")
LARGE, REACH = (Path(f"docs/results/compiled_{name}.json") for name in ("meshes", "v5e"))
LARGE_RUNS = {
    "gpt_1b, fsdp, 16 TPU v5e": ("gpt_1b", "--target=v5e:4x4", "--parallel=fsdp"),
    "gpt_1b, fsdp, 8 H100": ("gpt_1b", "--target=h100:8", "--parallel=fsdp"),
    "gpt_1b, fsdp, data=4,model=2, 8 H100": ("gpt_1b", "--target=h100:8", "--parallel=fsdp", "--mesh=data=4,model=2"),
    "gpt2_small, jit, 8 TPU v5e": ("gpt2_small", "--target=v5e:2x4"),
    "gpt2_small, jit, 8 H100": ("gpt2_small", "--target=h100:8"),
    "gpt2_small, fsdp, 8 H100": ("gpt2_small", "--target=h100:8", "--parallel=fsdp"),
}
"""The names of the first table's runs, and the arguments of `jaxnlp compile`."""
REACH_RUNS = {
    name: (name, "--target=v5e:2x2")
    for name in ("gpt_shakespeare_cpu", "names_pretrain", "lstm_lm_hw4", "multi30k_transformer", "vit_digits")
}
"""The second table's: data parallel on four TPUs."""
MARKERS = {path: (f"<!-- begin {path.stem} -->", f"<!-- end {path.stem} -->") for path in (LARGE, REACH)}


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
        "| recipe | program | seconds | kernels | copies | transfers (MB) |",
        "| --- | --- | ---: | ---: | ---: | --- |",
    ]
    for row in rows:
        counts = f"{row['compile_seconds']:.1f} | {row['kernels']:,} | {row['copies']}"
        lines.append(f"| {row['run']} | {row['program']} | {counts} | {_transfers(row, 1e6)} |")
    return "\n".join(lines) + "\n"


def _where(rows: list[dict[str, Any]]) -> list[str]:
    first = rows[0]
    return [
        f"Compiled with jax {first['jax']} on {first['device']}, {first['date']}, at commit {first['commit'][:12]}.",
        "",
    ]


def _transfers(row: dict[str, Any], unit: float) -> str:
    found = row["collectives"].items()
    return ", ".join(f"{sums['count']} {kind} ({sums['bytes'] / unit:.3g})" for kind, sums in found)


TABLES = {LARGE: large_table, REACH: reach_table}


def main() -> None:
    wanted = {"--large": {LARGE}, "--reach": {REACH}, "--table": set(), "": {LARGE, REACH}}["".join(sys.argv[1:])]
    for path, runs in ((LARGE, LARGE_RUNS), (REACH, REACH_RUNS)):
        if path in wanted:
            record(runs, path)
    page = PAGE.read_text(encoding="utf-8")
    for path, table in TABLES.items():
        page = with_table(page, table(json.loads(path.read_text(encoding="utf-8"))), MARKERS[path])
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
