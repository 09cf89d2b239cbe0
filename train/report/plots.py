"""The curves of a run as SVG: as separate files, and as elements of a page that follow its theme."""

import functools
import io
import math
import re
import textwrap
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from jaxnlp.pages.content import Lines
from train.report.formats import text as escaped
from train.report.metrics import OBJECTIVE, Chart, capitalized, splits_of, title_of, title_without_part

if TYPE_CHECKING:  # matplotlib takes half a second to import, and a run that starts does not need it
    from matplotlib.axes import Axes

Rows = Sequence[dict[str, Any]]
Curve = tuple[np.ndarray, np.ndarray]

# Mid tones that are legible on white and on near-black, because an SVG file does not depend on the page.
# All differ, so that `inline` can replace each by the page's own colour for the same role.
PALETTE = {
    "--ink": "#6c7683",
    "--muted": "#78828f",
    "--series-0": "#1f7fc0",
    "--series-1": "#d9651b",
    "--series-2": "#0f9d76",
    "--series-3": "#b8649a",
}
SERIES = [colour for role, colour in PALETTE.items() if role.startswith("--series")]
MARKERS = "osD^"
STYLES = ("-", "--", ":", "-.")
MAX_POINTS = 1200  # about one for each pixel at the maximum width
MAX_CURVES = 16  # colours times line styles
MAX_LABEL, MAX_TITLE = 59, 200  # characters; two such labels fit side by side in a wide chart
LEGEND_LINE = 20  # pixels
FEW_LINES = 4
"""A chart with more lines of title and legend than this is higher."""
SMALL = (360, 220)  # pixels; three such charts share a row
FLAT = 2 / 3
"""A chart has a logarithmic axis if the values after the start would use less than this share of a linear axis."""


class Series(NamedTuple):
    """One metric on one split: one curve of a chart."""

    split: str
    metric: str
    steps: np.ndarray
    values: np.ndarray


def draw_chart(chart: Chart, rows: Rows, *, narrow: bool = False) -> str:
    """SVG of a chart's metrics by step, a curve for each metric and split; `narrow`: for small screens."""
    size = (420, 330) if narrow else (1040, 380)
    return _draw(f"{chart.name}{'_narrow' * narrow}", size, lambda axes: _fill_chart(axes, chart, rows))


def draw_learning_rate(rows: Rows) -> str:
    """SVG of the learning rate by step."""

    def fill(axes: "Axes") -> None:
        _fill_from_zero(axes, "Learning rate", 1.0, *curve(rows, "train", "learning_rate"))
        axes.yaxis.set_major_formatter(lambda value, _: re.sub(r"e([+-])0*", r"e\1", f"{value:g}"))

    return _draw("learning_rate", SMALL, fill)


def draw_gradient_norm(rows: Rows) -> str:
    """SVG of the gradient's norm by step, before clipping: the mean over the steps of each row."""
    norms = curve(rows, "train", "grad_norm")
    is_logarithmic = needs_logarithm([norms])

    def fill(axes: "Axes") -> None:
        _fill_from_zero(axes, "Gradient norm" + (", log scale" if is_logarithmic else ""), 0.6, *norms)
        if is_logarithmic:
            _set_limits(axes, [norms])

    return _draw("gradient_norm", SMALL, fill)


def draw_throughput(rows: Rows, of: str) -> str:
    """SVG of the throughput by step; `of`: the unit it counts."""

    def fill(axes: "Axes") -> None:
        from matplotlib.ticker import EngFormatter

        steps, values = curve(rows, "train", f"{of}_per_second")
        _fill_from_zero(axes, f"{plain(of).capitalize()}/s, dashed: median", 0.6, steps, values)
        if np.isfinite(values).any():
            median = float(np.median(values[np.isfinite(values)]))
            axes.axhline(median, color=PALETTE["--ink"], lw=1.2, ls=(0, (4, 3)), zorder=3)
        axes.yaxis.set_major_formatter(EngFormatter(sep=""))

    return _draw("throughput", SMALL, fill)


@functools.lru_cache(maxsize=128)  # the sections of earlier steps are drawn again at each evaluation
def draw_lines(lines: Lines) -> str:
    """SVG of a section's curves on common axes."""
    return _draw("lines", (460, 300), lambda axes: _fill_lines(axes, lines), plain(lines.x_label), steps=False)


