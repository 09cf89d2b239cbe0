"""The blocks of a task on the report page: their lines in blocks.jsonl, and a drawing function for each kind."""

import base64
import binascii
import dataclasses
import json
import math
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from jaxnlp.pages.blocks import HeatMap, Lines, MarkedText, Picture, Table
from train.report import plots
from train.report.formats import is_finite, is_number, number, text

Content = Table | Lines | HeatMap | MarkedText | Picture

KINDS: dict[str, type] = {kind.__name__: kind for kind in (Table, Lines, HeatMap, MarkedText, Picture)}
MAX_STEPS = 40
"""Maximum number of steps that are shown of a block that keeps all steps."""
MAX_ROWS = 200
"""Maximum number of rows of a table that are shown."""
LONG = 30
"""Number of characters above which the text of a cell has a column of a minimum width."""

_PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"


class Drawn(NamedTuple):
    """One line of blocks.jsonl."""

    step: int
    name: str
    keep: Literal["latest", "all"]
    content: Content


def block_to_json(step: int, name: str, keep: str, content: Any) -> dict[str, Any]:
    """A block as a line of blocks.jsonl; arrays and numbers of NumPy and JAX become plain lists and numbers.

    Raises:
      ValueError: when the block could not be drawn; the message names the block and the field.
    """
    if type(content) not in KINDS.values():
        raise ValueError(f"block {name!r}: expected one of {', '.join(KINDS)}, got {type(content).__name__}")
    fields = {"step": step, "name": name, "keep": keep, "kind": type(content).__name__}
    try:
        row = json.loads(json.dumps(fields | {"content": dataclasses.asdict(content)}, default=_plain))
        block_from_json(row)
    except (TypeError, ValueError) as error:
        raise ValueError(f"block {name!r}: {error}") from error
    return row


def block_from_json(row: Mapping[str, Any]) -> Drawn:
    """The block of one line of blocks.jsonl.

    Raises:
      ValueError: when the kind is unknown or a field is missing, unknown or malformed; the message names the field.
    """
    missing = [key for key in ("step", "name", "keep", "kind", "content") if key not in row]
    if missing:
        raise ValueError(f"expected an object with {', '.join(missing)}")
    step, name, keep = (
        _convert(row[key], hint, key)
        for key, hint in (("step", int), ("name", str), ("keep", Literal["latest", "all"]))
    )
    kind = KINDS.get(row["kind"]) if isinstance(row["kind"], str) else None
    if kind is None:
        raise ValueError(f"unknown kind of block {row['kind']!r}; expected one of {', '.join(KINDS)}")
    content = _convert(row["content"], kind, "content")
    _CHECKS[kind](content)
    return Drawn(step, name, keep, content)


def render_blocks(blocks: Sequence[Drawn]) -> str:
    """A section for each name: the block of its newest step, or the blocks of all steps, the newest first and open."""
    by_name: dict[str, list[Drawn]] = {}
    for block in blocks:
        by_name.setdefault(block.name, []).append(block)
    return "".join(_section(name, found, f"block-{n}") for n, (name, found) in enumerate(by_name.items()))


def render_content(content: Content, prefix: str, name: str) -> str:
    """A block's content as HTML.

    Args:
      content: content of any kind.
      prefix: prefix of ids, unique on the page.
      name: name of the block.
    """
    return _RENDERERS[type(content)](content, prefix, name)


def _section(name: str, blocks: Sequence[Drawn], prefix: str) -> str:
    steps = sorted({block.step for block in blocks}, reverse=True)
    drawn: dict[int, Callable[[], str]] = {
        step: lambda step=step: "".join(  # type: ignore[misc]
            render_content(block.content, f"{prefix}-{step}-{n}", name)
            for n, block in enumerate(blocks)
            if block.step == step
        )
        for step in steps
    }
    if blocks[-1].keep == "latest":
        head = f"<h2>{text(name)} <small>step {steps[0]:,}</small></h2>"
        return f'<section class="block">{head}{drawn[steps[0]]()}</section>'
    shown = steps[:: math.ceil(len(steps) / MAX_STEPS)]
    folds = "".join(
        f"<details{' open' * (step == shown[0])}><summary>Step {step:,}</summary>{drawn[step]()}</details>"
        for step in shown
    )
    note = f"<p>{len(shown)} of {len(steps)} steps; all are in blocks.jsonl.</p>" if len(shown) < len(steps) else ""
    return f'<section class="block"><h2>{text(name)}</h2>{note}<div class="card steps">{folds}</div></section>'


def _table(table: Table, _: str, __: str) -> str:
    return render_table(table)


