import html
import math
import re
import subprocess
import sys
import warnings
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from jaxnlp.pages.content import Line, Lines
from train.report.metrics import Chart, MetricKind
from train.report.plots import (
    MAX_CURVES,
    PALETTE,
    chart_title,
    curve,
    downsample,
    draw_chart,
    draw_gradient_norm,
    draw_learning_rate,
    draw_lines,
    draw_throughput,
    inline,
    needs_logarithm,
    plain,
    series_of,
    smooth,
    value_limits,
)

NATS = MetricKind("tokens", "nats", "lower")
LOSS = Chart("loss", "nats", {"loss": NATS, "objective": NATS})
HOSTILE = ("'DejaVu Sans', #6c7683 <a> $x$ & _", 'id="x" url(#a) d="1.23456"', 'xlink:href="#b" <!-- c -->')


def loss_row(step, split="train", **values):
    return {"step": step, "split": split, "loss": 1.0 / step} | values


@pytest.mark.thorough
def test_matplotlib_is_loaded_only_to_draw_and_pyplot_never():
    code = (
        "import sys, train.report; assert not {'matplotlib', 'jax'} & set(sys.modules);"
        "train.report.plots.draw_learning_rate([]);"
        "assert 'matplotlib' in sys.modules and 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[3], check=True)


def test_drawing_leaves_the_settings_of_matplotlib_alone():
    import matplotlib

    before = dict(matplotlib.rcParams)
    draw_learning_rate([loss_row(1)])
    assert dict(matplotlib.rcParams) == before


def test_downsampled_curve_keeps_ends_gaps_and_every_extreme_within_the_limit():
    steps, values = np.arange(10_000.0), np.random.default_rng(0).normal(size=10_000)
    values[[1234, 8765]] = 50.0, -50.0
    values[5000:5200] = np.nan
    few_steps, few_values = downsample(steps, values, 1000)
    assert len(few_values) <= 1000
    assert (np.diff(few_steps) > 0).all()
    np.testing.assert_array_equal(few_values, values[few_steps.astype(int)])
    assert np.nanmax(few_values) == 50.0
    assert np.nanmin(few_values) == -50.0
    assert np.isnan(few_values).any()
    assert few_steps[0] < 20
    assert few_steps[-1] >= 9980


def test_short_curve_is_not_downsampled():
    steps, values = np.arange(5.0), np.array([3.0, np.nan, 1.0, 2.0, np.inf])
    np.testing.assert_array_equal(downsample(steps, values, 5), (steps, values))


def test_smoothed_values_are_means_of_their_finite_neighbours():
    steps, values = np.arange(5.0), np.array([8.0, 4.0, np.nan, 2.0, 6.0])
    np.testing.assert_array_equal(smooth(steps, values, 3), (steps, [8.0, 6.0, 3.0, 4.0, 4.0]))


@pytest.mark.parametrize("window", [1, 4, 101])
def test_smoothing_keeps_a_constant_and_its_first_value_and_the_limit(window):
    steps, values = np.arange(1000.0), np.full(1000, 2.5)
    smooth_steps, smooth_values = smooth(steps, values, window, 300)
    assert len(smooth_steps) <= 300
    assert (smooth_steps[0], smooth_steps[-1]) == (0, 999)
    np.testing.assert_array_equal(smooth_values, 2.5)
    values[0] = 9.0
    assert smooth(steps, values, window)[1][0] == 9.0


def test_an_explosion_does_not_smear_over_what_follows_it():
    values = np.full(200, 2.0)
    values[50] = 1e20
    np.testing.assert_array_equal(smooth(np.arange(200.0), values, 5)[1][60:], 2.0)


def test_smoothing_leaves_a_gap_where_nothing_is_finite():
    values = np.full(50, 2.0)
    values[20:30] = np.nan, *[np.inf] * 9
    gap = np.isnan(smooth(np.arange(50.0), values, 3)[1])
    assert list(np.flatnonzero(gap)) == list(range(21, 29))


STEPS = np.arange(1.0, 1001.0)
FALLING = 2.0 + 9.0 * np.exp(-STEPS / 10)
SPIKE = np.where(STEPS == 500, 900.0, 2.0 + 1.0 / STEPS)


@pytest.mark.parametrize(
    ("curves", "expected"),
    [
        ([FALLING], True),
        ([SPIKE], True),
        ([3.0 - STEPS / 1000, 2.0 + STEPS / 500], False),
        ([np.where(STEPS == 7, np.inf, 3.0 - STEPS / 1000)], False),
        ([FALLING - 2.0 - 1e-9], False),  # the last ones are below 0
        ([np.full(1000, np.nan)], False),
        ([], False),
    ],
    ids=["first values", "a spike", "even", "not finite", "negative", "nothing", "no curve"],
)
def test_the_axis_is_logarithmic_where_high_values_would_flatten_the_rest(curves, expected):
    assert needs_logarithm([(STEPS, values) for values in curves]) is expected


def heights_of(drawing):
    """Vertical places of the axes' corners and of the points of lines within them, from the top."""
    paths = re.findall(r'<path d="(M [^"]*)"( clip-path|)', drawing)
    heights = [([float(y) for y in re.findall(r"[ML] \S+ (\S+)", path)], clipped) for path, clipped in paths]
    return heights[1][0], [y for places, clipped in heights if clipped for y in places]


@pytest.mark.parametrize("values", [FALLING, SPIKE, FALLING - 3.0], ids=["first values", "a spike", "negative"])
def test_every_value_of_a_chart_is_within_its_axes(values):
    rows = [loss_row(int(step), loss=value) for step, value in zip(STEPS, values, strict=True)]
    drawing = draw_chart(LOSS, rows)
    corners, found = heights_of(drawing)
    assert min(corners) < min(found) < min(corners) + 30.0
    assert max(corners) - 30.0 < max(found) < max(corners)
    assert ("Loss (nats per token), lower is better, log scale" in drawing) is bool(values.min() > 0.0)


def test_a_logarithmic_axis_spreads_the_later_losses_and_names_round_numbers():
    rows = [loss_row(int(step), loss=value) for step, value in zip(STEPS, FALLING, strict=True)]
    drawing = draw_chart(LOSS, rows)
    texts = re.findall(r"<text[^>]*>(.*?)</text>", drawing)
    assert {"2", "4", "10"} <= set(texts)
    wide = draw_chart(LOSS, [loss_row(step, loss=10.0 ** (8.0 / step)) for step in range(1, 101)])
    assert re.search(r"<text[^>]*>1e\+0[5-8]</text>", wide)


def test_axis_ignores_what_is_not_finite_and_is_never_empty():
    assert value_limits([]) is None
    assert value_limits([(np.array([1.0]), np.array([np.nan]))]) is None
    for value in (0.0, 2.0, -2.0):
        low, high = value_limits([(np.array([1.0, 2.0, 3.0]), np.array([value, np.inf, np.nan]))])
        assert low < value < high


def test_a_curve_of_zeros_has_an_axis_from_0_to_1():
    zeros = [(np.array([1.0, 2.0]), np.zeros(2))]
    low, high = value_limits(zeros)
    assert high == 1.0
    assert -0.1 < low < 0.0
    chart = draw_chart(
        Chart("scores", "", {"f1": MetricKind()}), [{"step": n, "split": "dev", "f1": 0.0} for n in (1, 2)]
    )
    for drawing in (chart, draw_lines(Lines((Line("", (1, 2), (0, 0)),), "x", "y"))):
        texts = re.findall(r"<text[^>]*>(.*?)</text>", drawing)
        assert {"0.0", "1.0"} <= set(texts)
        assert not any(text.startswith(("-", "\u2212")) for text in texts)


def test_curve_takes_one_number_of_one_split_and_reads_what_is_none_as_nan():
    rows = [
        {"step": 1, "split": "train", "loss": 3.0},
        {"step": 1, "split": "validation", "loss": 9.0},
        {"step": 2, "split": "train", "loss": None},
        {"step": 3, "split": "train"},
        {"step": 4, "split": "train", "loss": 1},
    ]
    np.testing.assert_array_equal(curve(rows, "train", "loss"), [[1, 2, 4], [3.0, np.nan, 1.0]])


@pytest.mark.thorough
def test_long_runs_draw_small_files():
    rows = [
        {"step": step, "split": "train", "loss": 1 + (step * 7919 % 101) / 100, "learning_rate": 1e-3}
        for step in range(1, 20_001)
    ]
    for drawing in (draw_chart(LOSS, rows), draw_learning_rate(rows)):
        assert len(drawing) < 60_000
        assert all(path.count(" L ") < 2000 for path in re.findall(r' d="([^"]*)"', drawing))


@pytest.fixture(scope="module")
def hostile_chart():
    """Two metrics on five splits, of which three have names that look like parts of an SVG file."""
    rows = [loss_row(step, split, objective=2.0) for step in (1, 2) for split in ("train", "validation", *HOSTILE)]
    return draw_chart(LOSS, rows, narrow=True)


def test_inlined_drawing_leaves_every_colour_to_the_page(hostile_chart):
    element = inline(hostile_chart, "name", 'A "label"')
    assert element.startswith('<svg viewBox="0 0 ')
    assert 'aria-label="A &quot;label&quot;"' in element
    colours = re.findall(r"(?:fill|stroke): (#\w+|var\(\S+?\)|none)", element)
    assert len(colours) > 10
    assert set(colours) <= {"none"} | {f"var({role})" for role in PALETTE}
    assert "http" not in element
    ids = re.findall(r'<[^>]*\bid="([^"]*)"', element)
    assert ids
    assert all(each.startswith("name-") for each in ids)


def test_names_of_splits_are_drawn_letter_for_letter(hostile_chart):
    for drawing in (hostile_chart, inline(hostile_chart, "name", "label")):
        for name in HOSTILE:
            assert html.escape(f"{name} loss", quote=False) in drawing
        ElementTree.fromstring(drawing)


def test_each_metric_and_split_is_a_curve_of_its_own(hostile_chart):
    rows = [loss_row(1, objective=2.0), loss_row(1, "validation"), loss_row(2)]
    assert [(series.split, series.metric, list(series.values)) for series in series_of(LOSS, rows)] == [
        ("train", "loss", [1.0, 0.5]),
        ("train", "objective", [2.0]),
        ("validation", "loss", [1.0]),
    ]
    texts = re.findall(r"<text[^>]*>(.*?)</text>", hostile_chart)
    for name in ("train loss", "train objective", "validation loss", "validation objective"):
        assert name in texts
    assert "Loss, objective (nats per token), lower is better" in " ".join(texts)


@pytest.mark.parametrize(
    ("metrics", "measured", "title"),
    [
        ({"loss": NATS, "objective": NATS}, [], "Loss (nats per token)"),
        ({"loss": NATS, "objective": NATS}, ["loss"], "Loss (nats per token)"),
        ({"sst/loss": NATS, "sts/loss": NATS}, ["sst/loss", "sts/loss"], "Loss (nats per token)"),
        ({"loss": NATS, "b": MetricKind("words", "nats", "lower")}, ["loss", "b"], "Loss, b (nats)"),
        ({"exact_match": MetricKind()}, ["exact_match"], "Exact match"),
        ({"steps_per_word": MetricKind("words", "steps", "lower")}, ["steps_per_word"], "Steps per word"),
        ({"a/f1": MetricKind(title="a F1"), "b/f1": MetricKind(title="b F1")}, ["a/f1", "b/f1"], "F1"),
        ({"a / b_c/f1": MetricKind(title="a / b_c F1")}, ["a / b_c/f1"], "F1"),
        ({"chrf": MetricKind(title="chrF")}, ["chrf"], "chrF"),
        ({name: MetricKind() for name in "abcde"}, list("abcde"), "A, b, c, \u2026"),
    ],
)
def test_a_title_names_the_metrics_and_their_unit(metrics, measured, title):
    chart = Chart("c", next(iter(metrics.values())).unit, metrics)
    assert (
        chart_title(chart, series_of(chart, [{"step": 1, "split": "train", **dict.fromkeys(measured, 1.0)}]))
        == f"{title}, {chart.better} is better"
    )


def test_more_curves_than_can_be_told_apart_are_left_out_and_the_title_says_so():
    chart = Chart("scores", "", {f"part{n}/f1": MetricKind() for n in range(MAX_CURVES + 3)})
    rows = [{"step": step, "split": "dev", **dict.fromkeys(chart.metrics, 0.5)} for step in (1, 2)]
    drawing = draw_chart(chart, rows)
    assert f"F1, higher is better, first {MAX_CURVES} of {MAX_CURVES + 3} curves" in drawing
    assert f"dev part{MAX_CURVES - 1} f1" in drawing
    assert f"dev part{MAX_CURVES} f1" not in drawing


def test_throughput_is_that_of_the_progress_metric():
    rows = [{"step": step, "split": "train", "questions_per_second": 5.0} for step in (1, 2)]
    assert "Questions/s, dashed: median" in draw_throughput(rows, "questions")
    assert "nothing measured" not in draw_throughput(rows, "questions")
    assert "nothing measured" in draw_throughput(rows, "tokens")


def test_the_gradient_norm_is_drawn_where_it_was_logged():
    rows = [loss_row(step, grad_norm=1.0 / step) for step in range(1, 101)]
    assert "Gradient norm, log scale" in draw_gradient_norm(rows)
    even = draw_gradient_norm([loss_row(step, grad_norm=2.0) for step in (1, 2)])
    assert "Gradient norm<" in even
    assert "nothing measured" not in even
    assert "nothing measured" in draw_gradient_norm([loss_row(1)])


def test_long_titles_and_names_stay_within_a_narrow_chart():
    metrics = {f"root_mean_squared_error_{n}": MetricKind("pairs", "degrees Celsius", "lower") for n in range(2)}
    chart = Chart("errors", "degrees Celsius", metrics)
    rows = [{"step": step, "split": "validation", **dict.fromkeys(metrics, 0.5)} for step in (1, 2)]
    texts = re.findall(r"<text[^>]*>(.*?)</text>", draw_chart(chart, rows, narrow=True))
    assert max(map(len, texts)) < 50
    places = re.findall(r'translate\((\S+) \S+\)"[^>]*>validation root', draw_chart(chart, rows, narrow=True))
    assert len(set(places)) < 2  # below each other


@pytest.mark.parametrize("count", [12, 16])
def test_many_long_names_leave_room_for_the_curves_and_can_be_told_apart(count):
    names = [f"Complaint / billing questions and refunds of the department {n:02}" for n in range(count)]
    chart = Chart("f1", "", {f"{name}/f1": MetricKind(title=f"{name} F1") for name in names})
    rows = [{"step": step, "split": "validation", **dict.fromkeys(chart.metrics, 0.5)} for step in (1, 2)]
    lines = Lines(tuple(Line(name, (1, 2), (1, 2)) for name in names), "recall", "precision")
    for drawing in (draw_chart(chart, rows), draw_chart(chart, rows, narrow=True), draw_lines(lines)):
        root = ElementTree.fromstring(drawing)
        (axes,) = root.iter("{http://www.w3.org/2000/svg}rect")  # of the clip path
        assert float(axes.get("height")) >= 150
        names_shown = [text for text in re.findall(r"<text[^>]*>(.*?)</text>", drawing) if "Complaint" in text]
        assert len(set(names_shown)) == count


def test_lines_of_a_section_have_their_names_and_labels():
    lines = Lines((Line("_each", (1, 2, 3), (4, 5, 6)), Line("$mean$", (1, 3), (5, 5))), "position", "perplexity")
    texts = re.findall(r"<text[^>]*>(.*?)</text>", draw_lines(lines))
    assert {"_each", "$mean$", "position", "Perplexity"} <= set(texts)
    assert "step" not in texts
    assert draw_lines(lines) is draw_lines(lines)  # earlier steps are not drawn again


@pytest.mark.thorough
@pytest.mark.parametrize("values", [(), (2.0,), (math.nan,) * 3, (1e9, 5.0), (1e200, math.inf), (-1e9,)])
def test_odd_lines_can_be_drawn(values):
    lines = Lines((Line("", tuple(range(len(values))), values),), "x", "y")
    ElementTree.fromstring(draw_lines(lines))


def test_labels_that_fonts_or_xml_cannot_hold_are_made_plain():
    assert plain("a\nb\x00c\udc80") == "a b\ufffdc\ufffd"
    assert len(plain("x" * 100)) == 59
    assert plain("The beginning of a title is as long as the end", 11) == "The b\u2026e end"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        drawing = draw_lines(Lines((Line("\u6c49\u5b57\x00", (1, 2), (1, 2)),), "\U0001f600", "\ud800"))
    ElementTree.fromstring(drawing)
    assert "\u6c49\u5b57\ufffd" in drawing