def inline(svg: str, name: str, label: str) -> str:
    """The drawing as an element of an HTML page.

    Args:
      svg: an SVG of this module.
      name: prefix of its ids, unique on the page.
      label: description for screen readers, escaped here.
    """
    view_box, body = re.search(r'<svg[^>]*(viewBox="[^"]*")[^>]*>(.*)</svg>', svg, re.DOTALL).groups()  # type: ignore[union-attr]
    body = re.sub(r"<style.*?</style>", "", body, flags=re.DOTALL)

    def adapted(tag: str) -> str:
        tag = re.sub(r'\bid="', f'id="{name}-', tag)
        tag = tag.replace('xlink:href="#', f'href="#{name}-').replace("url(#", f"url(#{name}-")
        for role, colour in PALETTE.items():
            tag = tag.replace(colour, f"var({role})")
        return tag

    return f'<svg {view_box} role="img" aria-label="{escaped(label)}">{_in_tags(body, adapted)}</svg>'


def plain(text: str, most: int = MAX_LABEL) -> str:
    """A text that fonts and XML support: one line of limited length, cut in the middle, without control characters."""
    text = "".join(letter if letter.isprintable() else " " if letter.isspace() else "\ufffd" for letter in text)
    end = most // 2
    return text if len(text) <= most else f"{text[: most - 1 - end]}\u2026{text[-end:]}"


def curve(rows: Rows, split: str, key: str) -> Curve:
    """Steps and values of one metric on one split; other values than numbers become NaN."""
    pairs = [(row["step"], row[key]) for row in rows if row["split"] == split and key in row]
    values = [value if isinstance(value, int | float) else np.nan for _, value in pairs]
    return np.array([step for step, _ in pairs], float), np.array(values, float)


