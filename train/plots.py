"""The curves of a run as SVG: files that stand alone, and pieces of a page that follow its theme."""

import io
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:  # matplotlib takes half a second to import and a starting run has no use for it
    from matplotlib.axes import Axes

Rows = Sequence[dict[str, Any]]
Curve = tuple[np.ndarray, np.ndarray]

# Mid tones, legible on white and on near-black: an SVG file knows nothing about the page around it.
# Each is unlike the others, so that `inline` can hand every role to the page's own colours.
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
MOST_POINTS = 1200  # about one a pixel at the widest


def draw_plots(rows: Rows, words: dict[str, Any] | None = None) -> dict[str, str]:
    """SVG documents by name: loss, loss_narrow (for a small screen), learning_rate, throughput, and where there is what
    `train.words.describe` gives, positions."""
    drawings = {
        "loss": _draw("loss", (1040, 380), lambda axes: _loss(axes, rows, 5)),
        "loss_narrow": _draw("loss_narrow", (420, 330), lambda axes: _loss(axes, rows, 3)),
        "learning_rate": _draw("learning_rate", (480, 240), lambda axes: _learning_rate(axes, rows)),
        "throughput": _draw("throughput", (480, 240), lambda axes: _throughput(axes, rows)),
    }
    if words is not None:
        losses = np.array(words["positions"], float)
        drawings["positions"] = _draw("positions", (480, 430), lambda axes: _positions(axes, losses), "position")
    return drawings


def counted(rows: Rows) -> str:
    """What a run's loss is a mean over, by the name of its speed."""
    ending = "_per_second"
    return next((key.removesuffix(ending) for row in rows for key in row if key.endswith(ending)), "tokens")


def inline(svg: str, name: str, label: str) -> str:
    """The drawing as an element of an HTML page, its ids prefixed by name, its colours left to the page."""
    view_box, body = re.search(r'<svg[^>]*(viewBox="[^"]*")[^>]*>(.*)</svg>', svg, re.DOTALL).groups()  # type: ignore[union-attr]
    body = re.sub(r"<style.*?</style>", "", body, flags=re.DOTALL)
    body = re.sub(r'\bid="', f'id="{name}-', body)
    body = body.replace('xlink:href="#', f'href="#{name}-').replace("url(#", f"url(#{name}-")
    for role, colour in PALETTE.items():
        body = body.replace(colour, f"var({role})")
    return f'<svg {view_box} role="img" aria-label="{label}">{body}</svg>'


def curve(rows: Rows, split: str, key: str) -> Curve:
    """Steps and values of one number of one split; what is no number is NaN."""
    pairs = [(row["step"], row[key]) for row in rows if row["split"] == split and key in row]
    values = [value if isinstance(value, int | float) else np.nan for _, value in pairs]
    return np.array([step for step, _ in pairs], float), np.array(values, float)


