"""`python -m benchmarks.markdown`: the rows in docs/results/benchmarks*.json as tables of docs/benchmarks.md."""

import json
from pathlib import Path
from typing import Any

from benchmarks.__main__ import COLUMNS, cells, full_name

RESULTS = Path("docs/results")
PAGE = Path("docs/benchmarks.md")
BEGIN, END = "<!-- begin table -->", "<!-- end table -->"


def markdown(rows: list[dict[str, Any]]) -> str:
    """The rows as a Markdown table, with the device, the versions and the commit."""
    where = {(row["device"], row["date"], row["versions"], row.get("commit")) for row in rows}
    lines = [
        f"Measured on {device}, {date}, with {versions}{f', at commit {commit[:12]}' if commit else ''}.\n"
        for device, date, versions, commit in sorted(where, key=str)
    ]
    lines.append(f"| case | opponent | {' | '.join(COLUMNS)} |")
    lines.append("| --- | --- |" + " ---: |" * len(COLUMNS))
    for row in rows:
        lines.append(f"| {full_name(row)} | `{row['opponent']}` | {' | '.join(cells(row))} |")
    return "\n".join(lines) + "\n"


def with_table(page: str, table: str) -> str:
    """The page with its table replaced."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table}{END}{after}"


def recorded() -> str:
    """All recorded rows as tables, one per file."""
    return "\n".join(markdown(json.loads(path.read_text())) for path in sorted(RESULTS.glob("benchmarks*.json")))


def main() -> None:
    PAGE.write_text(with_table(PAGE.read_text(), recorded()))


if __name__ == "__main__":
    main()