def render_table(table: Table, links: Sequence[str | None] = ()) -> str:
    """A table as HTML.

    Args:
      table: the table.
      links: for each row the address to which its first cell links, or None; () = no links.
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
        drawn += f"<p>The first {len(shown):,} of {len(table.rows):,} rows; all are in blocks.jsonl.</p>"
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


def _lines(lines: Lines, prefix: str, name: str) -> str:
    label = f"{name}: {lines.y_label} by {lines.x_label}"
    drawing = plots.inline(plots.draw_lines(lines), prefix, label)
    return f'<figure class="lines">{_note(lines.note)}{drawing}</figure>'


def _heat_map(heat: HeatMap, _: str, __: str) -> str:
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


def _marked_text(marked: MarkedText, _: str, __: str) -> str:
    paragraphs = (
        "".join(f"<b>{text(piece)}</b>" if highlighted else text(piece) for piece, highlighted in paragraph)
        for paragraph in marked.paragraphs
    )
    # An HTML parser drops a line feed directly after <pre>, so another one is added.
    drawn = "".join(f"<pre>{chr(10) * paragraph.startswith(chr(10))}{paragraph}</pre>" for paragraph in paragraphs)
    return f'<div class="card">{_note(marked.note)}{drawn}</div>'


def _picture(picture: Picture, _: str, __: str) -> str:
    source = base64.b64encode(_png_bytes(picture.png)).decode()
    image = f'<img src="data:image/png;base64,{source}" alt="{text(picture.alt)}">'
    return f'<figure class="picture">{_note(picture.note)}{image}</figure>'


def _note(note: str) -> str:
    return f"<p>{text(note)}</p>" if note else ""


_RENDERERS: dict[type, Callable[[Any, str, str], str]] = {
    Table: _table,
    Lines: _lines,
    HeatMap: _heat_map,
    MarkedText: _marked_text,
    Picture: _picture,
}


def _check_table(table: Table) -> None:
    for index, row in enumerate(table.rows):
        _expect(len(row) == len(table.header), f"content.rows[{index}]", len(table.header), "cells", len(row))
    if table.marks:
        _expect(len(table.marks) == len(table.rows), "content.marks", len(table.rows), "marks", len(table.marks))
    beyond = [column for column in table.bars if not 0 <= column < len(table.header)]
    if beyond:
        raise ValueError(f"content.bars: there is no column {beyond[0]} among {len(table.header)}")


def _check_lines(lines: Lines) -> None:
    for index, line in enumerate(lines.lines):
        _expect(len(line.x) == len(line.y), f"content.lines[{index}].y", len(line.x), "values", len(line.y))


def _check_heat_map(heat: HeatMap) -> None:
    _expect(len(heat.weights) == len(heat.rows), "content.weights", len(heat.rows), "rows", len(heat.weights))
    for index, row in enumerate(heat.weights):
        _expect(len(row) == len(heat.columns), f"content.weights[{index}]", len(heat.columns), "weights", len(row))


def _check_marked_text(_: MarkedText) -> None:
    """Accepts all texts."""


def _check_picture(picture: Picture) -> None:
    _png_bytes(picture.png)


_CHECKS: dict[type, Callable[[Any], None]] = {
    Table: _check_table,
    Lines: _check_lines,
    HeatMap: _check_heat_map,
    MarkedText: _check_marked_text,
    Picture: _check_picture,
}


def _expect(fits: bool, where: str, expected: int, what: str, found: int) -> None:
    if not fits:
        raise ValueError(f"{where}: expected {expected} {what}, got {found}")


def _png_bytes(png: str) -> bytes:
    try:
        content = base64.b64decode(png, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"content.png: not base64 ({error})") from error
    if not content.startswith(_PNG):
        raise ValueError("content.png: the bytes are not a PNG file")
    return content


def _plain(value: Any) -> Any:
    if hasattr(value, "__array__"):
        return np.asarray(value).tolist()
    raise TypeError(f"{type(value).__name__} cannot be saved as JSON")


def _convert(value: Any, hint: Any, where: str) -> Any:
    """JSON as the declared type of a field: lists become tuples, objects become dataclasses; nothing else changes.

    Raises:
      ValueError: when the JSON has another type; the message names the field.
    """
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if dataclasses.is_dataclass(hint):
        return _convert_dataclass(value, typing.cast(type, hint), where)
    if origin is tuple and isinstance(value, list):
        if arguments[-1:] == (Ellipsis,):
            return tuple(_convert(item, arguments[0], f"{where}[{n}]") for n, item in enumerate(value))
        _expect(len(value) == len(arguments), where, len(arguments), "items", len(value))
        return tuple(
            _convert(item, each, f"{where}[{n}]") for n, (item, each) in enumerate(zip(value, arguments, strict=True))
        )
    accepted = arguments if origin in (typing.Union, types.UnionType) else (hint,)
    if not any(_is(value, each) for each in accepted):
        raise ValueError(f"{where}: expected {_named(accepted)}, got {_shortened(value)}")
    return value


def _convert_dataclass(value: Any, kind: type, where: str) -> Any:
    if not isinstance(value, dict):
        raise ValueError(f"{where}: expected an object, got {_shortened(value)}")
    hints = typing.get_type_hints(kind)
    required = {
        field.name
        for field in dataclasses.fields(kind)
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    }
    for problem, names in (("missing", required - value.keys()), ("unknown", value.keys() - hints.keys())):
        if names:
            raise ValueError(f"{where}.{min(names)}: {problem} field of {kind.__name__}")
    return kind(**{name: _convert(item, hints[name], f"{where}.{name}") for name, item in value.items()})


def _is(value: Any, hint: Any) -> bool:
    if typing.get_origin(hint) is Literal:
        return isinstance(value, str) and value in typing.get_args(hint)
    if hint is float:
        return is_number(value) and (isinstance(value, float) or abs(value) < 2**63)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63
    return isinstance(value, hint) if isinstance(hint, type) else False


def _named(hints: Iterable[Any]) -> str:
    words = {str: "a text", int: "an integer", float: "a number", bool: "true or false", types.NoneType: "null"}
    return " or ".join(
        " or ".join(map(repr, typing.get_args(hint)))
        if typing.get_origin(hint) is Literal
        else "a list"
        if typing.get_origin(hint) is tuple
        else words.get(hint, str(hint))
        for hint in hints
    )


def _shortened(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 80 else shown[:77] + "..."
