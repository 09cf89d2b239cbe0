"""`python -m benchmarks [CASE ...] [--json FILE]`: speed beside PyTorch, both in one run on one machine."""

import argparse
import importlib
import os
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from train.folder import device_name, write_json

CASES = ("gpt_shakespeare_cpu",)


def main() -> int:
    """Exit status: 0 done, 2 a wrong command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of: {', '.join(CASES)}; none = all")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    arguments = parser.parse_args()
    unknown = [case for case in arguments.cases if case not in CASES]
    if unknown:
        parser.error(f"no case {', '.join(unknown)}; there are: {', '.join(CASES)}")

    import torch

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    rows = [row for case in arguments.cases or CASES for row in importlib.import_module(f"benchmarks.{case}").run()]
    table = Table("case", "opponent", "ours (s)", "theirs (s)", "ratio", title=f"on {device_name()}")
    for row in rows:
        table.add_row(
            row["case"],
            row["opponent"],
            f"{row['ours_seconds']:.3g}",
            f"{row['theirs_seconds']:.3g}",
            f"{row['ratio']:.2f}",
        )
    Console().print(table)
    if arguments.json is not None:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        write_json(arguments.json, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
