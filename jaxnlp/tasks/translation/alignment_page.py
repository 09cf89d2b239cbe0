"""A page that shows the attention of translations to their sources: one self-contained HTML file."""

import html
from collections.abc import Sequence

from jaxnlp.pages.attention_page import explain_signs
from jaxnlp.pages.content import HeatMap
from jaxnlp.pages.page import page

_STYLE = """
:root { --page: #f5f6f8; --card: #fff; --ink: #1b222b; --muted: #5b6673; --heat: #0067a3; --line: #dfe4ea }
@media (prefers-color-scheme: dark) { :root { --page: #0f1318; --card: #171c23; --ink: #e8ecf1; --muted: #9aa6b4;
  --heat: #6cc4f5; --line: #2f3843 } }
body { max-width: 1280px; background: var(--page); color: var(--ink) }
h2 { font-size: 1rem; margin: 0 0 .6rem }
p { color: var(--muted); margin: .3rem 0 1.2rem }
section { background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 1rem 1.1rem;
  margin-bottom: 14px; overflow-x: auto }
table { border-collapse: collapse; font: .85rem/1.3 ui-monospace, Menlo, Consolas, monospace }
th { font-weight: 400; white-space: pre; text-align: right; padding: 0 .5em 0 0; unicode-bidi: isolate }
thead th { vertical-align: bottom; padding: 0 0 .4em; height: 1px }
thead span { writing-mode: vertical-rl; transform: rotate(180deg); display: inline-block }
td { width: 1.7em; min-width: 1.7em; height: 1.7em; padding: 0; border: 1px solid var(--card);
  background: color-mix(in srgb, var(--heat) var(--share), var(--page)) }
"""
_EXPLANATION = """Rows are tokens of the translation, columns are tokens of the source. Each row of weights sums to 1.
The stronger the colour of a cell, the larger its weight. Move the pointer over a cell to see its weight."""


def render_page(maps: Sequence[HeatMap]) -> str:
    """The HTML document, with a heat map for each translation: rows are target tokens, columns source tokens."""
    signs = html.escape(explain_signs(token for heat_map in maps for token in (*heat_map.rows, *heat_map.columns)))
    sections = "\n".join(map(_section, maps))
    return page("Attention of translations", f"<p>{_EXPLANATION}{signs}</p>\n{sections}", _STYLE)


def _section(heat_map: HeatMap) -> str:
    columns = "".join(f'<th scope="col"><span>{html.escape(column)}</span></th>' for column in heat_map.columns)
    rows = []
    for name, weights in zip(heat_map.rows, heat_map.weights, strict=True):
        cells = "".join(
            f'<td style="--share:{100 * weight:.0f}%" title="{html.escape(column)}: {weight:.2f}"></td>'
            for column, weight in zip(heat_map.columns, weights, strict=True)
        )
        rows.append(f'<tr><th scope="row">{html.escape(name)}</th>{cells}</tr>')
    return (
        f'<section><h2 dir="auto">{html.escape(heat_map.title)}</h2><table><thead><tr><th></th>{columns}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></section>"
    )
