import dataclasses
import itertools

import chex
import jax
import numpy as np
import pytest

from data import DataError
from data.word_text import WordText
from jaxnlp.models.recurrent_lm import RecurrentLMConfig
from jaxnlp.saving.serialization import ConfigError
from jaxnlp.tasks.language_model import LanguageModel, RecurrentLanguageModel
from tests.train.loop_helpers import arrays, prepared, rows
from train import loop
from train.config import update
from train.optimizer.schedules import Plateau
from train.report import read_sections


def recurrent(tiny_config, small_text, task=None, **changes):
    """A run of a word language model on eight streams of random lengths."""
    data = WordText(
        source="text_file",
        path=str(small_text),
        batch_size=8,
        sequence_length=4,
        length_multiple=2,
        minimum_count=1,
        evaluation_batch_size=3,
    )
    model = RecurrentLMConfig(embedding_width=4, widths=(5, 4), tie_embeddings=True, weight_dropout_rate=0.2)
    return tiny_config(data=data, model=model, task=task or RecurrentLanguageModel(), **changes)


def pretend_losses(monkeypatch, losses):
    """Validations find these losses, one after the other."""
    given = iter(losses)

    def validate(self, step, state, log):
        loss = next(given)
        log.log_evaluation(step, "validation", {"loss": loss})
        return {"score": float(step), "loss": loss}  # what selects the best checkpoint does not decide on averaging

    monkeypatch.setattr(loop.Validation, "__call__", validate)


@pytest.mark.thorough
def test_a_run_that_carries_its_state_stops_and_continues_to_the_same_bits(
    tiny_config, small_text, tmp_path, quick_fit, stop_at, monkeypatch
):
    """It is stopped between the evaluations that let averaging begin at step 6, and while it averages."""
    config = recurrent(
        tiny_config,
        small_text,
        nt_asgd_patience=1,
        best_metric="perplexity",
        total_steps=12,
        evaluate_every_steps=2,
        log_every_steps=1,
    )

    def one_after_another():
        pretend_losses(monkeypatch, [3.0, 3.5, 3.6, 3.4, 3.7, 3.3])

    one_after_another()
    expected = quick_fit(config, tmp_path / "straight")
    assert all(leaf.any() for leaf in jax.tree.leaves(expected.state.carry))
    assert int(expected.state.averaged) == 1 + 12 - 6
    one_after_another()
    for step in (5, 8):
        with stop_at(step):
            quick_fit(config, tmp_path / "stopped")
    found = quick_fit(config, tmp_path / "stopped")
    chex.assert_trees_all_equal(arrays(found.state), arrays(expected.state))
    assert rows(tmp_path / "stopped") == rows(tmp_path / "straight")


@pytest.mark.thorough
def test_a_run_that_carries_its_state_continues_with_another_compute_dtype(
    tiny_config, small_text, tmp_path, quick_fit
):
    for steps, dtype in ((2, "bfloat16"), (4, "float32"), (6, "bfloat16")):
        changes = {"total_steps": steps, "optimizer.schedule": "constant", "model.compute.dtype": dtype}
        quick_fit(update(recurrent(tiny_config, small_text), **changes), tmp_path)
    assert [row["step"] for row in rows(tmp_path) if row["split"] == "validation"] == [2, 4, 6]


@pytest.mark.thorough
def test_averaging_looks_at_the_loss_whatever_selects_the_best_checkpoint(
    tiny_config, small_text, tmp_path, quick_fit, monkeypatch
):
    given = iter([(3.0, 1.0), (2.0, 2.0), (1.5, 3.0), (1.2, 4.0)])

    def validate(self, step, state, log):
        loss, perplexity = next(given)
        return {"score": -perplexity, "loss": loss}

    monkeypatch.setattr(loop.Validation, "__call__", validate)
    options = {"nt_asgd_patience": 0, "best_metric": "perplexity", "total_steps": 4, "evaluate_every_steps": 1}
    assert int(quick_fit(recurrent(tiny_config, small_text, **options), tmp_path).state.averaged) == 0


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("losses", "begins"),
    [([3.0, 2.0, 1.0, 0.5], None), ([3.0, 2.0, 2.0, 1.9], None), ([3.0, 3.5, 3.1, 2.0], 3)],
)
def test_averaging_begins_when_the_validation_loss_stalls(
    tiny_config, small_text, tmp_path, quick_fit, monkeypatch, losses, begins
):
    """Evaluated every other step, and no lower than what was best more than one evaluation before."""
    config = recurrent(tiny_config, small_text, nt_asgd_patience=1, total_steps=8, evaluate_every_steps=2)
    pretend_losses(monkeypatch, losses)
    state = quick_fit(config, tmp_path).state
    if begins is None:
        assert int(state.averaged) == 0
        chex.assert_trees_all_equal(state.ema, state.params)
    else:
        assert int(state.averaged) == 1 + 8 - 2 * begins
        assert state.evaluation_params is state.ema


