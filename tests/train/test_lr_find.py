import dataclasses
import itertools
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnlp.__main__ import main as jaxnlp_main
from jaxnlp.tasks.language_model import LanguageModel
from train import lr_find
from train.parallel import make_parallel


def curve(rates, best):
    """A loss that falls until `best` and rises after it; steepest half a decade before."""
    x = np.log10(rates / best)
    return 3.0 - 1.0 / (1.0 + np.exp(-6.0 * (x + 0.75))) + np.where(x > 0, 4.0 * x**2, 0.0)


def test_the_suggestion_is_on_the_slope_before_the_minimum():
    rates = np.logspace(-6, 0, 400)
    losses = curve(rates, 1e-2)
    suggestion = lr_find.suggest(rates, losses)
    lowest = rates[lr_find.smoothed(losses).argmin()]
    assert 1e-4 < suggestion < lowest


def test_a_loss_that_only_rises_gives_no_suggestion():
    rates = np.logspace(-6, 0, 50)
    with pytest.raises(ValueError, match="does not fall"):
        lr_find.suggest(rates, np.linspace(1.0, 5.0, 50))


def test_smoothing_is_unbiased_at_the_start_and_keeps_a_constant():
    np.testing.assert_allclose(lr_find.smoothed([2.5] * 20), 2.5)
    np.testing.assert_allclose(lr_find.smoothed([1.0, 3.0])[1], (0.1 * 3.0 + 0.09 * 1.0) / 0.19)


@pytest.mark.thorough
def test_range_test_raises_the_rate_exponentially_and_ends_when_the_loss_diverges(tiny_config):
    rates, losses = lr_find.range_test(tiny_config(), smallest=1e-5, largest=1e5, steps=60)
    assert len(rates) == len(losses) < 60
    assert np.isfinite(losses).all()
    np.testing.assert_allclose(np.diff(np.log10(rates)), 10 / 59, rtol=1e-3)


@pytest.mark.sweep(1)
@pytest.mark.parametrize("bad_step", [4, 1])
def test_range_test_ends_before_a_step_that_is_not_finite(tiny_config, monkeypatch, bad_step):
    config, objective_of = tiny_config(), LanguageModel.objective
    bad = next(itertools.islice(iter(config.data.load(config.seed).train), bad_step - 1, None))["tokens"]

    def broken(task, model, corpus):
        objective = objective_of(task, model, corpus)

        def loss(params, batch, key, carry):
            value, (metrics, carry) = objective.loss(params, batch, key, carry)
            factor = jnp.where(jnp.any(batch["tokens"] != bad), 1.0, jnp.nan)
            return value * factor, ({"loss": (metrics["loss"][0] * factor, metrics["loss"][1])}, carry)

        return dataclasses.replace(objective, loss=loss)

    monkeypatch.setattr(LanguageModel, "objective", broken)
    monkeypatch.setattr(lr_find, "make_parallel", lambda mode, **_: make_parallel(mode, jax.devices()[:1]))
    rates, losses = lr_find.range_test(config, smallest=1e-6, largest=1e-2, steps=20)
    assert len(rates) == len(losses) == bad_step - 1
    assert np.isfinite(losses).all()


def test_a_loss_that_is_never_finite_gives_no_suggestion():
    with pytest.raises(ValueError, match=r"the loss or the gradient is not finite even at the smallest .*--smallest"):
        lr_find.suggest(np.array([]), np.array([]))


def test_plot_is_written_in_the_format_of_its_name(tmp_path):
    rates = np.logspace(-6, 0, 50)
    lr_find.draw(tmp_path / "deep" / "plot.svg", rates, curve(rates, 1e-2), 1e-3)
    assert "<svg" in (tmp_path / "deep" / "plot.svg").read_text()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"smallest": 1.0, "largest": 0.1}, "--smallest must be positive and less than --largest, got 1.0 and 0.1"),
        ({"steps": 3}, "steps must be at least 20"),
        ({"plot": Path("plot.xyz")}, r"--plot must end in one of .*\.eps, .*\.png, .*got plot\.xyz"),
        ({"plot": Path("plot")}, "got plot$"),
    ],
)
def test_invalid_options_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        lr_find.FindOptions(**fields)


@pytest.mark.parametrize("name", ["plot.svg", "plot.PNG", "deep.er/plot.pdf"])
def test_plots_of_known_formats_are_accepted(name):
    assert lr_find.FindOptions(plot=Path(name)).plot == Path(name)


def test_a_plot_that_cannot_be_written_is_a_line(monkeypatch, tmp_path, capsys):
    rates, losses = np.geomspace(1e-4, 1.0, 40), np.concatenate([np.linspace(5, 1, 30), np.linspace(1, 9, 10)])
    monkeypatch.setattr(lr_find, "range_test", lambda *_, **__: (rates, losses))
    monkeypatch.setattr(lr_find, "use_compilation_cache", lambda _: None)
    (tmp_path / "file").touch()
    assert jaxnlp_main(["lr-find", "gpt_python_docs", "--plot", str(tmp_path / "file" / "plot.svg")]) == 2
    assert capsys.readouterr().err.startswith(f"error: {tmp_path / 'file'}: ")


def test_a_plot_of_an_unknown_format_is_refused_before_the_run(monkeypatch, capsys):
    monkeypatch.setattr(lr_find, "range_test", None)  # not to be called
    assert jaxnlp_main(["lr-find", "gpt_python_docs", "--plot", "plot.xyz"]) == 2
    assert re.fullmatch(r"error: --plot must end in one of .*, got plot\.xyz\n", capsys.readouterr().err)
