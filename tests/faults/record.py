"""What the programs of this folder wrote with `--json`, as docs/results/fuzzing.json and the table of
docs/reliability.md.

    python -m tests.faults.record FILE...

Rows of the same kind are replaced. Counts of a reader in several files are added up.
"""

import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.markdown import with_table

PAGE, RESULTS = Path("docs/reliability.md"), Path("docs/results/fuzzing.json")
MARKERS = ("<!-- begin fuzzing -->", "<!-- end fuzzing -->")
FILES = {
    "plain": "changed files, {} readers of single files",
    "folders": "changed files in folders of Transformers, {} readers",
    "run": "changed files of a run, {} files",
    "coverage": "changed files guided by coverage, {} readers",
}
"""How the table names each kind of reader; {} is their number."""
NAMES = {"": "nothing", "1" + "0" * 9: "10^9", "1" + "0" * 18: "10^18"}
"""How the table names values that it cannot show."""
Row = dict[str, Any]


def kind(row: Row) -> tuple[str, str]:
    """What is replaced by rows of the same kind."""
    return row["kind"], row.get("files", "")


def as_rows(written: Sequence[Row]) -> list[Row]:
    """What a program wrote, as rows of the results: one for all options."""
    if not written or "option" not in written[0]:
        return [*written]
    counts = Counter(outcome["kind"] for outcome in written)
    return [
        {
            "kind": "options",
            "recipes": list(dict.fromkeys(outcome["recipe"] for outcome in written)),
            "options": len({(outcome["recipe"], outcome["option"]) for outcome in written}),
            "values": list(dict.fromkeys(outcome["value"] for outcome in written)),
            "cases": len(written),
            **{name: counts[name] for name in ("accepted", "refused", "find")},
            "slowest_seconds": max(outcome["seconds"] for outcome in written),
        }
    ]


def added(rows: Sequence[Row]) -> list[Row]:
    """The rows, with those of one reader as one row."""
    sums: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        name = (*kind(row), row.get("reader", row.get("counterpart")))
        before = sums.get(name, {})
        counts = {
            key: max(before[key], value) if key.startswith("slowest") else before[key] + value
            for key, value in row.items()
            if before and isinstance(value, int | float)
        }
        sums[name] = row | {key: round(value, 3) for key, value in counts.items()}
    return [*sums.values()]


def table(rows: Sequence[Row]) -> str:
    """The rows as a Markdown table, with a sentence on the slowest read."""
    lines = ["| what was tried | count | result |", "| --- | ---: | --- |"]
    fuzzed = [row for row in rows if row["kind"] == "fuzz"]
    for files, words in FILES.items():
        of_kind = [row for row in fuzzed if row["files"] == files]
        inputs, read, refused, finds = (
            sum(row[name] for row in of_kind) for name in ("inputs", "read", "refused", "finds")
        )
        result = f"{read:,} read, {refused:,} refused, {finds or 'no'} other error{'s' if finds > 1 else ''}"
        lines += [f"| {words.format(len(of_kind))} | {inputs:,} | {result} |"] * bool(of_kind)
    compared = [row for row in rows if row["kind"] == "differential"]
    if compared:
        *names, last = (row["counterpart"] for row in compared)
        inputs, different = (sum(row[name] for row in compared) for name in ("inputs", "differences"))
        result = f"{different or 'no'} difference{'s' if different > 1 else ''}"
        lines.append(f"| valid files next to {', '.join(names)} and {last} | {inputs:,} | {result} |")
    for row in (row for row in rows if row["kind"] == "options"):
        values = [NAMES.get(value, value) for value in row["values"]]
        result = f"{row['accepted']} accepted, {row['refused']:,} refused in one line"
        result += f", {row['find']} otherwise" if row["find"] else ""
        words = f"{row['options']} options with {', '.join(values[:-1])} and {values[-1]}"
        lines.append(f"| {words} | {row['cases']:,} | {result} |")
    if fuzzed:
        slowest = max(fuzzed, key=lambda row: row["slowest_seconds"])
        total = sum(row["inputs"] for row in fuzzed)
        lines += ["", f"These are {total:,} changed files. The slowest read took {slowest['slowest_seconds']:.2f} s of"]
        lines[-1] += f" CPU time: {slowest['reader']}."
    return "\n".join(lines) + "\n"


def main(paths: Sequence[str]) -> int:
    new = [row for path in paths for row in as_rows(json.loads(Path(path).read_text(encoding="utf-8")))]
    replaced = {kind(row) for row in new}
    kept = [row for row in json.loads(RESULTS.read_text(encoding="utf-8")) if kind(row) not in replaced]
    order = [*((name, files) for name in ("fuzz",) for files in FILES), ("differential", ""), ("options", "")]
    rows = sorted([*kept, *added(new)], key=lambda row: order.index(kind(row)))
    RESULTS.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), table(rows), MARKERS), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
