"""The sections of a task on the report page: their lines in sections.jsonl, and a drawing function for each kind."""

import dataclasses
import functools
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from jaxnlp.pages.content import Content, HeatMap, Lines, MarkedText, Picture, Table
from jaxnlp.saving.serialization import class_name, from_json
from train.report import plots
from train.report.formats import is_finite, is_number, number, text

MAX_STEPS = 40
"""Maximum number of steps to show of a section that keeps all steps."""
MAX_ROWS = 200
"""Maximum number of rows of a table to show."""
LONG = 30
"""Number of characters above which a cell's text has a column of a minimum width."""


@dataclasses.dataclass(frozen=True)
class LoggedSection:
    """A section and its step: one line of sections.jsonl."""

    step: int
    name: str
    keep: Literal["latest", "all"]
    content: Content


def section_to_json(section: LoggedSection) -> dict[str, Any]:
    """A section as a line of sections.jsonl; NumPy's and JAX's arrays and numbers become plain lists and numbers.

    Raises: ValueError naming the section and the field, when the section could not be drawn.
    """
    try:
        row = json.loads(json.dumps(section, default=_plain))
        section_from_json(row)
    except (TypeError, ValueError) as error:
        raise ValueError(f"section {section.name!r}: {error}") from error
    return row


def _plain(value: Any) -> Any:
    if hasattr(value, "__array__"):
        return np.asarray(value).tolist()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {"type": class_name(value), **vars(value)}
    raise TypeError(f"{type(value).__name__} cannot be saved as JSON")


def section_from_json(row: Mapping[str, Any]) -> LoggedSection:
    """The section of one line of sections.jsonl.

    Raises: ValueError naming a field that is missing, unknown or malformed, or the unknown kind.
    """
    section: LoggedSection = from_json(row, LoggedSection, where="section")
    if type(section.content) not in render_content.registry:
        raise ValueError(f"the report cannot draw a {type(section.content).__name__}")
    return section


def render_sections(sections: Sequence[LoggedSection]) -> str:
    """A section for each name: of its newest step, or of all steps, the newest first and open."""
    by_name: dict[str, list[LoggedSection]] = {}
    for section in sections:
        by_name.setdefault(section.name, []).append(section)
    return "".join(_section(name, same, f"section-{index}") for index, (name, same) in enumerate(by_name.items()))


def _section(name: str, sections: Sequence[LoggedSection], prefix: str) -> str:
    steps = sorted({section.step for section in sections}, reverse=True)

    def drawn(step: int) -> str:
        return "".join(
            render_content(section.content, f"{prefix}-{step}-{index}", name)
            for index, section in enumerate(sections)
            if section.step == step
        )

    if sections[-1].keep == "latest":
        head = f"<h2>{text(name)} <small>step {steps[0]:,}</small></h2>"
        return f'<section class="section">{head}{drawn(steps[0])}</section>'
    shown = steps[:: math.ceil(len(steps) / MAX_STEPS)]
    folds = "".join(
        f"<details{' open' * (step == shown[0])}><summary>Step {step:,}</summary>{drawn(step)}</details>"
        for step in shown
    )
    note = f"<p>{len(shown)} of {len(steps)} steps; all are in sections.jsonl.</p>" if len(shown) < len(steps) else ""
    return f'<section class="section"><h2>{text(name)}</h2>{note}<div class="card steps">{folds}</div></section>'


@functools.singledispatch
def render_content(content: Content, prefix: str, name: str) -> str:
    """A section's content as HTML.

    Args:
      content: content of any kind.
      prefix: prefix of ids, unique on the page.
      name: name of the section.
    """
    raise TypeError(
        f"a section of the report cannot be a {type(content).__name__}; give one of the kinds in jaxnlp.pages.content"
    )


@render_content.register
def _(table: Table, prefix: str, name: str) -> str:
    return render_table(table)


