"""A page of attention maps: one self-contained HTML document with all layers and heads."""

import base64
import html
import json
from collections.abc import Sequence
from string import Template

import numpy as np

_STYLE = """
:root { color-scheme: light dark; --page: #f5f6f8; --card: #fff; --soft: #f0f2f5; --line: #dfe4ea; --ink: #1b222b;
  --muted: #5b6673; --heat: #0067a3; --pick: #c2500a; --mono: ui-monospace, "SF Mono", Menlo, Consolas, monospace }
@media (prefers-color-scheme: dark) { :root { --page: #0f1318; --card: #171c23; --soft: #1f262f; --line: #2f3843;
  --ink: #e8ecf1; --muted: #9aa6b4; --heat: #6cc4f5; --pick: #f5a05a } }
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
#maps canvas { width: 100%; height: auto; aspect-ratio: 1; border-radius: 2px }
#tokens { display: flex; flex-wrap: wrap; gap: 3px; margin-bottom: .8rem; padding: 3px;
  max-height: 13em; overflow-y: auto; font: .9rem/1.5 var(--mono) }
#tokens button { padding: 0 .3em; border-radius: 4px; white-space: pre; unicode-bidi: isolate;
  background: color-mix(in srgb, var(--heat) var(--share, 0%), var(--soft)) }
#tokens button.strong { color: var(--card) }
#tokens button[aria-pressed=true] { outline: 2px solid var(--pick) }
#bars { display: grid; grid-template-columns: fit-content(40%) 1fr 3.6em; gap: 0 .7em; align-items: center;
  min-height: 12em; align-content: start; margin-top: .4rem; font: .85rem/1.5 var(--mono);
  font-variant-numeric: tabular-nums }
#bars span { overflow: hidden; text-overflow: ellipsis; white-space: pre }
#bars i { height: .7em; min-width: 1px; border-radius: 3px; background: var(--heat) }
#bars b { font-weight: 400; text-align: right }
#large { display: grid; width: max-content; font: .72rem/1 var(--mono); color: var(--muted) }
#large div { display: grid; position: relative }
#top { grid-column: 2; grid-auto-flow: column; align-items: end; justify-content: start; padding-bottom: 4px }
#side { justify-items: end; padding-right: 5px }
#top span { writing-mode: vertical-rl; transform: rotate(180deg) }
#top span, #side span { display: flex; align-items: center; white-space: pre; overflow: hidden; max-width: 11em;
  max-height: 11em }
#large .picked { color: var(--pick); font-weight: 700 }
#row { position: absolute !important; left: 0; right: 0; pointer-events: none; outline: 2px solid var(--pick) }
.legend { display: flex; flex-wrap: wrap; gap: .3rem 1rem; align-items: center; font-size: .85rem }
.legend i { display: inline-block; width: 1.1em; height: 1.1em; margin-right: .35em; border-radius: 3px;
  vertical-align: -.2em; background: color-mix(in srgb, var(--heat) var(--share), var(--soft)) }
@media (max-width: 900px) { .columns { grid-template-columns: minmax(0, 1fr) } #one { position: static; order: -1 }
  .card { padding: .8rem } }
"""

