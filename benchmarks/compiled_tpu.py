"""`python -m benchmarks.compiled_tpu`: compiles recipes for a TPU v5e that need not be there. It needs jaxnlp[aot].

It records what the compiler says, and writes the table of docs/accelerators.md.

`python -m benchmarks.compiled_tpu --table` writes the table again from the recorded rows.
"""

import json
import sys
from pathlib import Path

from benchmarks.compiled import PAGE, record, table
from benchmarks.markdown import with_table
from jaxnlp.cli.messages import exit_status

TARGET = "v5e:1x1"
RESULTS = Path("docs/results/compiled_tpu.json")
MARKERS = (f"<!-- begin {RESULTS.stem} -->", f"<!-- end {RESULTS.stem} -->")

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


def main() -> None:
    if sys.argv[1:] != ["--table"]:
        record({RESULTS: {run: (run, f"--target={TARGET}") for run in RUNS}})
    page = PAGE.read_text(encoding="utf-8")
    rows = json.loads(RESULTS.read_text(encoding="utf-8"))
    PAGE.write_text(with_table(page, table(rows), MARKERS), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(exit_status(main))
