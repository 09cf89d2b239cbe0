"""The page of a run's report: one HTML document that holds its plots and styles and asks for nothing else."""

import html
import json
import math
import statistics
from collections.abc import Iterator, Sequence
from string import Template
from typing import Any

from train import plots

Object = dict[str, Any]
Rows = Sequence[Object]

_LABELS = {
    "loss": "Loss by step",
    "loss_narrow": "Loss by step",
    "learning_rate": "Learning rate by step",
    "throughput": "Tokens per second by step",
}

_MOST_SAMPLED_STEPS = 40
_MOST_ANSWERS = 50
_HOPELESS = 50.0  # nats per word: the perplexity of more would not fit a tile
_SEEN = (("never", 0, 0), ("once", 1, 1), ("2 to 4", 2, 4), ("5 to 19", 5, 19), ("20 and more", 20, math.inf))

_STYLE = """
:root { color-scheme: light dark; --page: #f5f6f8; --card: #fff; --soft: #f0f2f5; --line: #e3e7ec; --ink: #1b222b;
  --muted: #5b6673; --good: #17744a; --wait: #8a5a00; --series-0: #0072b2; --series-1: #d55e00; --series-2: #00805e;
  --series-3: #a5578b; --mono: ui-monospace, "SF Mono", Menlo, Consolas, "Liberation Mono", monospace }
@media (prefers-color-scheme: dark) { :root { --page: #0f1318; --card: #171c23; --soft: #1f262f; --line: #2a323d;
  --ink: #e8ecf1; --muted: #9aa6b4; --good: #57d39b; --wait: #e8b04a; --series-0: #56b4e9; --series-1: #f5913e;
  --series-2: #3ecfa3; --series-3: #dd94c2 } }
* { box-sizing: border-box }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif }
main { max-width: 1120px; margin: auto; padding: clamp(20px, 4vw, 56px) clamp(14px, 3vw, 32px) }
h1 { margin: 0; font-size: clamp(1.5rem, 4.5vw, 2.25rem); letter-spacing: -.02em; line-height: 1.15;
  overflow-wrap: anywhere }
h2 { margin: 2.75rem 0 1rem; font-size: 1.2rem; letter-spacing: -.01em }
h3 { margin: 0 0 .6rem; font-size: 1rem }
h3 small { margin-left: .35em; color: var(--muted); font: .8rem var(--mono) }
p { margin: .5rem 0; color: var(--muted) }
code, pre { font-family: var(--mono); font-size: .85em; overflow-wrap: anywhere }
svg { display: block; width: 100%; height: auto }
svg * { stroke-linejoin: round }
.card, figure, dl div { margin: 0; padding: 1rem 1.15rem; background: var(--card);
  border: 1px solid var(--line); border-radius: 12px }
.eyebrow { margin: 0 0 .3rem; font-size: .9rem }
.progress { height: 5px; margin: 1.1rem 0 1.4rem; border-radius: 3px; background: var(--line); overflow: hidden }
.progress div { height: 100%; border-radius: 3px; background: #d9982b }
.finished .progress div { background: var(--good) }
.state { color: var(--wait); font-weight: 600 }
.finished .state { color: var(--good) }
.warning { margin: 0 0 12px; padding: .7rem 1.15rem; border-left: 4px solid var(--series-1); border-radius: 4px;
  background: var(--soft); color: var(--ink) }
dl { display: grid; grid-template-columns: repeat(auto-fit, minmax(165px, 1fr)); gap: 12px; margin: 0 0 12px }
dt { color: var(--muted); font-size: .85rem }
dd { margin: .1rem 0 0; font-size: 1.45rem; font-weight: 650; letter-spacing: -.02em; white-space: nowrap;
  font-variant-numeric: tabular-nums }
dd small { display: block; white-space: normal; color: var(--muted); font-size: .8rem; font-weight: 400;
  letter-spacing: 0 }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 340px), 1fr)); gap: 12px;
  margin-top: 12px }
.narrow { display: none }
.columns { columns: 2 380px; column-gap: 12px }
.columns .card { break-inside: avoid; margin-bottom: 12px }
.scroll { width: fit-content; min-width: min(100%, 34rem); max-width: 100%; overflow-x: auto }
table { border-collapse: collapse; width: 100%; font-size: .9rem; font-variant-numeric: tabular-nums }
th, td { padding: .34rem 1.2rem .34rem 0; border-top: 1px solid var(--line); text-align: left; vertical-align: top }
th { color: var(--muted); font-weight: 400 }
tr:first-child > * { border-top: 0 }
.answers td:nth-child(4) { width: 40% }
.answers .right td:nth-child(2) { color: var(--good) }
.answers .wrong td:nth-child(2) { color: var(--series-1) }
.bar { display: block; height: .7em; min-width: 1px; border-radius: 3px; background: var(--series-0) }
section > .card + .card { margin-top: 12px }
.heat table { margin-bottom: 1rem; font-family: var(--mono); font-size: .85rem }
.heat :is(th, td) { padding: 0 .6rem 0 0; border: 0; white-space: pre; line-height: 1.35 }
.heat th { color: var(--ink); font-weight: 650; width: 1ch }
.heat caption { padding-bottom: .2rem; color: var(--series-1); text-align: left; white-space: pre }
.heat span { background: color-mix(in srgb, var(--series-0) var(--share), transparent) }
.near span { display: inline-block; margin-right: .9em; overflow-wrap: anywhere }
.near small { color: var(--muted) }
.near th { color: var(--ink); font-weight: 650 }
.card.tree th { width: 50%; font: .8rem/1.7 var(--mono); overflow-wrap: anywhere }
.card.tree td { padding-right: 0; font: .8rem/1.7 var(--mono); overflow-wrap: anywhere }
.measured :is(th[scope=col], td) { text-align: right; padding-right: 0; padding-left: 1.2rem }
.measured th[scope=col] { color: var(--ink); font-weight: 600 }
.measured th small { display: block; color: var(--muted); font-weight: 400 }
.measured tbody tr:first-child > * { border-top: 1px solid var(--line) }
.samples { padding-block: .3rem }
details { padding: .5rem 0 }
details + details { border-top: 1px solid var(--line) }
summary { cursor: pointer; font-weight: 600 }
pre { margin: .7rem 0 .3rem; padding: .9rem 1rem; border-radius: 8px; background: var(--soft); line-height: 1.55;
  white-space: pre-wrap }
pre b { color: var(--series-0); font-weight: 700 }
footer { margin-top: 2.75rem; padding-top: 1rem; border-top: 1px solid var(--line); font-size: .9rem }
@media (max-width: 700px) { .wide { display: none } .narrow { display: block }
  dl { grid-template-columns: 1fr 1fr } dl div:last-child:nth-child(odd) { grid-column: 1 / -1 }
  figure { padding: .8rem .7rem }
  dd { font-size: 1.25rem } .card, dl div { padding-inline: .9rem } }
"""