def downsample(steps: np.ndarray, values: np.ndarray, most: int = MAX_POINTS) -> Curve:
    """At most `most` points of a curve: the minimum and the maximum of each interval, to keep spikes visible."""
    if len(values) <= most:
        return steps, values
    finite = np.isfinite(values)
    kept = set()
    for stretch in np.array_split(np.arange(len(values)), most // 2):
        kept.add(stretch[np.where(finite, values, np.inf)[stretch].argmin()])
        kept.add(stretch[np.where(finite, values, -np.inf)[stretch].argmax()])
    index = sorted(kept)
    return steps[index], values[index]


def smooth(steps: np.ndarray, values: np.ndarray, window: int, most: int = 400) -> Curve:
    """Mean of the finite values of a window around each of at most `most` points; NaN if no value is finite.

    The window is narrower at the start, because a loss falls fast there.
    """
    indices = np.unique(np.linspace(0, len(values) - 1, min(most, len(values))).astype(int))
    means = []
    for index in indices:
        half = min(window // 2, index)
        near = values[index - half : index + half + 1]
        near = near[np.isfinite(near)]
        means.append(near.mean() if len(near) else np.nan)
    return steps[indices], np.array(means)


def value_limits(curves: Sequence[Curve]) -> tuple[float, float] | None:
    """Ends of a linear vertical axis that shows every finite value; None = no value is finite.

    If all values are 0, the axis ends at 1, and starts slightly below 0.
    """
    finite = _finite_values(curves)
    if not len(finite):
        return None
    low, high = finite.min(), finite.max()
    if low == high == 0.0:
        return -0.04, 1.0
    margin = 0.06 * (high - low) or 0.05 * abs(high)
    return low - margin, high + margin


def _finite_values(curves: Sequence[Curve]) -> np.ndarray:
    values = np.concatenate([np.zeros(0), *(values for _, values in curves)])
    return values[np.isfinite(values)]


def needs_logarithm(curves: Sequence[Curve]) -> bool:
    """Whether high values at the start, or rare high values, would flatten the rest of the curves on a linear axis.

    The start is the first twentieth of the steps. A logarithmic axis needs positive values.
    """
    finite = [(steps[np.isfinite(values)], values[np.isfinite(values)]) for steps, values in curves]
    finite = [(steps, values) for steps, values in finite if len(values)]
    if not finite or min(values.min() for _, values in finite) <= 0.0:
        return False
    start, end = min(steps.min() for steps, _ in finite), max(steps.max() for steps, _ in finite)
    later = [values[steps >= start + 0.05 * (end - start)] for steps, values in finite]
    low, top = min(values.min() for _, values in finite), max(values.max() for _, values in finite)
    return bool(max(np.quantile(values, 0.99) for values in later if len(values)) - low < FLAT * (top - low))


def series_of(chart: Chart, rows: Rows) -> list[Series]:
    """The measured curves of a chart, training curves first."""
    measured = [
        Series(split, metric, *curve(rows, split, metric))
        for metric in chart.metrics
        for split in splits_of(rows, metric)
    ]
    return sorted(measured, key=lambda series: series.split != "train")


def chart_title(chart: Chart, shown: Sequence[Series]) -> str:
    """The metrics by name, their unit and their direction: `Loss (nats per token), lower is better`."""
    metrics = list(dict.fromkeys(series.metric for series in shown)) or list(chart.metrics)
    names = list(dict.fromkeys(title_without_part(metric, chart.metrics) for metric in metrics))
    if OBJECTIVE in names and not shown:
        names.remove(OBJECTIVE)
    title = ", ".join(names[:3]) + (", \u2026" if len(names) > 3 else "")
    units = {chart.metrics[metric].per for metric in metrics}
    unit = units.pop() if len(units) == 1 else chart.unit
    return capitalized(title) + (f" ({unit})" if unit not in ("", title) else "") + f", {chart.better} is better"


def _fill_chart(axes: "Axes", chart: Chart, rows: Rows) -> None:
    measured = series_of(chart, rows)
    shown = measured[:MAX_CURVES]
    is_logarithmic = _set_limits(axes, [(series.steps, series.values) for series in shown])
    only_split = len({series.metric for series in shown}) == 1
    few = sum(series.split == "train" for series in shown) == 1
    handles: list[Any] = []
    # The training curve has the first colour in every run.
    for index, series in enumerate(shown, 0 if any(series.split == "train" for series in shown) else 1):
        steps, values = series.steps, series.values
        label = series.split if only_split else f"{series.split} {title_of(series.metric, chart.metrics)}"
        look = _look(index) | {"label": label}
        if series.split != "train":
            look |= {"marker": MARKERS[(index - 1) % len(MARKERS)], "markevery": max(1, len(values) // 25)}
            handles += axes.plot(*downsample(steps, values), **look)
        elif len(values) < 50:
            handles += axes.plot(steps, values, **look | {"lw": 1.6, "marker": "o" if len(values) < 3 else ""})
        else:
            raw = axes.plot(*downsample(steps, values), **look | {"lw": 1.0, "ls": "-", "alpha": 0.45})
            smoothed = smooth(steps, values, len(values) // 40)
            mean = axes.plot(*smoothed, **look | {"label": f"{label}, smoothed" if few else label})
            handles += [*raw, *mean] if few else mean
    left_out = f", first {len(shown)} of {len(measured)} curves" if len(shown) < len(measured) else ""
    scale = ", log scale" if is_logarithmic else ""
    _legend(axes, handles, chart_title(chart, shown) + scale + left_out)


def _look(index: int) -> dict[str, Any]:
    """Colour, line style and sizes of a curve."""
    style = STYLES[index // len(SERIES) % len(STYLES)]
    return {"color": SERIES[index % len(SERIES)], "ls": style, "lw": 1.8, "ms": 4.5}


def _set_limits(axes: "Axes", curves: Sequence[Curve]) -> bool:
    """Sets a vertical axis that shows every finite value of the curves. Returns: whether it is logarithmic."""
    limits = value_limits(curves)
    if limits is None:
        _say_nothing_measured(axes)
        return False
    if not needs_logarithm(curves):
        axes.set_ylim(*limits)
        return False
    positive = _finite_values(curves)
    margin = (positive.max() / positive.min()) ** 0.06
    axes.set_yscale("log")
    axes.set_ylim(positive.min() / margin, positive.max() * margin)
    return True


def _legend(axes: "Axes", handles: list[Any], title: str) -> None:
    """The title, on several lines if it is long, and a legend with as many columns as fit."""
    figure: Any = axes.figure
    width, height = 72 * figure.get_size_inches()
    labels = [plain(handle.get_label(), min(MAX_LABEL, int((width - 45) / 8))) for handle in handles]
    columns = max(1, min(5, int(width / (8 * max(map(len, labels), default=0) + 45))))
    titles = textwrap.wrap(plain(title, MAX_TITLE), int(width / 8.5))
    lines = len(titles) + math.ceil(len(labels) / columns)
    figure.set_figheight((height + LEGEND_LINE * max(0, lines - FEW_LINES)) / 72)
    legend = figure.legend(
        handles=handles,
        loc="outside upper left",
        ncols=columns,
        title="\n".join(titles),
        alignment="left",
        labelcolor=PALETTE["--muted"],
        frameon=False,
        borderpad=0,
    )
    for text, label in zip(legend.get_texts(), labels, strict=True):
        text.set_text(label)
    legend.get_title().set(color=PALETTE["--ink"], fontsize=13, fontweight="bold")


def _fill_lines(axes: "Axes", lines: Lines) -> None:
    shown = lines.lines[:MAX_CURVES]
    curves = [(_finite(line.x), _finite(line.y)) for line in shown]
    handles: list[Any] = []
    for index, (line, (x, y)) in enumerate(zip(shown, curves, strict=True)):
        marker = MARKERS[index % len(MARKERS)] if len(x) <= 25 else ""
        handles += axes.plot(*downsample(x, y), **_look(index), marker=marker, label=line.name)
    limits = value_limits(curves)
    if limits is None:
        _say_nothing_measured(axes)
    else:
        axes.set_ylim(*limits)
    left_out = f", first {len(shown)} of {len(lines.lines)} lines" if len(shown) < len(lines.lines) else ""
    named = [handle for handle in handles if handle.get_label()]
    _legend(axes, named, capitalized(lines.y_label) + left_out)


def _finite(values: Sequence[float]) -> np.ndarray:
    """Values that an axis supports; the others become NaN."""
    return np.array([value if abs(value) < 1e100 else np.nan for value in values], float)


def _fill_from_zero(axes: "Axes", title: str, alpha: float, steps: np.ndarray, values: np.ndarray) -> None:
    axes.figure.suptitle(title, x=0.012, ha="left", color=PALETTE["--ink"], fontsize=13, fontweight="bold")
    finite = np.isfinite(values)
    if not finite.any():
        _say_nothing_measured(axes)
    axes.plot(*downsample(steps, values), color=SERIES[0], alpha=alpha, marker="o" if finite.sum() < 3 else "", ms=4.5)
    axes.set_ylim(0, 1.08 * values[finite].max(initial=0.0) or 1.0)


def _say_nothing_measured(axes: "Axes") -> None:
    axes.text(0.5, 0.5, "nothing measured", transform=axes.transAxes, ha="center", color=PALETTE["--muted"])


def _draw(
    name: str, size: tuple[int, int], fill: Callable[["Axes"], None], x_label: str = "step", *, steps: bool = True
) -> str:
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine
    from matplotlib.ticker import MaxNLocator

    with matplotlib.rc_context(), warnings.catch_warnings():
        # Fonts only measure the texts here; the reader's browser draws them, so a missing glyph does not matter.
        warnings.simplefilter("ignore", UserWarning)
        matplotlib.rcdefaults()  # the same picture with every matplotlibrc
        matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": name, "font.size": 12})
        matplotlib.rcParams["text.parse_math"] = False  # a dollar sign in the name of a split does not start a formula
        figure = Figure(figsize=(size[0] / 72, size[1] / 72), layout=ConstrainedLayoutEngine(h_pad=0.1))
        axes = figure.add_subplot()
        fill(axes)
        round_steps = [1, 2, 2.5, 5, 10]
        axes.set_xlabel(x_label, color=PALETTE["--muted"], loc="right")
        axes.xaxis.set_major_locator(MaxNLocator(8 if size[0] > 720 else 5, integer=steps, steps=round_steps))
        most = 6 if size[1] > 300 else 4
        if axes.get_yscale() == "log":
            _logarithmic_ticks(axes, most, round_steps)
        else:
            axes.yaxis.set_major_locator(MaxNLocator(most, steps=round_steps))
        axes.margins(x=0.01)
        if steps:
            axes.xaxis.set_major_formatter(lambda step, _: f"{step:,.0f}")
            axes.set_xlim(left=0, right=None if axes.lines else 1)
        axes.grid(axis="y", color=PALETTE["--muted"], alpha=0.22, lw=1)
        axes.tick_params(length=0, pad=6, labelcolor=PALETTE["--muted"])
        axes.spines[["top", "left", "right"]].set_visible(False)
        axes.spines["bottom"].set(color=PALETTE["--muted"], alpha=0.5)
        stream = io.StringIO()
        no_metadata = {"Date": None, "Creator": None, "Format": None, "Type": None}
        figure.savefig(stream, format="svg", transparent=True, metadata=no_metadata)
    svg = re.sub(r"<!--.*?-->\s*", "", stream.getvalue(), flags=re.DOTALL)
    return _in_tags(svg, _smaller)


def _logarithmic_ticks(axes: "Axes", most: int, round_steps: Sequence[float]) -> None:
    """Ticks at round numbers if the axis has fewer than two powers of ten, otherwise at powers of ten."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

    low, high = axes.get_ylim()
    narrow = high < 20 * low
    axes.yaxis.set_major_locator(MaxNLocator(most, steps=round_steps) if narrow else LogLocator(numticks=most + 1))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.4g}" if value < 1e5 else f"{value:.0e}")


def _smaller(tag: str) -> str:
    """A tag with the reader's font, and with paths in hundredths of a pixel: more digits would double the file."""
    tag = re.sub(r"'DejaVu Sans'[^;\"]*", "system-ui, -apple-system, 'Segoe UI', sans-serif", tag)
    return re.sub(r' d="[^"]*"', lambda path: re.sub(r"(\.\d\d)\d+", r"\1", path[0]).replace(" \n", " "), tag)


def _in_tags(svg: str, change: Callable[[str], str]) -> str:
    """Changes only the tags; the run's texts between them stay."""
    return re.sub(r"<[^>]*>", lambda tag: change(tag[0]), svg)
