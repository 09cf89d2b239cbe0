"""`python -m benchmarks.compiled_tpu`: compiles recipes and a layer of attention for a TPU v5e that need not be there.

It needs jaxnlp[aot]. It records what the compiler says, and writes the tables of docs/accelerators.md.

`python -m benchmarks.compiled_tpu --table` writes the tables again from the recorded rows.
`python -m benchmarks.compiled_tpu --attention` prints the rows of attention as JSON.
"""

import functools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp

from benchmarks.compiled import PAGE, record, table, where
from benchmarks.markdown import with_table
from jaxnlp.cli.messages import exit_status
from jaxnlp.ops.attention import Implementation, packed_attention
from train.programs.targets import Target, find_target
from train.run.machine import short_commit

TARGET = "v5e:1x1"
RESULTS, ATTENTION = (Path(f"docs/results/compiled_tpu{name}.json") for name in ("", "_attention"))
MARKERS, ATTENTION_MARKERS = (
    (f"<!-- begin {path.stem} -->", f"<!-- end {path.stem} -->") for path in (RESULTS, ATTENTION)
)

RUNS = (
    "multi30k_transformer",
    "bert_pretrain",
    "gpt_shakespeare",
    "gpt2_small",
    "vit_cifar10",
    "names_pretrain",
    "lstm_lm_hw4",
    "chr_en_lstm",
    "conll_bilstm_crf",
    "ud_parser",
)
LENGTHS = (1024, 2048, 4096, 8192, 16384, 32768)
ROWS, HEADS, WIDTH = 64, 2, 64
IMPLEMENTATIONS = ("flash", "vjp")


def attention_bytes(target: Target, length: int, implementation: str) -> int | None:
    """Temporary bytes of a layer's attention with its gradient; None = more than the device has.

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


def attention_rows() -> list[dict[str, Any]]:
    """A row for each length and implementation."""
    target = find_target(TARGET)
    return [
        {"positions": length, "implementation": name, "temporary_bytes": attention_bytes(target, length, name)}
        for length in LENGTHS
        for name in IMPLEMENTATIONS
    ]


def attention_table(rows: list[dict[str, Any]]) -> str:
    """MB of temporary arrays by length and implementation."""
    found = {(row["positions"], row["implementation"]): row["temporary_bytes"] for row in rows}
    lines = [
        f"Compiled with jax {rows[0]['jax']}, {rows[0]['date']}, at commit {short_commit(rows[0]['commit'])}.",
        "",
        "| positions | " + " | ".join(f"`{name}`: MB" for name in IMPLEMENTATIONS) + " |",
        "| ---: |" + " ---: |" * len(IMPLEMENTATIONS),
    ]
    for length in LENGTHS:
        sizes = (found[length, name] for name in IMPLEMENTATIONS)
        cells = ("more than the TPU has" if size is None else f"{size / 1e6:,.1f}" for size in sizes)
        lines.append(f"| {length:,} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def with_tables(page: str) -> str:
    """The page with both tables."""
    page = with_table(page, table(json.loads(RESULTS.read_text(encoding="utf-8"))), MARKERS)
    return with_table(page, attention_table(json.loads(ATTENTION.read_text(encoding="utf-8"))), ATTENTION_MARKERS)


def main() -> None:
    if sys.argv[1:] == ["--attention"]:
        print(json.dumps(attention_rows()))
        return
    if sys.argv[1:] != ["--table"]:
        command = [sys.executable, "-m", "benchmarks.compiled_tpu", "--attention"]  # keeps this process without libtpu
        rows = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
        ATTENTION.write_text(json.dumps([row | where() for row in rows], indent=1) + "\n", encoding="utf-8")
        record({RESULTS: {run: (run, f"--target={TARGET}") for run in RUNS}})
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(exit_status(main))