@pytest.mark.thorough
def test_a_plateau_lowers_the_learning_rate_and_a_run_that_continues_remembers_it(
    tiny_config, small_text, tmp_path, quick_fit, stop_at, monkeypatch
):
    changes = {"optimizer.schedule": Plateau(patience=0, decay_factor=0.5)}
    config = recurrent(tiny_config, small_text, total_steps=8, evaluate_every_steps=2, log_every_steps=1, **changes)
    pretend_losses(monkeypatch, [3.0, 3.5, 2.0, 2.0])
    expected = quick_fit(config, tmp_path / "straight").state
    peak = config.optimizer.learning_rate
    trained = [row["learning_rate"] for row in rows(tmp_path / "straight") if row["split"] == "train"]
    np.testing.assert_allclose(trained, [peak] * 4 + [peak / 2] * 4, rtol=1e-6)
    pretend_losses(monkeypatch, [3.0, 3.5, 2.0, 2.0])
    for step in (3, 5):
        with stop_at(step):
            quick_fit(config, tmp_path / "stopped")
    chex.assert_trees_all_equal(arrays(quick_fit(config, tmp_path / "stopped").state), arrays(expected))


def test_rows_that_devices_cannot_share_are_refused_where_they_carry_state(
    tiny_config, small_text, tmp_path, quick_fit
):
    config = recurrent(tiny_config, small_text, **{"data.batch_size": 6})
    with pytest.raises(ConfigError, match=r"8 devices must divide data\.batch_size, 6"):
        quick_fit(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.thorough
@pytest.mark.parametrize("mode", ["jit", "pmap"])
def test_rows_that_carry_no_state_are_shared_by_any_number_of_devices(
    tiny_config, small_text, tmp_path, quick_fit, stop_at, mode
):
    config = recurrent(tiny_config, small_text, log_every_steps=1, **{"model.weight_dropout_rate": 0.0})
    data = WordText(
        source="text_file", path=str(small_text), mode="windows", batch_size=6, sequence_length=4, minimum_count=1
    )
    config = dataclasses.replace(config, data=data)
    with stop_at(5):
        quick_fit(config, tmp_path / "run", parallel=mode)
    found = quick_fit(config, tmp_path / "run", parallel=mode).state
    assert (int(found.step), found.carry) == (12, ())
    training = [row["loss"] for row in rows(tmp_path / "run") if row["split"] == "train"]

    # Without dropout the same updates by hand, on one device.
    setup, state = prepared(config)
    step, losses = jax.jit(setup.step), []
    assert state.carry == ()
    for batch in itertools.islice(setup.corpus.train, 12):
        state, output = step(state, batch)
        losses.append(output.metrics["loss"][0] / output.metrics["loss"][1])
    np.testing.assert_allclose(training, losses, rtol=1e-4)


@pytest.mark.thorough
def test_tokens_are_sampled_where_they_are_counted(tiny_config, small_text, tmp_path, quick_fit):
    with pytest.raises(DataError, match=r"task\.num_sampled needs token counts"):
        quick_fit(tiny_config(task=LanguageModel(num_sampled=2)), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    config = recurrent(tiny_config, small_text, RecurrentLanguageModel(num_sampled=2, num_frequent=3))
    assert int(quick_fit(config, tmp_path / "run").state.skipped_updates) == 0


@pytest.mark.thorough
def test_the_output_bias_begins_at_the_unigram_frequencies_of_the_training_text(tiny_config, small_text):
    config = recurrent(tiny_config, small_text)
    setup, state = prepared(update(config, **{"model.init_bias_from_unigram": True}))
    counts = setup.corpus.token_counts + 1.0
    np.testing.assert_allclose(np.exp(state.params["head_bias"]), counts / counts.sum(), rtol=1e-5)
    assert len(set(counts)) > 1


@pytest.mark.thorough
def test_only_a_model_of_words_reports_what_it_has_learnt_about_them(tiny_config, small_text, quick_fit, tmp_path):
    quick_fit(recurrent(tiny_config, small_text, total_steps=7), tmp_path / "words")
    sections = read_sections(tmp_path / "words" / "sections.jsonl")
    assert [(section.step, section.name) for section in sections] == [
        (step, name) for step in (6, 7) for name in ("Perplexity by position", "Nearest embeddings")
    ]
    curves = [section.content.lines[0].y for section in sections[::2]]
    assert [len(curve) for curve in curves] == [4, 4]
    assert curves[0] != curves[1]
    quick_fit(tiny_config(total_steps=1), tmp_path / "characters")
    assert read_sections(tmp_path / "characters" / "sections.jsonl") == []