_PAGE = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$recipe: run report</title>
<style>$style</style>
</head>
<body>
<main>
<header class="$state">
<p class="eyebrow">$device</p>
<h1>$recipe</h1>
<p><span class="state">$status</span> $progress</p>
<div class="progress"><div style="width: $percent%"></div></div>
</header>
$warnings
<dl>$tiles</dl>
<figure><div class="wide">$loss</div><div class="narrow">$loss_narrow</div></figure>
<div class="pair"><figure>$learning_rate</figure><figure>$throughput</figure></div>
$answers
$words
$samples
$measured
<section><h2>Config</h2><div class="columns">$config</div></section>
<section><h2>Environment</h2><div class="columns">$environment</div></section>
<footer>$continuation<p><code>python -m train.report RUN</code> rebuilds this page from the run's folder.</p></footer>
</main>
</body>
</html>
""")


def render_page(
    config: Object,
    environment: Object,
    rows: Rows,
    samples: Rows,
    answers: Object | None,
    words: Object | None,
    drawings: dict[str, str],
) -> str:
    """The document.

    Args:
      config: the run's config, nested objects with a key `type`.
      environment: what it ran on.
      rows: its metrics, in step order.
      samples: objects with step, prompt and text.
      answers: what `train.answers.describe` made of the newest, and their step.
      words: what `train.words.describe` made of the newest parameters, and their step.
      drawings: what `train.plots.draw_plots` made of the rows and words.
    """
    step, total = max((row["step"] for row in rows), default=0), config.get("total_steps")
    finished = total is not None and step >= total
    return _PAGE.substitute(
        {name: plots.inline(drawings[name], name, label) for name, label in _LABELS.items()},
        style=_STYLE,
        recipe=_text(config.get("recipe", "run")),
        device=_text(" x ".join(str(environment[key]) for key in ("devices", "device") if key in environment)),
        state="finished" if finished else "unfinished",
        status="Finished" if finished else "Unfinished",
        progress=f"at step {step:,}" + (f" of {total:,}" if total else ""),
        percent=f"{100 * min(1, step / total) if total else 0:.1f}",
        warnings="".join(f'<p class="warning">{_text(line)}</p>' for line in _warnings(rows)),
        tiles="".join(
            f"<div><dt>{_text(name)}</dt><dd>{_text(value)}<small>{_text(remark)}</small></dd></div>"
            for name, value, remark in _tiles(rows, environment, of_words=words is not None)
        ),
        samples=_samples(samples),
        answers="" if answers is None else _answers(answers),
        words="" if words is None else _words(words, drawings["positions"]),
        measured=_measured(rows),
        config="".join(_section(*section) for section in _sections("run", config)),
        environment="".join(_section(*section) for section in _sections("machine", environment)),
        continuation="" if finished else _continuation(environment),
    )


def _tiles(rows: Rows, environment: Object, *, of_words: bool) -> Iterator[tuple[str, str, str]]:
    """The figures at the head of the page: name, value, remark."""
    splits = list(dict.fromkeys(row["split"] for row in rows if "loss" in row))
    counted = plots.counted(rows)
    unit = "nats/token, " if counted == "tokens" else ""
    preferred = [name for name in ("validation", "dev", *splits) if name in splits and name != "train"]
    split = preferred[0] if preferred else "train"
    losses = [(row["loss"], row["step"]) for row in rows if row["split"] == split and "loss" in row]
    finite = [pair for pair in losses if _is_finite(pair[0])]
    if finite:
        loss, step = min(finite)
        yield f"Best {split} loss", _number(loss), f"{unit}step {step:,}"
    if losses:
        loss, step = losses[-1]
        yield f"Final {split} loss", _number(loss), f"{unit}step {step:,}"
    if finite and of_words:
        loss, step = min(finite)
        yield f"Best {split} perplexity", _number(math.exp(min(loss, _HOPELESS))), f"per word, step {step:,}"
    for key, title, remark in (("exact_match", "answers", "right, "), ("mean_score", "mean score", "")):
        shares = [(row[key], row["step"]) for row in rows if row["split"] == split and key in row]
        if shares:
            share, step = max(shares, key=lambda pair: pair[0])
            yield f"Best {split} {title}", f"{share:.1%}", f"{remark}step {step:,}"
    if parameters := environment.get("parameters"):
        yield "Parameters", _short(parameters), f"{parameters:,}"
    if seconds := _finite(rows, "train_seconds"):
        yield "Training time", _duration(seconds[-1]), f"{seconds[-1]:,.1f} seconds"
    if speeds := _finite(rows, f"{counted}_per_second"):
        yield "Throughput", _short(statistics.median(speeds)), f"{counted}/s, median"


def _warnings(rows: Rows) -> Iterator[str]:
    losses = [row for row in rows if "loss" in row]
    broken = [row for row in losses if not _is_finite(row["loss"])]
    if broken:
        where = f"{broken[0]['split']}, step {broken[0]['step']:,}"
        yield f"{len(broken)} of {len(losses)} logged losses are not finite; the first: {where}."
    if (skipped := _finite(rows, "skipped_updates")) and skipped[-1]:
        yield f"{skipped[-1]:,} updates were skipped, because a loss or gradient was not finite."


def _measured(rows: Rows) -> str:
    """The last row of every split, beside one another."""
    last = {row["split"]: row for row in rows}
    if not last:
        return ""
    keys = dict.fromkeys(["loss", *(key for row in last.values() for key in row if key not in ("step", "split"))])
    head = "".join(
        f'<th scope="col">{_text(split)}<small>step {row["step"]:,}</small></th>' for split, row in last.items()
    )
    body = "".join(
        f'<tr><th scope="row">{_text(key.replace("_", " "))}</th>'
        + "".join(f"<td>{_text(_number(row[key])) if key in row else ''}</td>" for row in last.values())
        + "</tr>"
        for key in keys
        if any(key in row for row in last.values())
    )
    table = f'<table class="measured"><thead><tr><td></td>{head}</tr></thead><tbody>{body}</tbody></table>'
    return f'<section><h2>Last measured</h2><div class="card scroll">{table}</div></section>'


def _samples(samples: Rows) -> str:
    """Latest step first and open, the earlier ones folded; of very many steps an even choice."""
    steps = sorted({sample["step"] for sample in samples}, reverse=True)
    if not steps:
        return ""
    shown = steps[:: math.ceil(len(steps) / _MOST_SAMPLED_STEPS)]
    groups = []
    for step in shown:
        texts = "".join(_sample(sample["prompt"], sample["text"]) for sample in samples if sample["step"] == step)
        groups.append(f"<details{' open' * (step == shown[0])}><summary>Step {step:,}</summary>{texts}</details>")
    note = f"<p>{len(shown)} of {len(steps)} steps; all are in samples.jsonl.</p>" if len(shown) < len(steps) else ""
    return f'<section><h2>Samples</h2>{note}<div class="card samples">{"".join(groups)}</div></section>'


def _answers(answers: Object) -> str:
    """How many are right by how often their place occurs in training, what was looked at, and the first of them."""
    rows, step = answers["answers"], answers["step"]
    right = sum(row["given"] == row["answer"] for row in rows)
    parts = []
    for label, low, high in _SEEN:
        part = [row for row in rows if low <= row["seen"] <= high]
        if part:
            share = sum(row["given"] == row["answer"] for row in part) / len(part)
            bar = f'<span class="bar" style="width: {100 * share:.1f}%"></span>'
            parts.append(
                f'<tr><th scope="row">{label}</th><td>{len(part):,}</td><td>{share:.1%}</td><td>{bar}</td></tr>'
            )
    head = "<th>in training</th><th>questions</th><th>right</th><th></th>"
    by_seen = f'<table class="answers"><tr>{head}</tr>{"".join(parts)}</table>'
    listed = "".join(
        f'<tr class="{"right" if row["given"] == row["answer"] else "wrong"}"><td>{_text(row["question"])}</td>'
        f"<td>{_text(row['given'])}</td><td>{_text(row['answer'])}</td></tr>"
        for row in rows[:_MOST_ANSWERS]
    )
    cards = [f"<h3>By how often the place is an answer in training</h3>{by_seen}"]
    if answers["attention"]:
        heat = "".join(map(_heat, answers["attention"]))
        note = "Attention through all layers (rollout), each row scaled to its own largest weight."
        title = "What each character of an answer looks at"
        cards.append(f'<h3>{title}</h3><p>{note}</p><div class="heat">{heat}</div>')
    columns = "<th>question</th><th>given</th><th>expected</th>"
    first = f"The first {min(len(rows), _MOST_ANSWERS)} answers"
    cards.append(
        f'<details><summary>{first}</summary><table class="answers"><tr>{columns}</tr>{listed}</table></details>'
    )
    body = "".join(f'<div class="card scroll">{card}</div>' for card in cards)
    return f"<section><h2>Answers</h2><p>Step {step:,}: {right:,} of {len(rows):,} right.</p>{body}</section>"


def _words(words: Object, drawing: str) -> str:
    """What context is worth, and the neighbours of some words."""
    label = "Perplexity by position in the window"
    figure = plots.inline(drawing, "positions", label)
    rows = "".join(
        f'<tr><th scope="row">{_text(row["word"])}</th><td>'
        + " ".join(f"<span>{_text(word)} <small>{cosine:.2f}</small></span>" for word, cosine in row["near"])
        + "</td></tr>"
        for row in words["neighbours"]
    )
    note = (
        f"Step {words['step']:,}. At position 1 a word is predicted from one word before it, at position 2 from two: "
        f"means over {words['scored']:,} words of validation, each window read with nothing before it."
    )
    near = f"<h3>Nearest embeddings <small>cosine</small></h3><table>{rows}</table>"
    return (
        f"<section><h2>Words</h2><p>{note}</p>"
        f'<div class="pair"><figure>{figure}</figure><div class="card near">{near}</div></div></section>'
    )


def _heat(shown: Object) -> str:
    """The question once for each character of the answer, darker where that character attends to it."""
    expected = shown.get("answer", shown["given"])
    wrong = f"<caption>expected {_text(expected)}</caption>" if expected != shown["given"] else ""
    lines = []
    for character, weights in zip(shown["given"], shown["weights"], strict=True):
        most = max(weights) or 1.0
        cells = "".join(
            f'<span style="--share: {100 * weight / most:.0f}%">{_text(each)}</span>'
            for each, weight in zip(shown["text"], weights, strict=True)
        )
        lines.append(f"<tr><th>{_text(character)}</th><td>{cells}</td></tr>")
    return f"<table>{wrong}{''.join(lines)}</table>"


def _sample(prompt: str, text: str) -> str:
    rest = text.removeprefix(prompt) if text.startswith(prompt) else f"\n{text}"
    return f"<pre><b>{_text(prompt)}</b>{_text(rest)}</pre>"


def _sections(title: str, tree: Object) -> Iterator[tuple[str, str, list[tuple[str, str]]]]:
    """Title, type and rows: the tree's own values first, then every nested object as a section."""
    nested = {name: value for name, value in tree.items() if isinstance(value, dict)}
    yield title, _type(tree), list(_leaves({name: value for name, value in tree.items() if name not in nested}))
    for name, value in nested.items():
        yield name, _type(value), list(_leaves(value))


