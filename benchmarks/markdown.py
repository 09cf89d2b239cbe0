"""`python -m benchmarks.markdown`: the rows in docs/results/benchmarks*.json as tables of docs/benchmarks.md."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from benchmarks.__main__ import COLUMNS, cells, full_name
from train.run.machine import short_commit

RESULTS = Path("docs/results")
PAGE = Path("docs/benchmarks.md")
BEGIN, END = "<!-- begin table -->", "<!-- end table -->"


TITLES = {
    "benchmarks_bfloat16": "With bfloat16 instructions",
    "benchmarks_bfloat16_more": "With bfloat16 instructions: encoder-decoder, TextCNN, Vision Transformer",
    "benchmarks_bfloat16_search": "With bfloat16 instructions: beam search, CRF, parser",
    "benchmarks_trees": "Parsers, on another processor with bfloat16 instructions",
    "benchmarks_float32": "Without bfloat16 instructions, first run",
    "benchmarks_float32_again": "Without bfloat16 instructions, second run",
    "benchmarks_foreign": "Weights of Transformers",
    "benchmarks_answers": "The answer to one text, and the first answer of a process",
    "benchmarks_at_once": "Three runs at once",
    "benchmarks_gpu": "On a GPU",
    "benchmarks_against_717ce63": "Next to an older commit of jaxnlp",
    "benchmarks_against_9e239c3": "Next to the commit before the work on accelerators",
    "benchmarks_against_3e52176": "Next to the commit before the change of all dropout masks",
}
"""The heading of each file, in the order of the page; another file follows with its own name as the heading."""


def markdown(rows: list[dict[str, Any]]) -> str:
    """The rows as Markdown tables, one for each measurement, with its device, its versions and its commit.

    Rows without numbers are named below their table.
    """
    measurements: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        measurements[row["device"], row["date"], row["versions"], row.get("commit")].append(row)
    return "\n".join(_table(where, found) for where, found in measurements.items())


def _table(where: tuple[Any, ...], rows: list[dict[str, Any]]) -> str:
    device, date, versions, commit = where
    lines = [
        f"Measured on {device}, {date}, with {versions}{f', at commit {short_commit(commit)}' if commit else ''}.",
        "",
    ]
    measured = [row for row in rows if "error" not in row]
    if measured:
        lines += [f"| case | opponent | {' | '.join(COLUMNS)} |", "| --- | --- |" + " ---: |" * len(COLUMNS)]
        lines += [f"| {full_name(row)} | `{row['opponent']}` | {' | '.join(cells(row))} |" for row in measured]
        lines.append("")
    missing: dict[tuple[str, str], list[str]] = defaultdict(list)
    for row in rows:
        if "error" in row:
            missing[row["opponent"], row["error"]].append(full_name(row))
    for (opponent, reason), names in missing.items():
        lines += [f"`{opponent}` was not measured: {reason}. Cases: {'; '.join(names)}.", ""]
    return "\n".join(lines)


def with_table(page: str, table: str, markers: tuple[str, str] = (BEGIN, END)) -> str:
    """The page with the table between these markers replaced."""
    begin, end = markers
    before, _, rest = page.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n{table}{end}{after}"


def recorded() -> str:
    """All recorded rows, with a heading for each file."""
    paths = {path.stem: path for path in sorted(RESULTS.glob("benchmarks*.json"))}
    order = [name for name in TITLES if name in paths] + [name for name in paths if name not in TITLES]
    tables = [f"### {TITLES.get(name, name)}\n\n{markdown(json.loads(paths[name].read_text()))}" for name in order]
    return "\n" + "\n".join(tables)


def main() -> None:
    PAGE.write_text(with_table(PAGE.read_text(), recorded()))


if __name__ == "__main__":
    main()
