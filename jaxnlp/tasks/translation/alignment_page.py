"""A page that shows the attention of translations to their sources: one self-contained HTML file."""

import html
from collections.abc import Sequence
from string import Template

from jaxnlp.blocks import HeatMap

_PAGE = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Attention of translations</title>
<style>
:root { color-scheme: light dark; --page: #f5f6f8; --card: #fff; --ink: #1b222b; --muted: #5b6673; --heat: #0067a3;
  --line: #dfe4ea }
@media (prefers-color-scheme: dark) { :root { --page: #0f1318; --card: #171c23; --ink: #e8ecf1; --muted: #9aa6b4;
  --heat: #6cc4f5; --line: #2f3843 } }
body { margin: 0; background: var(--page); color: var(--ink); font: 16px/1.5 system-ui, sans-serif }
main { max-width: 1280px; margin: auto; padding: 24px 16px }
h1 { font-size: 1.5rem; margin: 0 0 .3rem }
h2 { font-size: 1rem; margin: 0 0 .6rem; overflow-wrap: anywhere }
p { color: var(--muted); margin: .3rem 0 1.2rem }
section { background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 1rem 1.1rem;
  margin-bottom: 14px; overflow-x: auto }
table { border-collapse: collapse; font: .85rem/1.3 ui-monospace, Menlo, Consolas, monospace }
th { font-weight: 400; white-space: pre; text-align: right; padding: 0 .5em 0 0; unicode-bidi: isolate }
thead th { vertical-align: bottom; padding: 0 0 .4em; height: 1px }
thead span { writing-mode: vertical-rl; transform: rotate(180deg); display: inline-block }
td { width: 1.7em; min-width: 1.7em; height: 1.7em; padding: 0; border: 1px solid var(--card);
  background: color-mix(in srgb, var(--heat) var(--share), var(--page)) }
</style>
</head>
<body>
<main>
<h1>Attention of translations</h1>
<p>Rows are tokens of the translation, columns are tokens of the source. Each row of weights sums to 1. Larger weights
have darker cells, or brighter cells in dark mode. Move the pointer over a cell to see its weight.</p>
$maps
</main>
</body>
</html>
""")


def render_page(maps: Sequence[HeatMap]) -> str:
    """The HTML document, with a heat map for each translation: rows are target tokens, columns source tokens."""
    return _PAGE.substitute(maps="\n".join(map(_section, maps)))


def _section(found: HeatMap) -> str:
    columns = "".join(f'<th scope="col"><span>{html.escape(column)}</span></th>' for column in found.columns)
    rows = []
    for name, weights in zip(found.rows, found.weights, strict=True):
        cells = "".join(
            f'<td style="--share:{100 * weight:.0f}%" title="{html.escape(column)}: {weight:.2f}"></td>'
            for column, weight in zip(found.columns, weights, strict=True)
        )
        rows.append(f'<tr><th scope="row">{html.escape(name)}</th>{cells}</tr>')
    return (
        f'<section><h2 dir="auto">{html.escape(found.title)}</h2><table><thead><tr><th></th>{columns}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></section>"
    )
