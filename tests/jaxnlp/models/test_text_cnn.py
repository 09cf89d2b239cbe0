import dataclasses
import re

import jax
import numpy as np
import pytest
import torch

from jaxnlp.models import Parameter
from jaxnlp.models.text_cnn import TextCNNConfig
from jaxnlp.nn.compute import Compute
from tests.jaxnlp.models.parameter_helpers import assert_described
from tests.jaxnlp.models.word_classifier_helpers import (
    MASK,
    OUTPUTS,
    PROCESSOR,
    TOKENS,
    WIDTH,
    assert_equals_pytorch,
    assert_initial_loss_is_that_of_chance,
    assert_padding_changes_nothing,
    with_random_params,
    zeros_like,
)

CONFIG = TextCNNConfig(embedding_width=WIDTH, windows=(2, 3, 5), feature_maps=3)
TWO = dataclasses.replace(CONFIG, vectors="two_channels", vectors_path="vectors.txt")


def features_of(params, x):
    """Of PyTorch's convolution, whose kernel is [F, D, h]; two texts are shorter than the largest window."""
    found = []
    for window in CONFIG.windows:
        layer = params[f"convolution_{window}"]
        kernel = layer["kernel"].reshape(window, -1, 3).permute(2, 1, 0)
        y = torch.nn.functional.conv1d(x.T[None], kernel, layer["bias"], padding=window - 1)
        found.append(torch.relu(y)[0].amax(dim=1))
    return torch.cat(found)


@pytest.mark.sweep(1)
@pytest.mark.parametrize("config", [CONFIG, TWO], ids=["one channel", "two channels"])
def test_logits_and_gradients_are_those_of_pytorchs_convolutions_without_padding(config):
    model, params, logits = assert_equals_pytorch(config, features_of)
    assert logits.shape == (3, OUTPUTS)
    assert_described(config, params)
    assert jax.eval_shape(model.apply, {"params": params}, TOKENS, MASK).dtype == np.float32


@pytest.mark.thorough
def test_padding_never_changes_a_result():
    assert_padding_changes_nothing(*with_random_params(CONFIG))


def test_one_word_decides_wherever_it_is():
    """The maximum over time: a feature map that reads one word is the same at any position."""
    config = dataclasses.replace(CONFIG, windows=(1,))
    model, params = with_random_params(config)
    run = jax.jit(model.apply)
    found = run({"params": params}, np.roll(TOKENS, 2, axis=1), np.ones_like(MASK))
    expected = run({"params": params}, TOKENS, np.ones_like(MASK))
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_initial_loss_is_that_of_chance():
    assert_initial_loss_is_that_of_chance(TextCNNConfig())


def test_roles_of_the_parameters():
    assert CONFIG.parameter(("tokens", "embedding")) == Parameter("VD", "below")
    assert CONFIG.parameter(("convolution_3", "kernel")) == Parameter("JF", 0, matrix=True)
    assert CONFIG.parameter(("head", "kernel")) == Parameter("EC", matrix=True, head=True, dense=True)
    with pytest.raises(KeyError, match="this model has no parameter convolution_4/kernel"):
        CONFIG.parameter(("convolution_4", "kernel"))


def test_dropout_is_applied_in_training_only():
    model, params = with_random_params(CONFIG)

    @jax.jit
    def run(key):
        return model.apply({"params": params}, TOKENS, MASK, deterministic=False, rngs={"dropout": key})

    first, again, other = (np.asarray(run(jax.random.key(seed))) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 0.01


def test_logits_are_float32_whatever_the_type_of_the_computation():
    config = dataclasses.replace(CONFIG, compute=Compute(dtype="bfloat16", matmul_dtype="bfloat16"))
    inputs = map(zeros_like, config.inputs(PROCESSOR))
    found, _ = jax.eval_shape(config.build(PROCESSOR).init_with_output, jax.random.key(0), *inputs)
    assert (found.shape, found.dtype) == ((1, OUTPUTS), np.float32)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"windows": ()}, "model.windows needs distinct numbers of words, got ()"),
        ({"windows": (0, 3)}, "model.windows must be at least 1 each, got (0, 3)"),
        ({"windows": (3, 3)}, "model.windows needs distinct numbers of words, got (3, 3)"),
        ({"windows": (3, 10**9)}, "model.windows must be less than 1001 each"),
        ({"feature_maps": 0}, "model.feature_maps must be at least 1, got 0"),
    ],
)
def test_a_config_that_cannot_be_is_refused(fields, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        TextCNNConfig(**fields)
