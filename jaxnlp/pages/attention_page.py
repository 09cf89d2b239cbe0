"""A page about attention: one HTML document with the maps of all layers and heads; it loads no other file."""

import base64
import html
import json
from collections.abc import Iterable, Sequence
from string import Template
from typing import NamedTuple

import numpy as np

from jaxnlp.pages.page import document

MASKED = 65535
"""The code for a masked weight; other weights are multiples of 1 / 65534."""
SIGNS = {
    "\u2423": "a space",
    "\u23ce": "a line break",
    "\u21e5": "a tab",
    "\u2581": "the space before a word",
    "\u0120": "the space before a word",
    "##": "a token inside a word",
    "[CLS]": "the start of the input",
    "[SEP]": "the end of a text",
    "<s>": "the start of a text",
    "</s>": "the end of a text",
}
"""Signs in tokens, and their meanings; the page explains those that occur."""


class AttentionMaps(NamedTuple):
    """Attention weights of a model, or of one part of it, on a text.

    Attributes:
      rows: the queries, T tokens or latents.
      columns: the keys, S tokens or latents.
      weights: weights of all layers and heads [L, H, T, S] float32. A row sums to 1, or to 0 if all keys are masked.
      name: name of the part, such as encoder; "" = the whole model.
      visible: True for keys that a query may attend to [T, S] bool; None = no mask.
      row_positions: each row's position in its text, from 1; None for a latent. () = all rows are tokens in order.
      column_positions: the same for the columns.
    """

    rows: list[str]
    columns: list[str]
    weights: np.ndarray
    name: str = ""
    visible: np.ndarray | None = None
    row_positions: tuple[int | None, ...] = ()
    column_positions: tuple[int | None, ...] = ()


class TextAttention(NamedTuple):
    """Attention of a model on a text.

    Attributes:
      title: the text, or the texts.
      maps: the maps of each part of the model.
      truncated: whether a text was longer than allowed.
    """

    title: str
    maps: tuple[AttentionMaps, ...]
    truncated: bool = False


_STYLE = """
:root { color-scheme: light dark; --page: #f5f6f8; --card: #fff; --soft: #f0f2f5; --line: #dfe4ea; --ink: #1b222b;
  --muted: #5b6673; --heat: #0067a3; --pick: #c2500a; --hidden: #cdd4dc;
  --mono: ui-monospace, "SF Mono", Menlo, Consolas, monospace }
@media (prefers-color-scheme: dark) { :root { --page: #0f1318; --card: #171c23; --soft: #1f262f; --line: #2f3843;
  --ink: #e8ecf1; --muted: #9aa6b4; --heat: #6cc4f5; --pick: #f5a05a; --hidden: #3d4753 } }
* { box-sizing: border-box }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif }
main { max-width: 1280px; margin: auto; padding: clamp(16px, 3vw, 40px) clamp(12px, 2.5vw, 32px) }
h1 { margin: 0 0 .3rem; font-size: clamp(1.25rem, 3vw, 1.75rem); line-height: 1.25; overflow-wrap: anywhere;
  display: -webkit-box; -webkit-box-orient: vertical; -webkit-line-clamp: 3; overflow: hidden }
h2 { margin: 0 0 .6rem; font-size: 1.05rem }
p { margin: .3rem 0; color: var(--muted) }
button { font: inherit; color: inherit; background: none; border: 0; padding: 0; cursor: pointer }
:focus-visible { outline: 2px solid var(--pick); outline-offset: 1px }
canvas { display: block; background: var(--soft) }
.sharp { image-rendering: pixelated }
.columns { display: grid; grid-template-columns: minmax(0, 1fr) minmax(0, 1fr); gap: 14px; margin-top: 1.3rem;
  align-items: start }
.card { padding: 1rem 1.1rem; background: var(--card); border: 1px solid var(--line); border-radius: 12px }
.scroll { overflow: auto }
#one .scroll { max-height: 65vh }
#one { position: sticky; top: 14px }
#maps { display: grid; gap: 4px; align-items: center; justify-items: center; color: var(--muted); font-size: .75rem;
  font-variant-numeric: tabular-nums }
#maps button { width: 100%; border-radius: 2px; outline-offset: 0 }
#maps button:hover { outline: 1px solid var(--muted) }
#maps button[aria-pressed=true] { outline: 2px solid var(--pick) }
#maps canvas { width: 100%; height: auto; border-radius: 2px }
#parts { display: flex; flex-wrap: wrap; gap: .4rem; margin-top: 1rem }
#parts button { padding: .2em .8em; border: 1px solid var(--line); border-radius: 2em; background: var(--card) }
#parts button[aria-pressed=true] { border-color: var(--pick); color: var(--pick); font-weight: 600 }
.strip { display: flex; flex-wrap: wrap; gap: 3px; margin-bottom: .8rem; padding: 3px;
  max-height: 13em; overflow-y: auto; font: .9rem/1.5 var(--mono) }
.strip > * { padding: 0 .3em; border-radius: 4px; white-space: pre; unicode-bidi: isolate;
  background: color-mix(in srgb, var(--heat) var(--share, 0%), var(--soft)) }
.strip > .strong { color: var(--card) }
.strip > .hidden { background: none; opacity: .5 }
.strip > [aria-pressed=true] { outline: 2px solid var(--pick) }
[hidden] { display: none !important }
#bars { display: grid; grid-template-columns: fit-content(35%) max-content 1fr 3.6em; gap: 0 .7em; align-items: center;
  min-height: 12em; align-content: start; margin-top: .4rem; font: .85rem/1.5 var(--mono);
  font-variant-numeric: tabular-nums }
#bars span { overflow: hidden; text-overflow: ellipsis; white-space: pre }
#bars small { color: var(--muted) }
#bars i { height: .7em; min-width: 1px; border-radius: 3px; background: var(--heat) }
#bars b { font-weight: 400; text-align: right }
#large { display: grid; width: max-content; font: .72rem/1 var(--mono); color: var(--muted) }
#large div { display: grid; position: relative }
#top { grid-column: 2; grid-auto-flow: column; align-items: end; justify-content: start; padding-bottom: 4px }
#side { justify-items: end; padding-right: 5px }
#top span { writing-mode: vertical-rl; text-orientation: sideways; transform: rotate(180deg) }
#top span.single { writing-mode: horizontal-tb; justify-content: center; transform: none; line-height: 1.4 }
#top span, #side span { display: flex; align-items: center; white-space: pre; overflow: hidden; max-width: 11em;
  max-height: 11em }
#large .picked { color: var(--pick); font-weight: 700 }
#row { position: absolute !important; left: 0; right: 0; pointer-events: none; outline: 2px solid var(--pick) }
.legend { display: flex; flex-wrap: wrap; gap: .3rem 1rem; align-items: center; font-size: .85rem }
.legend i { display: inline-block; width: 1.1em; height: 1.1em; margin-right: .35em; border-radius: 3px;
  vertical-align: -.2em; background: color-mix(in srgb, var(--heat) var(--share), var(--soft)) }
.legend i.hidden { background: var(--hidden) }
@media (max-width: 900px) { .columns { grid-template-columns: minmax(0, 1fr) } #one { position: static; order: -1 }
  .card { padding: .8rem } }
"""

