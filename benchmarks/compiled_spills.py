"""`python -m benchmarks.compiled_spills`: what the kernels of flash attention take on an H100 that need not be there:
registers, and bytes that do not fit into them. It needs jaxnlp[aot].

It records what the assembler says, and writes the table of docs/accelerators.md.

`python -m benchmarks.compiled_spills --table` writes the table again from the recorded rows.
`python -m benchmarks.compiled_spills --compile` only compiles the kernels, for the assembler's lines.
"""

import functools
import itertools
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax

from benchmarks.compiled import PAGE, where
from benchmarks.markdown import with_table
from jaxnlp.cli.messages import exit_status
from jaxnlp.ops.attention import packed_attention
from train.programs.targets import find_target
from train.run.machine import short_commit

RESULTS = Path("docs/results/compiled_h100_spills.json")
MARKERS = ("<!-- begin compiled_h100_spills -->", "<!-- end compiled_h100_spills -->")
LINES_OF_ASSEMBLER = {"TF_CPP_VMODULE": "subprocess_compilation=3", "TF_CPP_MIN_LOG_LEVEL": "0"}
"""Environment with which XLA prints them."""
KERNEL = re.compile(
    r"Compiling entry function '(?P<name>\S+)'.*\n.*\n"
    r".*?(?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads\n"
    r".*?Used (?P<registers>\d+) registers"
)
CASE = "case "
WIDTHS = {"bfloat16": (16, 32, 64, 80, 128), "float32": (16, 32, 64)}
"""Of a head, by type."""
ROWS, LENGTH, HEADS = 16, 1024, 2


def cases() -> list[dict[str, Any]]:
    """Attention with dropout or without, causal or with a mask of keys."""
    return [
        {"width": width, "dtype": dtype, "dropout_rate": rate, "causal": causal}
        for dtype, widths in WIDTHS.items()
        for width, rate, causal in itertools.product(widths, (0.0, 0.1), (True, False))
    ]


def compile_cases() -> None:
    """Compiles attention with its gradient for each case, after a line that names the case."""
    target = find_target("h100")
    on_device = jax.sharding.SingleDeviceSharding(target.devices[0])
    for case in cases():
        print(f"{CASE}{json.dumps(case)}", file=sys.stderr, flush=True)
        shape = functools.partial(jax.ShapeDtypeStruct, sharding=on_device)
        qkv = shape((ROWS, LENGTH, 3, HEADS, case["width"]), case["dtype"])
        dy = shape((ROWS, LENGTH, HEADS, case["width"]), case["dtype"])
        mask = None if case["causal"] else shape((ROWS, 1, 1, LENGTH), bool)

        def gradients(qkv, mask, dy, causal=case["causal"], rate=case["dropout_rate"]):
            settings = {"causal": causal, "dropout_rate": rate, "dropout_key": jax.random.key(0) if rate else None}
            attend = functools.partial(packed_attention, attention_mask=mask, implementation="flash", **settings)
            y, transposed = jax.vjp(attend, qkv)
            return y, transposed(dy)

        with target.tracing():
            jax.jit(gradients).lower(qkv, mask, dy).compile()


def rows_of(printed: str) -> list[dict[str, Any]]:
    """A row for each case: the most registers and the most spilled bytes of one of its kernels of attention.

    Raises: ValueError for a case without such a kernel.
    """
    found = []
    for part in printed.split(CASE)[1:]:
        case, _, lines = part.partition("\n")
        kernels = [kernel for kernel in KERNEL.finditer(lines) if "flash" in kernel["name"]]
        if not kernels:
            raise ValueError(f"the assembler printed nothing of a kernel of attention for {case}")
        row = {
            "kernels": len(kernels),
            "registers": max(int(kernel["registers"]) for kernel in kernels),
            "spilled_bytes": max(max(int(kernel["stores"]), int(kernel["loads"])) for kernel in kernels),
        }
        found.append(json.loads(case) | row)
    return found


def table(rows: list[dict[str, Any]]) -> str:
    """The most registers and spilled bytes of a kernel, by type, width and dropout."""
    first = rows[0]
    lines = [
        f"For the target h100, compiled with jax {first['jax']}, {first['date']}, at commit "
        f"{short_commit(first['commit'])}.",
        "",
        "| type | width of a head | dropout | mask | registers | bytes spilled |",
        "| --- | ---: | ---: | --- | ---: | ---: |",
    ]
    lines += [
        f"| {row['dtype']} | {row['width']} | {row['dropout_rate']} | {'causal' if row['causal'] else 'of keys'} | "
        f"{row['registers']} | {row['spilled_bytes']} |"
        for row in rows
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    if sys.argv[1:] == ["--compile"]:
        compile_cases()
        return
    if sys.argv[1:] != ["--table"]:
        command = [sys.executable, "-m", "benchmarks.compiled_spills", "--compile"]
        environment = os.environ | LINES_OF_ASSEMBLER
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True, env=environment, check=True)
        here = where()
        rows = [row | here for row in rows_of(done.stderr)]
        RESULTS.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(with_table(page, table(json.loads(RESULTS.read_text(encoding="utf-8"))), MARKERS), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(exit_status(main))