_SCRIPT = """
"use strict"
const { tokens, layers, heads, weights: packed } = JSON.parse(document.getElementById("data").textContent)
const count = tokens.length
const weights = new Uint16Array(Uint8Array.from(atob(packed), character => character.charCodeAt(0)).buffer)
const at = id => document.getElementById(id)
const make = (parent, tag, text = "") => {
  const made = parent.appendChild(document.createElement(tag))
  made.textContent = text
  return made
}
const mapOf = (layer, head) => {
  const start = (layer * heads + head) * count * count
  return weights.subarray(start, start + count * count)
}
const rowOf = (layer, head, token) => mapOf(layer, head).subarray(token * count, (token + 1) * count)
// The square root makes small weights visible, which are spread over many tokens.
const shade = weight => Math.sqrt(weight / 65535)
const percent = weight => `${(weight / 655.35).toFixed(1)}%`
let layer = 0, head = 0, token = 0

function paint(canvas, layer, head) {
  const [red, green, blue] = heat, map = mapOf(layer, head)
  canvas.width = canvas.height = count
  const image = new ImageData(count, count)
  map.forEach((weight, place) => image.data.set([red, green, blue, 255 * shade(weight)], 4 * place))
  canvas.getContext("2d").putImageData(image, 0, 0)
}

let heat
function readColours() {
  const written = getComputedStyle(document.documentElement).getPropertyValue("--heat").trim()
  heat = [1, 3, 5].map(place => parseInt(written.slice(place, place + 2), 16))
}

const maps = at("maps"), buttons = []
maps.style.gridTemplateColumns = `max-content repeat(${heads}, minmax(30px, ${count > 40 ? 200 : 130}px))`
make(maps, "span")
for (let each = 0; each < heads; each++) make(maps, "span", each + 1)
for (let row = 0; row < layers; row++) {
  make(maps, "span", row + 1)
  for (let column = 0; column < heads; column++) {
    const button = make(maps, "button")
    button.title = `layer ${row + 1}, head ${column + 1}`
    button.setAttribute("aria-label", button.title)
    button.onclick = () => {
      [layer, head] = [row, column]
      show()
      at("one").scrollIntoView({ block: "nearest" })
    }
    // A sharp map loses rows and columns when it shrinks. A smooth map loses its cells when it grows.
    make(button, "canvas").classList.toggle("sharp", count < 50)
    buttons.push(button)
  }
}

const strip = at("tokens"), size = Math.max(12, Math.min(30, Math.floor(440 / count)))
tokens.forEach((text, number) => {
  const button = make(strip, "button", text)
  button.onmouseenter = button.onfocus = button.onclick = () => pick(number)
  const labels = [make(at("top"), "span", text), make(at("side"), "span", text)]
  labels[0].style.width = labels[1].style.height = `${size}px`
  labels[1].onmouseenter = () => pick(number)
})
const large = at("map")
large.style.width = large.style.height = `${count * size}px`
large.onmousemove = event => {
  const inside = place => Math.min(count - 1, Math.max(0, Math.floor(place / size)))
  const column = inside(event.offsetX)
  pick(inside(event.offsetY))
  large.title = `${tokens[token]} attends to ${tokens[column]}: ${percent(rowOf(layer, head, token)[column])}`
}

function pick(number) {
  token = number
  const row = rowOf(layer, head, token)
  Array.from(strip.children, (button, place) => {
    const share = shade(row[place])
    button.style.setProperty("--share", `${100 * share}%`)
    button.classList.toggle("strong", share > 0.6)
    button.setAttribute("aria-pressed", place === token)
    button.title = percent(row[place])
  })
  Array.from(at("side").children, (label, place) => label.classList.toggle("picked", place === token))
  at("row").style.top = `${token * size}px`
  at("who").textContent = tokens[token]
  const bars = at("bars"), order = Array.from(row.keys()).sort((one, other) => row[other] - row[one])
  bars.replaceChildren()
  for (const place of order.slice(0, 8)) {
    make(bars, "span", tokens[place])
    make(bars, "i").style.width = percent(row[place])
    make(bars, "b", percent(row[place]))
  }
}

function show() {
  at("title").textContent = `Layer ${layer + 1}, head ${head + 1}`
  buttons.forEach((button, place) => button.setAttribute("aria-pressed", place === layer * heads + head))
  paint(large, layer, head)
  pick(token)
}

function paintAll() {
  readColours()
  buttons.forEach((button, place) => paint(button.firstChild, Math.floor(place / heads), place % heads))
  show()
}

at("row").style.height = `${size}px`
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paintAll)
paintAll()
"""

_PAGE = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Attention: $title</title>
<style>$style</style>
</head>
<body>
<main>
<h1 dir="auto">$title</h1>
<p>$model: $layers layers, $heads heads, $count tokens. Rows of a map are tokens, columns are the tokens they attend
to.</p> <p class="legend">Weight: $legend</p> <noscript><p>A script in this page draws the maps. Scripts are switched
off.</p></noscript> <div class="columns"> <section class="card scroll"><h2>All maps: layers down, heads across</h2><div
id="maps"></div></section> <section class="card" id="one"><h2 id="title"></h2> <div id="tokens"></div> <div
class="scroll"><div id="large"><div id="top"></div><div id="side"></div> <div><canvas id="map"
class="sharp"></canvas><div id="row"></div></div></div></div> <p><code id="who"></code> attends to</p> <div
id="bars"></div></section> </div> </main> <script type="application/json" id="data">$data</script>
<script>$script</script> </body> </html> """)


def render_page(tokens: Sequence[str], weights: np.ndarray, *, title: str, model: str) -> str:
    """The document.

    Args:
      tokens: of the text, T of them.
      weights: of attention [L, H, T, T], from 0 to 1; rounded to five digits.
      title: the text.
      model: its name.

    Raises:
      ValueError: when the weights are not square maps of the tokens.
    """
    layers, heads = weights.shape[:2]
    if weights.shape[2:] != (len(tokens), len(tokens)):
        raise ValueError(f"expected weights [L, H, {len(tokens)}, {len(tokens)}], got {list(weights.shape)}")
    whole = np.round(np.clip(weights, 0.0, 1.0) * 65535).astype("<u2")
    data = {
        "tokens": list(tokens),
        "layers": layers,
        "heads": heads,
        "weights": base64.b64encode(whole.tobytes()).decode(),
    }
    return _PAGE.substitute(
        style=_STYLE,
        script=_SCRIPT,
        title=html.escape(title),
        model=html.escape(model),
        layers=layers,
        heads=heads,
        count=len(tokens),
        legend="".join(
            f'<span><i style="--share: {100 * share**0.5:.0f}%"></i>{100 * share:g}%</span>'
            for share in (0.01, 0.05, 0.2, 0.5, 1.0)
        ),
        # Escaped, because a token may look like an end tag or a comment.
        data=json.dumps(data, ensure_ascii=False).replace("<", "\\u003c"),
    )
