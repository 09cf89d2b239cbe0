import itertools
import math

import chex
import jax
import numpy as np
import pytest

from data.word_text import WordText
from jaxnlp.models import ModelConfig
from jaxnlp.models.recurrent_lm import RecurrentLMConfig
from jaxnlp.saving.checkpoint_reading import RunError
from jaxnlp.saving.serialization import ConfigError
from jaxnlp.tasks import MetricKind, Objective
from jaxnlp.tasks.language_model import LanguageModel, RecurrentLanguageModel
from train.optimizer.schedules import Constant
from train.run.init_from import begin
from train.run.setup import set_up


@pytest.fixture(scope="module")
def streams(tiny_config, small_text):
    """Makes configs of a recurrent model, whose rows carry their state."""

    def make(**changes):
        size = {"batch_size": 4, "sequence_length": 4, "length_multiple": 2}
        data = WordText(source="text_file", path=str(small_text), minimum_count=1, **size)
        model = RecurrentLMConfig(embedding_width=4, widths=(4,))
        return tiny_config(data=data, model=model, task=RecurrentLanguageModel(), **changes)

    return make


def test_the_abstract_state_has_the_shapes_of_the_state(tiny_config):
    setup = set_up(begin(tiny_config(ema_decay=0.9)))
    state = jax.jit(setup.initial_state)(setup.given)
    chex.assert_trees_all_equal_shapes_and_dtypes(setup.abstract_state, state)
    assert setup.num_parameters == 11 * 8 + 8 * 11 + 11


def test_setting_up_makes_no_array_on_a_device(tiny_config):
    config = tiny_config()
    before = {id(array) for array in jax.live_arrays()}
    setup = set_up(begin(config))
    new = [array for array in jax.live_arrays() if id(array) not in before]
    assert sum(array.size for array in new) < setup.num_parameters


def test_given_parameters_are_in_the_state(tiny_config, monkeypatch):
    given = {"head": {"bias": np.arange(11, dtype=np.float32)}}
    monkeypatch.setattr(ModelConfig, "initial_params", lambda *_: given)
    setup = set_up(begin(tiny_config()))
    state = jax.jit(setup.initial_state)(setup.given)
    np.testing.assert_array_equal(state.params["head"]["bias"], given["head"]["bias"])


def test_a_run_that_continues_does_not_read_what_it_began_with(tiny_config, quick_fit, monkeypatch, tmp_path):
    quick_fit(tiny_config(total_steps=3), tmp_path)

    def initial_params(*_):
        raise FileNotFoundError("the file of word vectors was deleted")

    monkeypatch.setattr(ModelConfig, "initial_params", initial_params)
    with pytest.raises(FileNotFoundError, match="was deleted"):
        set_up(begin(tiny_config()))
    assert set_up(begin(tiny_config(), tmp_path)).given == {}


@pytest.mark.parametrize("name", ["exact_match", "Loss", ""])
def test_a_best_metric_that_the_task_does_not_have_is_refused_with_those_it_has(tiny_config, name):
    with pytest.raises(
        ConfigError, match=f"best_metric must be one of loss, perplexity, got '{name}'; set --best-metric perplexity$"
    ):
        set_up(begin(tiny_config(best_metric=name)))


def test_the_objective_is_not_a_best_metric_since_evaluation_does_not_measure_it(tiny_config):
    task = LanguageModel(z_loss=0.1)
    with pytest.raises(ConfigError, match="best_metric must be one of loss, perplexity, got 'objective'"):
        set_up(begin(tiny_config(task=task, best_metric="objective")))


@pytest.mark.parametrize(("progress", "missing"), [("pages", "pages"), ("loss", "loss")])
def test_a_task_declares_its_loss_and_what_its_progress_is_counted_by(tiny_config, monkeypatch, progress, missing):
    declared = {"loss": MetricKind()} if progress != "loss" else {"accuracy": MetricKind()}
    monkeypatch.setattr(LanguageModel, "metrics", lambda *_: declared)
    monkeypatch.setattr(LanguageModel, "objective", lambda *_: Objective(lambda *_: None, progress=progress))
    with pytest.raises(ConfigError, match=f"LanguageModel.metrics must declare '{missing}'"):
        set_up(begin(tiny_config(best_metric=next(iter(declared)))))


def test_pretrained_parameters_replace_only_those_of_the_task_that_they_have(tiny_config, monkeypatch):
    bias, kernel = np.arange(11, dtype=np.float32), np.ones((8, 11), np.float32)
    monkeypatch.setattr(ModelConfig, "initial_params", lambda *_: {"head": {"bias": bias, "kernel": 0 * kernel}})
    begun = begin(tiny_config())._replace(params={"head": {"kernel": kernel}})
    given = set_up(begun).given
    np.testing.assert_array_equal(given["head"]["bias"], bias)
    np.testing.assert_array_equal(given["head"]["kernel"], kernel)


def test_rows_that_carry_state_are_neither_split_over_odd_devices_nor_accumulated(streams):
    assert jax.tree.leaves(set_up(begin(streams()), devices=2).abstract_state.carry)
    with pytest.raises(ConfigError, match=r"rows carry state, so 3 devices must divide data\.batch_size, 4"):
        set_up(begin(streams()), devices=3)
    with pytest.raises(ConfigError, match="accumulation_steps must be 1, got 2"):
        set_up(begin(streams(accumulation_steps=2)))


@pytest.mark.thorough
def test_the_step_uses_the_schedule_of_the_config(tiny_config):
    changes = {"optimizer.schedule": Constant(), "optimizer.learning_rate": 0.125}
    setup = set_up(begin(tiny_config(ema_decay=0.9, **changes)))
    state = jax.jit(setup.initial_state)(setup.given)
    step = jax.jit(setup.step)
    for batch in itertools.islice(setup.corpus.train, 2):
        state, output = step(state, batch)
        assert float(output.learning_rate) == 0.125
    assert math.isfinite(float(output.metrics["loss"][0]))
    assert int(state.step) == 2


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("token",), "has no parameter or module 'token'; did you mean tokens"),
        (("tokens", "head"), "leaves no parameter to train"),
    ],
)
def test_frozen_parts_that_are_not_there_or_are_all_are_refused(tiny_config, names, message):
    with pytest.raises(ConfigError, match=message):
        set_up(begin(tiny_config(**{"optimizer.frozen": names})))


def test_given_parameters_of_unknown_names_or_shapes_are_refused(tiny_config, monkeypatch):
    for given, message in (
        ({"haed": {"bias": np.zeros(11)}}, "the parameter haed/bias, which the model does not have"),
        ({"head": {"bias": np.zeros(3)}}, r"head/bias has the shape \(11,\), but its given value has \(3,\)"),
    ):
        monkeypatch.setattr(ModelConfig, "initial_params", lambda *_, given=given: given)
        with pytest.raises(RunError, match=message):
            set_up(begin(tiny_config()))
