"""`python -m benchmarks.compiled_attention`: the memory of a layer of attention, by length, on devices that need not be
there. It needs jaxnlp[aot].

It records what the compilers say, and writes the tables of docs/accelerators.md.

`python -m benchmarks.compiled_attention --table` writes the tables again from the recorded rows.
`python -m benchmarks.compiled_attention --target NAME` prints the rows of one device as JSON.
"""

import functools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp

from benchmarks.compiled import PAGE, where
from benchmarks.markdown import with_table
from jaxnlp.cli.messages import exit_status
from jaxnlp.ops.attention import Implementation, packed_attention
from train.programs.targets import Target, find_target
from train.run.machine import short_commit

RESULTS = {
    "h100": Path("docs/results/compiled_h100_attention.json"),
    "v5e:1x1": Path("docs/results/compiled_tpu_attention.json"),
}
"""The file of each target's rows."""
LENGTHS = (1024, 2048, 4096, 8192, 16384, 32768)
ROWS, HEADS, WIDTH = 64, 2, 64
IMPLEMENTATIONS = ("flash", "vjp")
H100_BYTES = 80e9
"""XLA refuses a program that needs more than a TPU has, but not one that needs more than a GPU has."""


def attention_bytes(target: Target, length: int, implementation: str) -> int | None:
    """Temporary bytes of a layer's attention with its gradient; None = more than the TPU has.

    It is causal, in bfloat16, with dropout: projection of x [B, T, D] to q, k and v, attention, and the gradients.
    """
    on_device = jax.sharding.SingleDeviceSharding(target.devices[0])
    shape = functools.partial(jax.ShapeDtypeStruct, dtype=jnp.bfloat16, sharding=on_device)
    settings = {"causal": True, "dropout_rate": 0.1, "implementation": cast(Implementation, implementation)}

    def layer(x, w):
        qkv = (x @ w).reshape(ROWS, length, 3, HEADS, WIDTH)
        return packed_attention(qkv, dropout_key=jax.random.key(0), **settings).reshape(x.shape)

    def gradients(x, w, dy):
        return jax.vjp(layer, x, w)[1](dy)

    x, w = shape((ROWS, length, HEADS * WIDTH)), shape((HEADS * WIDTH, 3 * HEADS * WIDTH))
    with target.tracing():
        try:
            memory: Any = jax.jit(gradients).lower(x, w, x).compile().memory_analysis()
            return memory.temp_size_in_bytes
        except jax.errors.JaxRuntimeError as error:
            if "RESOURCE_EXHAUSTED" not in str(error):
                raise
            return None


def attention_rows(name: str) -> list[dict[str, Any]]:
    """A row for each length and implementation."""
    target = find_target(name)
    return [
        {"positions": length, "implementation": by, "temporary_bytes": attention_bytes(target, length, by)}
        for length in LENGTHS
        for by in IMPLEMENTATIONS
    ]


def attention_table(name: str, rows: list[dict[str, Any]]) -> str:
    """MB of temporary arrays on a target, by length and implementation."""
    found = {(row["positions"], row["implementation"]): row["temporary_bytes"] for row in rows}
    lines = [
        f"For the target {name}, compiled with jax {rows[0]['jax']}, {rows[0]['date']}, at commit "
        f"{short_commit(rows[0]['commit'])}.",
        "",
        "| positions | " + " | ".join(f"`{name}`: MB" for name in IMPLEMENTATIONS) + " |",
        "| ---: |" + " ---: |" * len(IMPLEMENTATIONS),
    ]
    for length in LENGTHS:
        sizes = (found[length, name] for name in IMPLEMENTATIONS)
        cells = (
            "more than the device has" if size is None or size > H100_BYTES else f"{size / 1e6:,.1f}" for size in sizes
        )
        lines.append(f"| {length:,} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def with_tables(page: str) -> str:
    """The page with the table of each target that has recorded rows."""
    for name, path in RESULTS.items():
        if path.exists():
            table = attention_table(name, json.loads(path.read_text(encoding="utf-8")))
            page = with_table(page, table, (f"<!-- begin {path.stem} -->", f"<!-- end {path.stem} -->"))
    return page


def main() -> None:
    if sys.argv[1:2] == ["--target"]:
        print(json.dumps(attention_rows(sys.argv[2])))
        return
    if sys.argv[1:] != ["--table"]:
        found = {}
        for name, path in RESULTS.items():  # a process each: it keeps the compiler to itself
            command = [sys.executable, "-m", "benchmarks.compiled_attention", "--target", name]
            found[path] = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
        here = where()  # before a file is changed, so that the commit is that of the programs
        for path, rows in found.items():
            path.write_text(json.dumps([row | here for row in rows], indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(exit_status(main))
