"""`python -m benchmarks.compiled`: compiles recipes for an H100 that need not be there. It needs jaxnlp[aot].

It records what the compiler says, and writes the table of docs/accelerators.md.

`python -m benchmarks.compiled --table` writes the table again from the recorded rows.
"""

import datetime
import importlib.metadata
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import jax

from benchmarks.markdown import with_table
from jaxnlp.cli.messages import exit_status
from train.run.machine import commit, device_name, short_commit

RESULTS = Path("docs/results/compiled_h100.json")
PAGE = Path("docs/accelerators.md")
DROPOUT = tuple(f"--model.{name}-dropout-rate=0.1" for name in ("embedding", "attention", "residual"))
RUNS: dict[str, tuple[str, ...]] = {
    "gpt2_small": ("gpt2_small",),
    "gpt2_small, dropout 0.1": ("gpt2_small", *DROPOUT),
    "gpt_shakespeare": ("gpt_shakespeare",),
    "multi30k_transformer": ("multi30k_transformer",),
    "names_pretrain_a5": ("names_pretrain_a5",),
    "awd_lstm": ("awd_lstm",),
    "vit_cifar10": ("vit_cifar10",),
}
"""The names of the table's runs, and the arguments of `jaxnlp compile`."""


def compiled(arguments: tuple[str, ...], text: Path) -> list[dict[str, Any]]:
    """The rows of `jaxnlp compile`, in a process of its own. Args: a text for recipes that need one."""
    given = (f"--data.path={text}",) if arguments[0] in ("gpt2_small", "gpt_1b") else ()
    command = [sys.executable, "-m", "jaxnlp", "compile", *arguments, *given, "--json"]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)


def record(tables: dict[Path, dict[str, tuple[str, ...]]]) -> None:
    """Compiles the runs of each file, and writes their rows with the versions and the machine that compiled."""
    with tempfile.TemporaryDirectory() as folder:
        text = text_of_words(Path(folder) / "text.txt")
        found = {
            path: [{"run": run, **row} for run, arguments in runs.items() for row in compiled(arguments, text)]
            for path, runs in tables.items()
        }
    here = where()  # before a file is changed, so that the commit is that of the programs
    for path, rows in found.items():
        path.write_text(json.dumps([row | here for row in rows], indent=1) + "\n", encoding="utf-8")


def where() -> dict[str, Any]:
    """The versions and the machine that compile. Call it after other processes: it keeps libtpu to this one."""
    jax.config.update("jax_platforms", "cpu")  # a plugin for a GPU fails without one
    return {
        "jax": importlib.metadata.version("jax"),
        "device": device_name(),
        "date": datetime.date.today().isoformat(),
        "commit": commit(),
    }


def text_of_words(path: Path, *, count: int = 400_000) -> Path:
    """A file of words made of digits, with enough of them for GPT-2's number of tokens."""
    path.write_text(" ".join(str(n * 7_919 % 1_000_003) for n in range(count)), encoding="utf-8")
    return path


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as a Markdown table, with the versions and the machine that compiled."""
    first = rows[0]
    lines = [
        f"Compiled with jax {first['jax']} on {first['device']}, {first['date']}, at commit "
        f"{short_commit(first['commit'])}.",
        "",
        "| run | program | CPU seconds | kernels | GB of arguments | GB of temporaries | estimated ms | of the peak |",
        "| --- | --- |" + " ---: |" * 6,
    ]
    for row in rows:
        sizes = (row["argument_bytes"] / 1e9, row["temporary_bytes"] / 1e9)
        lines.append(
            f"| {row['run']} | {row['program']} | {row['compile_cpu_seconds']:.1f} | {row['kernels']:,} | "
            f"{sizes[0]:.2f} | {sizes[1]:.2f} | {row['estimated_seconds'] * 1e3:.1f} | {row['peak_share']:.0%} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    if sys.argv[1:] != ["--table"]:
        record({RESULTS: {run: (*arguments, "--target=h100") for run, arguments in RUNS.items()}})
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(with_table(page, table(json.loads(RESULTS.read_text(encoding="utf-8")))), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(exit_status(main))
