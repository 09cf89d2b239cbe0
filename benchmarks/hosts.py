"""`python -m benchmarks.hosts`: how long one of many hosts takes to make its rows of the batches that all share.

Each host has eight rows of a batch, so the batch grows with the hosts. It writes the table of docs/scaling.md.
"""

import datetime
import itertools
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.markdown import with_table
from jaxnlp.cli.messages import exit_status
from train.config import update
from train.parallel.rows import places, rows_at
from train.recipes import load_recipe
from train.run.machine import commit, device_name, short_commit

PAGE, RESULTS = Path("docs/scaling.md"), Path("docs/results/hosts.json")
MARKERS = ("<!-- begin hosts -->", "<!-- end hosts -->")
RUNS = {
    "gpt_shakespeare": "windows of a text",
    "bert_pretrain": "masked windows",
    "lstm_lm_hw4": "windows of shuffled articles",
    "names_pretrain_a5": "corrupted documents, sorted by length",
    "vit_cifar10": "mixed images",
}
"""Recipes, and what their batches are."""
HOSTS = (1, 8, 64, 1000)
ROWS = 8
"""Of each host."""
BATCHES = 16
"""That are timed: as many as are sorted by length together."""


def seconds_a_batch(batches: Iterator[Any], hosts: int) -> float:
    """Mean seconds of the first host for its rows of a batch."""
    started = time.perf_counter()
    for batch in itertools.islice(batches, BATCHES):
        rows_at(batch, places(batch, 1, hosts)[:ROWS])
    return (time.perf_counter() - started) / BATCHES


def rows() -> list[dict[str, Any]]:
    """A row for each recipe: seconds to read the files, and for a batch by the number of hosts."""
    found = []
    for recipe in RUNS:
        seconds: dict[str, float] = {}
        for hosts in HOSTS:
            config = update(load_recipe(recipe), **{"data.batch_size": ROWS * hosts, "data.few_lengths": True})
            started = time.perf_counter()
            corpus = config.data.load(config.seed)
            read = time.perf_counter() - started
            seconds[str(hosts)] = seconds_a_batch(iter(corpus.train), hosts)
        found.append({"run": recipe, "read_seconds": read, "batch_seconds": seconds})
    where = {"device": device_name(), "date": datetime.date.today().isoformat(), "commit": commit()}
    return [row | where for row in found]


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as a Markdown table, with the machine."""
    where = rows[0]
    lines = [
        f"Measured in one process on {where['device']}, {where['date']}, at commit {short_commit(where['commit'])}.",
        "",
        "| recipe | batches | s to read |" + "".join(f" {n:,} host{'s' if n > 1 else ''}: ms |" for n in HOSTS),
        "| --- | --- | ---: |" + " ---: |" * len(HOSTS),
    ]
    for row in rows:
        cells = [f"{row['batch_seconds'][str(n)] * 1e3:.2f}" for n in HOSTS]
        lines.append(f"| {row['run']} | {RUNS[row['run']]} | {row['read_seconds']:.1f} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    found = rows()
    RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), table(found), MARKERS), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(exit_status(main))
