"""`python -m benchmarks.markdown`: docs/results/benchmarks.json as the table of docs/benchmarks.md."""

import json
from pathlib import Path
from typing import Any

from benchmarks.__main__ import COLUMNS, cells, full_name

ROWS = Path("docs/results/benchmarks.json")
PAGE = Path("docs/benchmarks.md")
BEGIN, END = "<!-- begin table -->", "<!-- end table -->"


def markdown(rows: list[dict[str, Any]]) -> str:
    """The rows as a Markdown table, below what they were measured on."""
    where = {(row["device"], row["date"], row["versions"]) for row in rows}
    lines = [f"Measured on {device}, {date}, with {versions}.\n" for device, date, versions in sorted(where)]
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


def main() -> None:
    rows = json.loads(ROWS.read_text())
    PAGE.write_text(with_table(PAGE.read_text(), markdown(rows)))


if __name__ == "__main__":
    main()