def _leaves(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, list) and any(isinstance(item, dict) for item in value):
        value = {str(index): item for index, item in enumerate(value)}
    if not isinstance(value, dict):
        yield name, value if isinstance(value, str) else "none" if value is None else json.dumps(value)
        return
    tag = _type(value)
    if name and tag:
        yield name, tag
    for key, item in value.items():
        if not (tag and key == "type"):
            yield from _leaves(item, f"{name}.{key}" if name else key)


def _type(tree: Object) -> str:
    """Name of the dataclass that a saved config's tag "module:Name" stands for, else nothing."""
    return str(tree.get("type", "")).partition(":")[2]


def _section(title: str, subtitle: str, rows: list[tuple[str, str]]) -> str:
    head = f"<h3>{_text(title)} <small>{_text(subtitle)}</small></h3>"
    body = "".join(
        f'<tr><th scope="row">{_text(name).replace("_", "_<wbr>")}</th><td>{_text(value)}</td></tr>'
        for name, value in rows
    )
    return f'<div class="card tree">{head}<table>{body}</table></div>'


def _continuation(environment: Object) -> str:
    command = environment.get("command")
    if not command:
        return ""
    command = command if isinstance(command, str) else " ".join(command)
    return f"<p>The run was started by <code>{_text(command)}</code>; the same command continues it.</p>"


def _text(value: object) -> str:
    return html.escape(str(value))


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _finite(rows: Rows, key: str) -> list[float]:
    return [row[key] for row in rows if _is_finite(row.get(key))]


def _number(value: Any) -> str:
    if not _is_finite(value):
        return "NaN" if value != value else str(value)
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{value:,.0f}"
    if abs(value) >= 100:
        return f"{value:.1f}"
    return f"{value:.4f}" if abs(value) >= 0.01 else f"{value:.3g}"


def _short(value: float) -> str:
    """Three digits and a unit: 10.8 M."""
    value = float(f"{value:.3g}")
    for size, unit in ((1e9, " B"), (1e6, " M"), (1e3, " k")):
        if value >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"
