"""The page of a run's report: one HTML document with its charts and styles, which loads no other file."""

import json
from collections.abc import Iterator, Mapping, Sequence
from string import Template
from typing import Any, NamedTuple
from urllib.parse import quote

from jaxnlp.metric_kind import MetricKind
from jaxnlp.pages.page import document
from train.report.formats import duration, is_finite, number, short, text
from train.report.logged_run import LoggedRun, Object
from train.report.metrics import OBJECTIVE, Rows, spaced, title_of
from train.report.plots import inline
from train.report.sections import LoggedSection, render_sections

_BEST_TILES = 4
_MAX_FILES = 50

STYLE = """
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
a { color: var(--series-0) }
ul { margin: 0; padding-left: 1.1em }
:is(h2, h3) small { margin-left: .35em; color: var(--muted); font: .8rem var(--mono); letter-spacing: 0 }
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
dl { display: grid; grid-template-columns: repeat(auto-fit, minmax(190px, 1fr)); gap: 12px; margin: 0 0 12px }
dt { color: var(--muted); font-size: .85rem }
dd { margin: .1rem 0 0; font-size: 1.45rem; font-weight: 650; letter-spacing: -.02em; white-space: nowrap;
  font-variant-numeric: tabular-nums }
dd small { display: block; white-space: normal; color: var(--muted); font-size: .8rem; font-weight: 400;
  letter-spacing: 0 }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 300px), 1fr)); gap: 12px;
  margin-top: 12px }
.narrow { display: none }
figure + figure { margin-top: 12px }
.pair > figure + figure { margin-top: 0 }
.columns { columns: 2 380px; column-gap: 12px }
.columns .card { break-inside: avoid; margin-bottom: 12px }
.scroll { width: fit-content; min-width: min(100%, 34rem); max-width: 100%; overflow-x: auto }
table { border-collapse: collapse; width: 100%; font-size: .9rem; font-variant-numeric: tabular-nums }
th, td { padding: .34rem 1.2rem .34rem 0; border-top: 1px solid var(--line); text-align: left; vertical-align: top }
th { color: var(--muted); font-weight: 400 }
tr:first-child > * { border-top: 0 }
.number { text-align: right }
.mark { width: 1.2em; padding-right: .6rem; font-weight: 650 }
.mark.good { color: var(--good) }
.mark.bad { color: var(--series-1) }
.section td { white-space: pre-wrap }
.section th { white-space: nowrap }
.section p { font-size: .9rem }
.section thead + tbody tr:first-child > * { border-top: 1px solid var(--line) }
.section .card > pre:first-child { margin-top: .3rem }
.steps :is(.card, figure) { padding: .5rem 0 .2rem; border: 0 }
.section p:first-child { margin-top: 0 }
.section > :is(.card, figure) + :is(.card, figure) { margin-top: 12px }
.section figure { width: fit-content; max-width: 100% }
.section .lines { width: 500px }
.section .long { min-width: 13rem }
.curves { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 420px), 1fr)); gap: 12px }
.section .curves .lines { width: auto; margin: 0 }
.share { white-space: nowrap }
.share > span { display: inline-block; vertical-align: middle }
.share > span:first-child { width: 3.6em; margin-right: .7em; text-align: right }
.track { width: clamp(5rem, 18vw, 12rem); height: .7em; border-radius: 3px; background: var(--soft) }
.bar { display: block; height: 100%; min-width: 1px; border-radius: 3px; background: var(--series-0) }
.heat { font-family: var(--mono); font-size: .85rem }
.heat :is(th, td) { padding: 0 .6rem 0 0; border: 0; white-space: pre; line-height: 1.35 }
.heat th { color: var(--ink); font-weight: 650; width: 1ch }
.heat caption { padding-bottom: .3rem; color: var(--muted); text-align: left; white-space: pre }
.heat span { background: color-mix(in srgb, var(--series-0) calc(.7 * var(--share)), transparent) }
.heat.words :is(th, td) { line-height: 1.7 }
.heat.words span { padding: .1em .35em; margin-right: 2px; border-radius: 3px }
.picture img { display: block; max-width: 100%; height: auto }
.card.tree th { width: 50%; font: .8rem/1.7 var(--mono); overflow-wrap: anywhere }
.card.tree td { padding-right: 0; font: .8rem/1.7 var(--mono); overflow-wrap: anywhere }
.measured :is(th[scope=col], td) { text-align: right; padding-right: 0; padding-left: 1.2rem }
.measured th[scope=col] { color: var(--ink); font-weight: 600 }
.measured th small { color: var(--muted); font-weight: 400 }
.measured th[scope=col] small { display: block }
.measured th[scope=row] small { margin-left: .35em }
.measured tbody tr:first-child > * { border-top: 1px solid var(--line) }
.steps { padding-block: .3rem }
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

_BODY = Template("""<main>
<header class="$state">
<p class="eyebrow">$place</p>
<h1>$recipe</h1>
<p><span class="state">$status</span> $progress</p>
<div class="progress"><div style="width: $percent%"></div></div>
</header>
$warnings
<dl>$tiles</dl>
$charts
<div class="pair">$pair</div>
$sections
$measured
$files
<section><h2>Config</h2><div class="columns">$config</div></section>
<section><h2>Environment</h2><div class="columns">$environment</div></section>
<footer>$continuation<p><code>jaxnlp report RUN</code> rebuilds this page from the run's folder.</p></footer>
</main>""")


class Figure(NamedTuple):
    """A chart of the page.

    Attributes:
      name: name of its SVG file.
      label: description for screen readers.
      wide: SVG.
      narrow: SVG for small screens; None = the chart shares a row with others.
    """

    name: str
    label: str
    wide: str
    narrow: str | None = None


def render_page(
    run: LoggedRun,
    sections: Sequence[LoggedSection],
    figures: Sequence[Figure],
    files: Sequence[str] = (),
) -> str:
    """The document.

    Args:
      run: the run's logs.
      sections: of the task, in step order.
      figures: the charts.
      files: paths in the folder to link to.
    """
    step, total, early, environment = run.step, run.total_steps, run.early_stop, run.environment
    status = "Finished" if run.finished else "Stopped early" if early else "Unfinished"
    progress = f"at step {step:,}" + (f" of {total:,}" if total else "") + (f": {text(early)}" if early else "")
    if run.averaged:
        status, progress = "Average", f"of {len(run.averaged)} checkpoints"
    recipe = run.config.get("recipe", "run")
    device = " x ".join(str(environment[key]) for key in ("devices", "device") if key in environment)
    shown_environment = {key: value for key, value in environment.items() if key not in ("metrics", "best_metric")}
    title = recipe if run.name == recipe else f"{run.name} ({recipe})"
    body = _BODY.substitute(
        recipe=text(recipe),
        place=f"Run <code>{text(run.name)}</code>" + (f" on {text(device)}" if device else ""),
        state="finished" if run.finished or early else "unfinished",
        status=status,
        progress=progress,
        percent=f"{100 * min(1, step / total) if total else 0:.1f}",
        warnings="".join(f'<p class="warning">{text(line)}</p>' for line in _warnings(run)),
        tiles="".join(
            f"<div><dt>{text(name)}</dt><dd>{text(value)}<small>{text(remark)}</small></dd></div>"
            for name, value, remark in _tiles(run)
        ),
        charts="".join(_chart(figure, index) for index, figure in enumerate(figures) if figure.narrow is not None),
        pair="".join(_chart(figure, index) for index, figure in enumerate(figures) if figure.narrow is None),
        sections=render_sections(sections),
        measured=_measured(run.rows, run.metrics),
        files=_files(files),
        config="".join(_section(*section) for section in _sections("run", run.config)),
        environment="".join(_section(*section) for section in _sections("machine", shown_environment)),
        continuation="" if run.finished or early else _continuation(environment),
    )
    return document(f"{title}: run report", body, STYLE)


def _chart(figure: Figure, index: int) -> str:
    wide = inline(figure.wide, f"chart-{index}", figure.label)
    if figure.narrow is None:
        return f"<figure>{wide}</figure>"
    narrow = inline(figure.narrow, f"chart-{index}-narrow", figure.label)
    return f'<figure><div class="wide">{wide}</div><div class="narrow">{narrow}</div></figure>'


def _tiles(run: LoggedRun) -> Iterator[tuple[str, str, str]]:
    """The numbers at the top of the page: name, value, remark. Metrics of only training come last."""
    measured = [(name, *best) for name in run.metrics if (best := run.best(name)) is not None]
    for name, split, value, step in sorted(measured, key=lambda each: each[1] == "train")[:_BEST_TILES]:
        metric, title = run.metrics[name], title_of(name, run.metrics)
        meaning = "" if metric.per == title else f"{metric.per or f'over {spaced(metric.of)}'}, "
        yield f"Best {split} {title}", number(value), f"{meaning}{metric.better} is better, step {step:,}"
    if is_finite(parameters := run.environment.get("parameters")) and parameters:
        yield "Parameters", short(parameters), f"{parameters:,}"
    if run.train_seconds is not None:
        yield "Training time", duration(run.train_seconds), "without evaluation and saving"
    if run.speed is not None:
        share = "" if run.peak_share is None else f"; {run.peak_share:.0%} of the peak in bfloat16"
        yield "Throughput", short(run.speed), f"{run.counted}/s, median{share}"


def _warnings(run: LoggedRun) -> Iterator[str]:
    if not run.metrics:
        yield "environment.json declares no metrics, so none is drawn."
    for name in dict.fromkeys([*run.metrics, OBJECTIVE]):
        logged = [row for row in run.rows if name in row]
        broken = [row for row in logged if not is_finite(row[name])]
        if broken:
            where = f"{broken[0]['split']}, step {broken[0]['step']:,}"
            yield f"{len(broken)} of {len(logged)} logged values of {name} are not finite; the first: {where}."
    if (skipped := run.values("skipped_updates")) and skipped[-1]:
        yield f"{skipped[-1]:,} updates were skipped, because a loss or gradient was not finite."


def _measured(rows: Rows, metrics: Mapping[str, MetricKind]) -> str:
    """The last row of every split, side by side."""
    last = {row["split"]: row for row in rows}
    if not last:
        return ""
    keys = dict.fromkeys([*metrics, *(key for row in last.values() for key in row if key not in ("step", "split"))])
    head = "".join(
        f'<th scope="col">{text(split)}<small>step {row["step"]:,}</small></th>' for split, row in last.items()
    )
    body = "".join(
        f'<tr><th scope="row">{text(title_of(key, metrics))}{_unit(key, metrics)}</th>'
        + "".join(f"<td>{text(number(row[key])) if key in row else ''}</td>" for row in last.values())
        + "</tr>"
        for key in keys
        if any(key in row for row in last.values())
    )
    table = f'<table class="measured"><thead><tr><td></td>{head}</tr></thead><tbody>{body}</tbody></table>'
    return f'<section><h2>Last measured</h2><div class="card scroll">{table}</div></section>'


def _files(files: Sequence[str]) -> str:
    """Links to files of the run's folder."""
    if not files:
        return ""
    shown = "".join(f'<li><a href="{quote(f"./{name}")}">{text(name)}</a></li>' for name in files[:_MAX_FILES])
    more = f"<p>And {len(files) - _MAX_FILES:,} more in the folder.</p>" if len(files) > _MAX_FILES else ""
    return (
        f'<section><h2>Predictions and other files</h2><div class="card scroll"><ul>{shown}</ul>{more}</div></section>'
    )


