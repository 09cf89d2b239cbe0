"""`python -m benchmarks [CASE ...] [--json FILE]`: speed beside PyTorch, both in one run on one machine."""

import argparse
import datetime
import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import jax
from rich.console import Console
from rich.table import Table

from benchmarks.case import Case
from benchmarks.measure import matmul_limit, measure
from train.folder import device_name, write_json

MODULES = (
    "gpt_names",
    "lstm_lm",
    "bert_finetune",
    "attention",
    "cross_entropy",
    "dropout",
    "generate",
    "compile",
    "gpt_shakespeare_cpu",
)


def cases_of(module: str) -> list[Case]:
    """The cases of `benchmarks/<module>.py`."""
    return importlib.import_module(f"benchmarks.{module}").cases()


def rows_of(module: str, limit_gflops: float) -> Iterator[dict]:
    """The rows of all cases of `benchmarks/<module>.py`, which may have a function `rows` of its own."""
    own = getattr(importlib.import_module(f"benchmarks.{module}"), "rows", None)
    if own is not None:
        yield from own()
        return
    for case in cases_of(module):
        yield from measure(module, case, limit_gflops=limit_gflops)


def main() -> int:
    """Exit status: 0 done, 2 a wrong command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of: {', '.join(MODULES)}; none = all")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    arguments = parser.parse_args()
    unknown = [case for case in arguments.cases if case not in MODULES]
    if unknown:
        parser.error(f"no case {', '.join(unknown)}; there are: {', '.join(MODULES)}")
    try:
        import torch
    except ImportError:
        parser.error("the benchmarks need PyTorch: pip install -e '.[dev]'")

    if arguments.json is not None:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
    console = Console()
    limit = matmul_limit()
    console.print(f"{device_name()}: {limit:.0f} GFLOP/s in float32 matrix products", highlight=False)
    where = {
        "device": f"{device_name()} at {limit:.0f} GFLOP/s, {len(os.sched_getaffinity(0))} cores",
        "date": datetime.date.today().isoformat(),
        "versions": f"jax {jax.__version__}, PyTorch {torch.__version__}",
    }
    rows = []
    for module in arguments.cases or MODULES:
        for row in rows_of(module, limit):
            console.print(summary(row), highlight=False)
            rows.append(row | where)
            if arguments.json is not None:  # after every row: a suite that is interrupted keeps what it has measured
                write_json(arguments.json, rows)
    console.print(table(rows))
    return 0


def summary(row: dict) -> str:
    """A row as one line."""
    if "error" in row:
        return f"{row['case']} beside {row['opponent']}: not measured, {row['error']}"
    return f"{row['case']} beside {row['opponent']}: {row['ratio']:.2f} times as fast"


def table(rows: list[dict]) -> Table:
    """The rows to look at: seconds a step, ratio theirs / ours."""
    columns = ("case", "opponent", "ours (ms)", "theirs (ms)", "ratio", "spread", "GFLOP/s", "of the limit")
    found = Table(*columns)
    for row in rows:
        if "error" in row:
            found.add_row(row["case"], row["opponent"], "", "", row["error"][:40])
            continue
        gflops, fraction = row.get("gflops"), row.get("fraction_of_limit")
        found.add_row(
            row["case"],
            row["opponent"],
            f"{row['ours_seconds'] * 1e3:.3g}",
            f"{row['theirs_seconds'] * 1e3:.3g}",
            f"{row['ratio']:.2f}",
            f"{row.get('spread', 0.0):.0%}",
            "" if gflops is None else f"{gflops:.0f}",
            "" if fraction is None else f"{fraction:.2f}",
        )
    return found


if __name__ == "__main__":
    sys.exit(main())
