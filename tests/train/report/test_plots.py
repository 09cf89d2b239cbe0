import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from train.plots import PALETTE, curve, draw_plots, inline, loss_limits, smooth, thin


def test_matplotlib_is_loaded_only_to_draw_and_pyplot_never():
    code = (
        "import sys, train.report, train.plots; assert 'matplotlib' not in sys.modules;"
        "train.plots.draw_plots([]); assert 'matplotlib' in sys.modules and 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2], check=True)


def test_drawing_leaves_the_settings_of_matplotlib_alone():
    import matplotlib

    before = dict(matplotlib.rcParams)
    draw_plots([{"step": 1, "split": "train", "loss": 1.0}])
    assert dict(matplotlib.rcParams) == before


def test_thinned_curve_keeps_ends_gaps_and_every_extreme_within_the_limit():
    steps, values = np.arange(10_000.0), np.random.default_rng(0).normal(size=10_000)
    values[[1234, 8765]] = 50.0, -50.0
    values[5000:5200] = np.nan
    thin_steps, thin_values = thin(steps, values, 1000)
    assert len(thin_values) <= 1000
    assert (np.diff(thin_steps) > 0).all()
    np.testing.assert_array_equal(thin_values, values[thin_steps.astype(int)])
    assert np.nanmax(thin_values) == 50.0
    assert np.nanmin(thin_values) == -50.0
    assert np.isnan(thin_values).any()
    assert thin_steps[0] < 20
    assert thin_steps[-1] >= 9980


def test_short_curve_is_not_thinned():
    steps, values = np.arange(5.0), np.array([3.0, np.nan, 1.0, 2.0, np.inf])
    np.testing.assert_array_equal(thin(steps, values, 5), (steps, values))


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


def test_high_first_losses_do_not_flatten_the_rest():
    steps = np.arange(1.0, 1001.0)
    low, high = loss_limits([(steps, 2.0 + 9.0 * np.exp(-steps / 10))])
    assert low < 2.0
    assert high < 3.0


def test_loss_axis_shows_everything_where_nothing_sticks_out():
    steps = np.arange(1.0, 1001.0)
    rising = np.linspace(2.0, 5.0, 8)
    low, high = loss_limits([(steps, 3.0 - steps / 1000), (np.linspace(100, 1000, 8), rising)])
    assert low < 2.0
    assert high > 5.0


def test_loss_axis_ignores_what_is_not_finite_and_is_never_empty():
    assert loss_limits([]) is None
    assert loss_limits([(np.array([1.0]), np.array([np.nan]))]) is None
    for value in (0.0, 2.0, -2.0):
        low, high = loss_limits([(np.array([1.0, 2.0, 3.0]), np.array([value, np.inf, np.nan]))])
        assert low < value < high


def test_curve_takes_one_number_of_one_split_and_reads_what_is_none_as_nan():
    rows = [
        {"step": 1, "split": "train", "loss": 3.0},
        {"step": 1, "split": "validation", "loss": 9.0},
        {"step": 2, "split": "train", "loss": None},
        {"step": 3, "split": "train"},
        {"step": 4, "split": "train", "loss": 1},
    ]
    np.testing.assert_array_equal(curve(rows, "train", "loss"), [[1, 2, 4], [3.0, np.nan, 1.0]])


def test_long_runs_draw_small_files():
    rows = [
        {"step": step, "split": "train", "loss": 1 + (step * 7919 % 101) / 100, "learning_rate": 1e-3}
        for step in range(1, 20_001)
    ]
    drawings = draw_plots(rows)
    assert max(map(len, drawings.values())) < 60_000
    for drawing in drawings.values():
        assert all(path.count(" L ") < 2000 for path in re.findall(r' d="([^"]*)"', drawing))


def test_inlined_drawing_leaves_every_colour_to_the_page():
    rows = [
        {"step": step, "split": split, "loss": 1.0 / step}
        for step in (1, 2)
        for split in ("train", "validation", "test")
    ]
    for name, drawing in draw_plots(rows).items():
        element = inline(drawing, name, "A label")
        assert element.startswith('<svg viewBox="0 0 ')
        assert 'aria-label="A label"' in element
        colours = re.findall(r"(?:fill|stroke): (#\w+|var\(\S+?\)|none)", element)
        assert set(colours) <= {"none"} | {f"var({role})" for role in PALETTE}
        assert "http" not in element


def test_names_of_splits_are_drawn_letter_for_letter():
    rows = [{"step": step, "split": "<a> $b$ & _c", "loss": 1.0} for step in (1, 2)]
    assert "&lt;a&gt; $b$ &amp; _c" in draw_plots(rows)["loss"]


def test_perplexity_is_drawn_by_position_where_words_are_described():
    rows = [{"step": 1, "split": "train", "loss": 1.0}]
    assert "positions" not in draw_plots(rows)
    drawing = draw_plots(rows, {"positions": [6.0, 5.0, *[4.5] * 68]})["positions"]
    assert "Perplexity by position" in drawing
    assert ">position<" in drawing
    assert ">step<" not in drawing
    assert ">400<" in drawing  # of e^6 = 403 at the first position


@pytest.mark.parametrize("losses", [[2.0], [float("nan")] * 3, [1e9, 5.0], [1e9]])
def test_odd_losses_by_position_can_be_drawn(losses):
    assert "Perplexity by position" in draw_plots([], {"positions": losses})["positions"]