_SCRIPT = """
"use strict"
const MASKED = 65535
const parts = JSON.parse(document.getElementById("data").textContent)
for (const part of parts)
  part.weights = new Uint16Array(Uint8Array.from(atob(part.weights), character => character.charCodeAt(0)).buffer)
const at = id => document.getElementById(id)
const make = (parent, tag, text = "") => {
  const made = parent.appendChild(document.createElement(tag))
  made.textContent = text
  return made
}
const mapOf = (layer, head) => {
  const size = part.rows.length * part.columns.length, start = (layer * part.heads + head) * size
  return part.weights.subarray(start, start + size)
}
const rowOf = (layer, head, row) =>
  mapOf(layer, head).subarray(row * part.columns.length, (row + 1) * part.columns.length)
// The square root, so that maps whose weights are spread over many tokens show something too.
const shade = weight => Math.sqrt(weight === MASKED ? 0 : weight / 65534)
const position = (positions, place) => positions[place] === null ? "" : `position ${positions[place]}`
const named = (texts, positions, place) =>
  positions[place] === null ? texts[place] : `${texts[place]} (${position(positions, place)})`
const percent = weight => weight === MASKED ? "hidden by the mask" : `${(weight / 655.34).toFixed(1)}%`
let part, layer, head, row, size, buttons, colours

function paint(canvas, layer, head) {
  const map = mapOf(layer, head)
  canvas.width = part.columns.length
  canvas.height = part.rows.length
  const image = new ImageData(canvas.width, canvas.height)
  map.forEach((weight, place) =>
    image.data.set(weight === MASKED ? [...colours.hidden, 255] : [...colours.heat, 255 * shade(weight)], 4 * place))
  canvas.getContext("2d").putImageData(image, 0, 0)
}

function readColours() {
  const style = getComputedStyle(document.documentElement)
  const rgb = name => [1, 3, 5].map(place => parseInt(style.getPropertyValue(name).trim().slice(place, place + 2), 16))
  colours = { heat: rgb("--heat"), hidden: rgb("--hidden") }
}

function open(number) {
  part = parts[number]
  const isMasked = part.weights.includes(MASKED)
  layer = head = 0
  row = isMasked ? part.rows.length - 1 : 0  // the last token sees the most
  Array.from(at("parts").children, (button, place) => button.setAttribute("aria-pressed", place === number))
  const { rows, columns } = part, longest = Math.max(rows.length, columns.length)
  size = Math.max(12, Math.min(30, Math.floor(Math.min(440, at("one").clientWidth - 90) / longest)))
  makeGrid(longest)
  for (const id of ["rows", "columns", "top", "side"]) at(id).replaceChildren()
  at("rows").hidden = part.square
  columns.forEach((text, number) => {
    const token = make(at("columns"), part.square ? "button" : "span", text)
    if (part.square) pickable(token, number)
    const label = make(at("top"), "span", text)
    label.style.width = `${size}px`
    label.classList.toggle("single", [...text].length === 1)
  })
  rows.forEach((text, number) => {
    if (!part.square) pickable(make(at("rows"), "button", text), number)
    const label = make(at("side"), "span", text)
    label.style.height = `${size}px`
    label.onmouseenter = () => pick(number)
  })
  at("map").style.width = `${columns.length * size}px`
  at("map").style.height = `${rows.length * size}px`
  at("row").style.height = `${size}px`
  at("mask").hidden = !isMasked
  paintAll()
}

function makeGrid(longest) {
  const maps = at("maps"), across = part.columns.length / part.rows.length
  maps.replaceChildren()
  maps.style.gridTemplateColumns = `max-content repeat(${part.heads}, minmax(30px, ${longest > 40 ? 200 : 130}px))`
  buttons = []
  make(maps, "span")
  for (let each = 0; each < part.heads; each++) make(maps, "span", each + 1)
  for (let down = 0; down < part.layers; down++) {
    make(maps, "span", down + 1)
    for (let column = 0; column < part.heads; column++) {
      const button = make(maps, "button")
      button.title = `layer ${down + 1}, head ${column + 1}`
      button.setAttribute("aria-label", button.title)
      button.onclick = () => {
        [layer, head] = [down, column]
        show()
        at("one").scrollIntoView({ block: "nearest" })
      }
      const canvas = make(button, "canvas")
      canvas.style.aspectRatio = Math.min(4, Math.max(0.25, across))
      // Shrunken sharply, a map would lose rows and columns; enlarged smoothly, its cells.
      canvas.classList.toggle("sharp", longest < 50)
      buttons.push(button)
    }
  }
}

function pickable(button, number) {
  button.onmouseenter = button.onfocus = button.onclick = () => pick(number)
}

at("map").onmousemove = event => {
  const inside = (place, count) => Math.min(count - 1, Math.max(0, Math.floor(place / size)))
  const column = inside(event.offsetX, part.columns.length)
  pick(inside(event.offsetY, part.rows.length))
  at("map").title = `${named(part.rows, part.rowPositions, row)} attends to ` +
    `${named(part.columns, part.columnPositions, column)}: ${percent(rowOf(layer, head, row)[column])}`
}

function pick(number) {
  row = number
  const weights = rowOf(layer, head, row)
  Array.from(at("columns").children, (token, place) => {
    const share = shade(weights[place])
    token.style.setProperty("--share", `${100 * share}%`)
    token.classList.toggle("strong", share > 0.6)
    token.classList.toggle("hidden", weights[place] === MASKED)
    token.title = `${named(part.columns, part.columnPositions, place)}: ${percent(weights[place])}`
  })
  Array.from(at(part.square ? "columns" : "rows").children, (button, place) =>
    button.setAttribute("aria-pressed", place === row))
  Array.from(at("side").children, (label, place) => label.classList.toggle("picked", place === row))
  at("row").style.top = `${row * size}px`
  at("who").textContent = part.rows[row]
  at("where").textContent = part.rowPositions[row] === null ? "" : `(${position(part.rowPositions, row)})`
  const seen = Array.from(weights.keys()).filter(place => weights[place] !== MASKED)
  const bars = at("bars"), order = seen.sort((one, other) => weights[other] - weights[one])
  bars.replaceChildren()
  for (const place of order.slice(0, 8)) {
    make(bars, "span", part.columns[place])
    make(bars, "small", position(part.columnPositions, place))
    make(bars, "i").style.width = percent(weights[place])
    make(bars, "b", percent(weights[place]))
  }
}

function show() {
  at("title").textContent = `Layer ${layer + 1}, head ${head + 1}`
  buttons.forEach((button, place) => button.setAttribute("aria-pressed", place === layer * part.heads + head))
  paint(at("map"), layer, head)
  pick(row)
}

function paintAll() {
  readColours()
  buttons.forEach((button, place) => paint(button.firstChild, Math.floor(place / part.heads), place % part.heads))
  show()
}

at("parts").hidden = parts.length === 1
parts.forEach((part, number) => { make(at("parts"), "button", part.name).onclick = () => open(number) })
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paintAll)
open(0)
"""