def thin(steps: np.ndarray, values: np.ndarray, most: int = MOST_POINTS) -> Curve:
    """At most `most` points of a curve: the lowest and the highest of each stretch, so that no spike is lost."""
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
    """Mean of the finite values of a window around each of at most `most` points; NaN where there are none.

    The window is narrower at the start, where a loss falls fast.
    """
    index = np.unique(np.linspace(0, len(values) - 1, min(most, len(values))).astype(int))
    means = []
    for i in index:
        half = min(window // 2, i)
        near = values[i - half : i + half + 1]
        near = near[np.isfinite(near)]
        means.append(near.mean() if len(near) else np.nan)
    return steps[index], np.array(means)


def loss_limits(curves: Sequence[Curve]) -> tuple[float, float] | None:
    """Ends of the loss axis: high values of the first twentieth and rare spikes may lie above it.

    They are left out only where they would take more than a third of the height. None = nothing finite.
    """
    finite = [(steps[np.isfinite(values)], values[np.isfinite(values)]) for steps, values in curves]
    finite = [(steps, values) for steps, values in finite if len(values)]
    if not finite:
        return None
    every_step, every_value = (np.concatenate(parts) for parts in zip(*finite, strict=True))
    settled = every_step.min() + 0.05 * np.ptp(every_step)
    later = [values[steps >= settled] for steps, values in finite]
    low, top = every_value.min(), every_value.max()
    high = max(np.quantile(values, 0.99) for values in later if len(values))
    if top - low <= 1.5 * (high - low):
        high = top
    margin = 0.06 * (high - low) or 0.05 * abs(high) or 1.0
    return low - margin, high + margin


def _loss(axes: "Axes", rows: Rows, legend_columns: int) -> None:
    splits = list(dict.fromkeys(row["split"] for row in rows if "loss" in row))
    curves = {split: curve(rows, split, "loss") for split in splits}
    limits = loss_limits(list(curves.values()))
    if limits is None:
        _say_nothing_measured(axes)
    first = 0 if "train" in splits else 1  # the first colour is the training curve's in every run
    for number, split in enumerate(sorted(splits, key="train".__ne__), first):
        steps, values = curves[split]
        colour = SERIES[number % len(SERIES)]
        if split != "train":
            every = max(1, len(values) // 25)
            marker = MARKERS[(number - 1) % len(MARKERS)]
            axes.plot(*thin(steps, values), color=colour, lw=1.8, marker=marker, ms=4.5, markevery=every, label=split)
        elif len(values) < 50:
            axes.plot(steps, values, color=colour, lw=1.6, marker="o" if len(values) < 3 else "", ms=4.5, label=split)
        else:
            axes.plot(*thin(steps, values), color=colour, lw=1.0, alpha=0.45, label=split)
            axes.plot(*smooth(steps, values, len(values) // 40), color=colour, lw=1.8, label=f"{split}, smoothed")
    if limits:
        axes.set_ylim(*limits)
        top = max(np.nanmax(np.where(np.isfinite(values), values, -np.inf)) for _, values in curves.values())
        if top > limits[1]:
            axes.annotate(
                f"up to {top:.4g} above",
                (1, 1),
                (-4, -2),
                xycoords="axes fraction",
                textcoords="offset points",
                ha="right",
                va="top",
                color=PALETTE["--muted"],
            )
    legend = axes.figure.legend(
        handles=axes.lines,
        loc="outside upper left",
        ncols=legend_columns,
        title="Loss (nats per token)" if counted(rows) == "tokens" else "Loss",
        alignment="left",
        labelcolor=PALETTE["--muted"],
        frameon=False,
        borderpad=0,
    )
    legend.get_title().set(color=PALETTE["--ink"], fontsize=13, fontweight="bold")


def _learning_rate(axes: "Axes", rows: Rows) -> None:
    _single(axes, "Learning rate", 1.0, *curve(rows, "train", "learning_rate"))
    axes.yaxis.set_major_formatter(lambda value, _: re.sub(r"e([+-])0*", r"e\1", f"{value:g}"))


def _throughput(axes: "Axes", rows: Rows) -> None:
    from matplotlib.ticker import EngFormatter

    unit = counted(rows)
    steps, values = curve(rows, "train", f"{unit}_per_second")
    _single(axes, f"Throughput ({unit}/s)", 0.6, steps, values)
    if np.isfinite(values).any():
        median = float(np.median(values[np.isfinite(values)]))
        axes.axhline(median, color=PALETTE["--ink"], lw=1.2, ls=(0, (4, 3)), zorder=3)
    axes.yaxis.set_major_formatter(EngFormatter(sep=""))


def _positions(axes: "Axes", losses: np.ndarray) -> None:
    positions = np.arange(1.0, 1 + len(losses))
    _single(axes, "Perplexity by position", 0.45, positions, _perplexities(losses))
    positions, losses = smooth(positions, losses, len(losses) // 8)
    axes.plot(positions, _perplexities(losses), color=SERIES[0], lw=1.8)


def _perplexities(losses: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return np.exp(losses)


def _single(axes: "Axes", title: str, alpha: float, steps: np.ndarray, values: np.ndarray) -> None:
    axes.figure.suptitle(title, x=0.012, ha="left", color=PALETTE["--ink"], fontsize=13, fontweight="bold")
    finite = np.isfinite(values)
    if not finite.any():
        _say_nothing_measured(axes)
    axes.plot(*thin(steps, values), color=SERIES[0], alpha=alpha, marker="o" if finite.sum() < 3 else "", ms=4.5)
    axes.set_ylim(0, 1.08 * values[finite].max(initial=0.0) or 1.0)


def _say_nothing_measured(axes: "Axes") -> None:
    axes.text(0.5, 0.5, "nothing measured", transform=axes.transAxes, ha="center", color=PALETTE["--muted"])


def _draw(name: str, size: tuple[int, int], fill: Callable[["Axes"], None], x_label: str = "step") -> str:
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine
    from matplotlib.ticker import MaxNLocator

    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # the same picture whatever the user's matplotlibrc says
        matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": name, "font.size": 12})
        matplotlib.rcParams["text.parse_math"] = False  # a dollar sign in the name of a split is no formula
        figure = Figure(figsize=(size[0] / 72, size[1] / 72), layout=ConstrainedLayoutEngine(h_pad=0.1))
        axes = figure.add_subplot()
        fill(axes)
        round_steps = [1, 2, 2.5, 5, 10]
        axes.set_xlabel(x_label, color=PALETTE["--muted"], loc="right")
        axes.xaxis.set_major_locator(MaxNLocator(8 if size[0] > 720 else 5, integer=True, steps=round_steps))
        axes.yaxis.set_major_locator(MaxNLocator(6 if size[1] > 300 else 4, steps=round_steps))
        axes.xaxis.set_major_formatter(lambda step, _: f"{step:,.0f}")
        axes.margins(x=0.01)
        axes.set_xlim(left=0, right=None if axes.lines else 1)
        axes.grid(axis="y", color=PALETTE["--muted"], alpha=0.22, lw=1)
        axes.tick_params(length=0, pad=6, labelcolor=PALETTE["--muted"])
        axes.spines[["top", "left", "right"]].set_visible(False)
        axes.spines["bottom"].set(color=PALETTE["--muted"], alpha=0.5)
        stream = io.StringIO()
        no_metadata = {"Date": None, "Creator": None, "Format": None, "Type": None}
        figure.savefig(stream, format="svg", transparent=True, metadata=no_metadata)
    svg = re.sub(r"'DejaVu Sans'[^;\"]*", "system-ui, -apple-system, 'Segoe UI', sans-serif", stream.getvalue())
    svg = re.sub(r"<!--.*?-->\s*", "", svg, flags=re.DOTALL)
    # Hundredths of a pixel are invisible and half of the file.
    return re.sub(r' d="[^"]*"', lambda path: re.sub(r"(\.\d\d)\d+", r"\1", path[0]).replace(" \n", " "), svg)