def _unit(key: str, metrics: Mapping[str, MetricKind]) -> str:
    """The unit of a metric, unless its name has it, as in `positions_per_token`."""
    unit = metrics[key].per if key in metrics else ""
    return f"<small>{text(unit)}</small>" if unit not in ("", title_of(key, metrics)) else ""


def _sections(title: str, tree: Object) -> Iterator[tuple[str, str, list[tuple[str, str]]]]:
    """Title, type and rows: first the direct values of the tree, then a section for every nested object."""
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
    """Name of the dataclass in a saved config's tag "module:Name"; "" without a tag."""
    return str(tree.get("type", "")).partition(":")[2]


def _section(title: str, subtitle: str, rows: list[tuple[str, str]]) -> str:
    head = f"<h3>{text(title)} <small>{text(subtitle)}</small></h3>"
    body = "".join(
        f'<tr><th scope="row">{text(name).replace("_", "_<wbr>")}</th><td>{text(value)}</td></tr>'
        for name, value in rows
    )
    return f'<div class="card tree">{head}<table>{body}</table></div>'


def _continuation(environment: Object) -> str:
    command = environment.get("command")
    if not command:
        return ""
    command = command if isinstance(command, str) else " ".join(command)
    return f"<p>The run was started by <code>{text(command)}</code>; the same command continues it.</p>"