_BODY = Template("""<main>
<h1 dir="auto">$title</h1>
<p>$model. $sizes. Rows of a map attend, columns are what they attend to.$signs</p>
<p class="legend">Weight: $legend<span id="mask"><i class="hidden"></i>hidden by the mask</span></p>
<noscript><p>The maps are drawn by the page's own script, which is switched off here.</p></noscript>
<div id="parts"></div>
<div class="columns">
<section class="card scroll"><h2>All maps: layers down, heads across</h2><div id="maps"></div></section>
<section class="card" id="one"><h2 id="title"></h2>
<div class="strip" id="rows"></div>
<div class="strip" id="columns"></div>
<div class="scroll"><div id="large"><div id="top"></div><div id="side"></div>
<div><canvas id="map" class="sharp"></canvas><div id="row"></div></div></div></div>
<p><code id="who"></code> <span id="where"></span> attends to</p>
<div id="bars"></div></section>
</div>
</main>
<script type="application/json" id="data">$data</script>""")


def render_page(maps: Sequence[AttentionMaps], *, title: str, model: str) -> str:
    """The document.

    Args:
      maps: the maps of each part of the model; weights from 0 to 1, rounded to five digits.
      title: the text.
      model: name of the model.

    Raises:
      ValueError: when there are no maps, or the weights do not fit the rows and columns.
    """
    if not maps:
        raise ValueError("a page about attention needs maps, got none")
    body = _BODY.substitute(
        title=html.escape(title),
        model=html.escape(model),
        sizes=html.escape("; ".join(map(_sizes, maps))),
        signs=html.escape(explain_signs({token for part in maps for token in (*part.rows, *part.columns)})),
        legend="".join(
            f'<span><i style="--share: {100 * share**0.5:.0f}%"></i>{100 * share:g}%</span>'
            for share in (0.01, 0.05, 0.2, 0.5, 1.0)
        ),
        # Escapes end tags and comments, because a token may look like one.
        data=json.dumps(list(map(_data, maps)), ensure_ascii=False).replace("<", "\\u003c"),
    )
    return document(f"Attention: {title}", body, _STYLE, _SCRIPT)


