"""`python -m benchmarks.markdown`: docs/results/benchmarks.json as the table of docs/benchmarks.md."""

import json
from pathlib import Path
from typing import Any

ROWS = Path("docs/results/benchmarks.json")
PAGE = Path("docs/benchmarks.md")
BEGIN, END = "<!-- begin table -->", "<!-- end table -->"


def markdown(rows: list[dict[str, Any]]) -> str:
    """The rows as a Markdown table, below what they were measured on."""
    where = {(row["device"], row["date"], row["versions"]) for row in rows}
    lines = [f"Measured on {device}, {date}, with {versions}.\n" for device, date, versions in sorted(where)]
    lines.append("| case | opponent | ours (ms) | theirs (ms) | ratio | spread | GFLOP/s | of the float32 limit |")
    lines.append("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for row in rows:
        if "error" in row:
            lines.append(f"| {row['case']} | `{row['opponent']}` | | | not measured: {row['error']} | | | |")
            continue
        gflops, fraction = row["gflops"], row["fraction_of_limit"]
        ours, theirs = (f"{row[name] * 1e3:.3g}" for name in ("ours_seconds", "theirs_seconds"))
        rate = "" if gflops is None else f"{gflops:.0f}"
        share = "" if fraction is None else f"{fraction:.2f}"
        lines.append(
            f"| {row['case']} | `{row['opponent']}` | {ours} | {theirs} | **{row['ratio']:.2f}** | {row['spread']:.0%} "
            f"| {rate} | {share} |"
        )
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