def render_table(table: Table, links: Sequence[str | None] = ()) -> str:
    """A table as HTML.

    Args:
      table: the table.
      links: for each row the address that its first cell links to, or None; () = no links.
    """
    shown = table.rows[:MAX_ROWS]
    numeric = {
        column
        for column in range(len(table.header))
        if column not in table.bars and all(row[column] is None or is_number(row[column]) for row in shown)
    }
    marks = table.marks[:MAX_ROWS] or ("",) * len(shown)
    head = "<th></th>" if table.marks else ""
    head += "".join(
        f'<th scope="col"{_indexclass(column in numeric)}>{text(name)}</th>' for column, name in enumerate(table.header)
    )
    body = "".join(
        "<tr>"
        + (_mark(mark) if table.marks else "")
        + "".join(_cell(cell, column in table.bars, link if column == 0 else None) for column, cell in enumerate(row))
        + "</tr>"
        for mark, row, link in zip(marks, shown, links[:MAX_ROWS] or (None,) * len(shown), strict=True)
    )
    drawn = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    if len(shown) < len(table.rows):
        drawn += f"<p>The first {len(shown):,} of {len(table.rows):,} rows; all are in sections.jsonl.</p>"
    if table.folded:
        rows = "1 row" if len(table.rows) == 1 else f"{len(table.rows):,} rows"
        drawn = f"<details><summary>{rows}</summary>{drawn}</details>"
    return f'<div class="card scroll">{_note(table.note)}{drawn}</div>'


def _mark(mark: str) -> str:
    symbol = {"good": "&#10003;", "bad": "&#10007;", "": ""}[mark]
    return f'<td class="mark {mark}" title="{mark}">{symbol}</td>' if mark else "<td></td>"


def _cell(cell: str | float | int | None, bar: bool, link: str | None = None) -> str:
    if cell is None:
        return "<td></td>"
    if bar and is_finite(cell):
        width = 100 * min(1.0, max(0.0, float(cell)))
        drawn = f'<span class="bar" style="width: {width:.1f}%"></span>' if width else ""
        track = f'<span class="track">{drawn}</span>'
        return f'<td class="share"><span>{100 * float(cell):.1f}%</span>{track}</td>'
    shown = text(number(cell) if is_number(cell) else cell)
    shown = shown if link is None else f'<a href="{text(link)}">{shown}</a>'
    # Without a minimum width, a narrow screen would show one word of a long text a line.
    long = ' class="long"' if len(str(cell)) > LONG else ""
    return f"<td{_indexclass(is_number(cell)) or long}>{shown}</td>"


def _indexclass(numeric: bool) -> str:
    return ' class="number"' if numeric else ""


@render_content.register
def _(lines: Lines, prefix: str, name: str) -> str:
    label = f"{name}: {lines.y_label} by {lines.x_label}"
    drawing = plots.inline(plots.draw_lines(lines), prefix, label)
    return f'<figure class="lines">{_note(lines.note)}{drawing}</figure>'


@render_content.register
def _(heat: HeatMap, prefix: str, name: str) -> str:
    """The columns, repeated for each row; a larger weight of the row is darker."""
    title = f"<caption>{text(heat.title)}</caption>" if heat.title else ""
    rows = []
    for name, weights in zip(heat.rows, heat.weights, strict=True):
        most = max((weight for weight in weights if is_finite(weight)), default=0.0)
        shares = [weight / most if most > 0 and is_finite(weight) else 0.0 for weight in weights]
        cells = "".join(
            f'<span style="--share: {100 * max(0.0, share):.0f}%">{text(column)}</span>'
            for column, share in zip(heat.columns, shares, strict=True)
        )
        rows.append(f'<tr><th scope="row">{text(name)}</th><td>{cells}</td></tr>')
    spaced = " words" if any(len(column) > 1 for column in heat.columns) else ""
    return (
        f'<div class="card scroll">{_note(heat.note)}<table class="heat{spaced}">{title}{"".join(rows)}</table></div>'
    )


@render_content.register
def _(marked: MarkedText, prefix: str, name: str) -> str:
    paragraphs = (
        "".join(f"<b>{text(piece)}</b>" if highlighted else text(piece) for piece, highlighted in paragraph)
        for paragraph in marked.paragraphs
    )
    # An HTML parser drops a line feed directly after <pre>, so another one is added.
    drawn = "".join(f"<pre>{chr(10) * paragraph.startswith(chr(10))}{paragraph}</pre>" for paragraph in paragraphs)
    return f'<div class="card">{_note(marked.note)}{drawn}</div>'


@render_content.register
def _(picture: Picture, prefix: str, name: str) -> str:
    image = f'<img src="data:image/png;base64,{picture.png}" alt="{text(picture.alt)}">'
    return f'<figure class="picture">{_note(picture.note)}{image}</figure>'


def _note(note: str) -> str:
    return f"<p>{text(note)}</p>" if note else ""