def _sizes(part: AttentionMaps) -> str:
    layers, heads, rows, columns = part.weights.shape
    sizes = [(layers, "layer"), (heads, "head"), (rows, "row"), *([] if _is_square(part) else [(columns, "column")])]
    named = ", ".join(f"{count} {name}{'s' * (count != 1)}" for count, name in sizes)
    return f"{part.name}: {named}" if part.name else named


def explain_signs(tokens: Iterable[str]) -> str:
    """A sentence about the signs in tokens, after a blank; empty if there are none."""
    tokens = {*tokens}
    explanations = [
        f"{sign} is {meaning}"
        for sign, meaning in SIGNS.items()
        if any(token == sign or (sign in ("\u2581", "##") and token.startswith(sign)) for token in tokens)
    ]
    return f" In tokens, {', '.join(explanations)}." if explanations else ""


def _is_square(part: AttentionMaps) -> bool:
    """Whether it is self-attention."""
    return list(part.rows) == list(part.columns)


def _positions(given: Sequence[int | None], count: int) -> list[int | None]:
    """The positions as given, or those of tokens in order. Raises: ValueError for another number of positions."""
    if given and len(given) != count:
        raise ValueError(f"expected {count} positions, one for each token, got {len(given)}")
    return list(given) or list(range(1, count + 1))


def _data(part: AttentionMaps) -> dict[str, object]:
    layers, heads = part.weights.shape[:2]
    shape = (len(part.rows), len(part.columns))
    if part.weights.shape[2:] != shape:
        raise ValueError(f"expected weights [L, H, {shape[0]}, {shape[1]}], got {list(part.weights.shape)}")
    whole = np.round(np.clip(part.weights, 0.0, 1.0) * (MASKED - 1)).astype("<u2")
    if part.visible is not None:
        whole = np.where(part.visible, whole, np.uint16(MASKED)).astype("<u2")
    return {
        "name": part.name,
        "rows": list(part.rows),
        "columns": list(part.columns),
        "rowPositions": _positions(part.row_positions, len(part.rows)),
        "columnPositions": _positions(part.column_positions, len(part.columns)),
        "square": _is_square(part),
        "layers": layers,
        "heads": heads,
        "weights": base64.b64encode(whole.tobytes()).decode(),
    }
