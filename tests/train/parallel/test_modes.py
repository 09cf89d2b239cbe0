"""Every family takes the same steps in every mode: on several devices as on one, with dropout on."""

import dataclasses
import functools

import jax
import numpy as np
import pytest

from jaxnlp.models.text_cnn import TextCNNConfig
from tests.guards import test_families as guards
from tests.jaxnlp.tasks.test_init import CONFIGS, FURTHER
from tests.train.parallel.modes import MODES, largest_difference, trained
from train.config import update

files = guards.files


def text_cnn(files):
    config = guards.bert_text_tasks(files)
    model = TextCNNConfig(embedding_width=8, feature_maps=6, windows=(2, 3))
    return dataclasses.replace(config, model=model, init_from=None)


def slow_lstm(files):
    """Its rate is made for 750 epochs of Penn Treebank: here the loss would rise, and rounding with it."""
    return update(guards.lstm_streams(files), **{"optimizer.learning_rate": 2.0})


FAMILIES = (
    CONFIGS
    | FURTHER
    | {
        "RecurrentLanguageModel": slow_lstm,
        "Classification": lambda files: update(CONFIGS["Classification"](files), **{"model.num_heads": 2}),
        "bert": guards.bert_text_tasks_surgery,
        "text_cnn": text_cnn,
    }
)


@pytest.fixture(scope="module", autouse=True)
def standard_promotion():
    """As users have it."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


@pytest.fixture(scope="module")
def on_one_device(files):
    """Trains a family on one device, once."""
    return functools.cache(lambda family: trained(FAMILIES[family](files)))


@pytest.mark.thorough
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("family", FAMILIES)
def test_several_devices_take_the_twenty_steps_of_one(family, mode, on_one_device, files):
    losses, state = on_one_device(family)
    found, shared = trained(FAMILIES[family](files), *MODES[mode])
    np.testing.assert_allclose(found, losses, rtol=1e-5)
    assert largest_difference(state.params, shared.params) < 1e-4
