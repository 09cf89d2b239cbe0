"""Layers learn more slowly than those above them."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnlp.models import Parameter
from jaxnlp.models.gpt import GPTConfig
from jaxnlp.models.perceiver import PerceiverConfig
from jaxnlp.models.recurrent_lm import RecurrentLMConfig
from jaxnlp.saving.serialization import ConfigError
from tests.train.optimizer.classifier_of_parts import DESCRIBE, TASKED, by_path, params_of, stepped
from train.optimizer import SGD, AdamW
from train.optimizer.chain import (
    current_learning_rate,
)
from train.optimizer.layer_rates import layer_factors
from train.optimizer.parameters import describe
from train.optimizer.schedules import Constant


def test_a_layers_factor_is_the_decay_to_the_power_of_its_distance_from_the_heads():
    factors = by_path(layer_factors(params_of(TASKED), DESCRIBE, 0.5))
    seen = set()
    for path, factor in factors.items():
        if path[:2] == ("encoder", "blocks"):
            np.testing.assert_array_equal(factor.ravel(), [0.125, 0.25, 0.5])
            assert factor.shape[0] == 3
        elif path[0] == "encoder" and path[1] in ("tokens", "positions", "segments", "embedding_norm"):
            assert factor == 0.0625
        else:
            assert factor == 1.0
            assert path[0] in ("heads_sst", "heads_quora", "relations_pairs") or path[1] in ("final_norm", "pooler")
        seen.add(path[:2])
    assert len(seen) == 4 + 1 + 2 + 6
    model = GPTConfig(num_layers=2, num_heads=1, width=4, context_length=4, tie_embeddings=False)
    gpt = layer_factors(params_of(model), functools.partial(describe, model.parameter), 0.1)
    np.testing.assert_allclose(gpt["blocks"]["feed_forward"]["up"]["kernel"].ravel(), [0.01, 0.1], rtol=1e-6)
    np.testing.assert_allclose([gpt["tokens"]["embedding"], gpt["positions"]], 0.001, rtol=1e-6)
    assert gpt["head"]["kernel"] == gpt["final_norm"]["scale"] == 1.0


@pytest.mark.thorough
@pytest.mark.parametrize("kind", [AdamW, SGD])
def test_layer_decay_multiplies_updates_with_their_weight_decay(kind):
    params = params_of(TASKED)
    gradient = jax.tree.map(np.cos, params)
    config = kind(learning_rate=1.0, weight_decay=0.5, layer_decay=0.7, max_grad_norm=None)
    (found, state), (plain, _) = (
        stepped(c, params, [gradient]) for c in (config, dataclasses.replace(config, layer_decay=1.0))
    )
    factors = by_path(layer_factors(params, DESCRIBE, 0.7))
    for path, before in by_path(params).items():
        expected = factors[path] * (by_path(plain)[path] - before)
        np.testing.assert_allclose(by_path(found)[path] - before, expected, atol=1e-6, err_msg=path)
        assert np.abs(expected).max() > 1e-2
    np.testing.assert_allclose(current_learning_rate(state), config.rate(jnp.float32(1), total_steps=10))


def test_blocks_and_embeddings_learn_by_a_ratio_more_slowly_than_the_layers_above():
    params = params_of(TASKED)
    plain, slower = (by_path(layer_factors(params, DESCRIBE, 0.5, ratio)) for ratio in (1.0, 0.25))
    below = [path for path in plain if (plain[path] < 1.0).all()]
    assert 0 < len(below) < len(plain)
    for path in plain:
        np.testing.assert_array_equal(slower[path], plain[path] * (0.25 if path in below else 1.0))
    gradient = jax.tree.map(np.cos, params)
    config = SGD(learning_rate=1.0, blocks_lr_ratio=0.25, max_grad_norm=None)
    after, _ = stepped(config, params, [gradient])
    moved = {path: value - by_path(params)[path] for path, value in by_path(after).items()}
    rate = float(config.rate(jnp.float32(1), total_steps=10))
    for path, value in by_path(gradient).items():
        np.testing.assert_allclose(moved[path], -rate * value * (0.25 if path in below else 1.0), atol=1e-6)


def test_layers_that_are_partly_frozen_have_the_factors_of_all():
    params = params_of(TASKED)
    config = SGD(layer_decay=0.5, max_grad_norm=None, learning_rate=1.0, schedule=Constant())
    ones = jax.tree.map(np.ones_like, params)
    after, _ = stepped(config, params, [ones], frozen=("attention", "tokens"))
    change = by_path(jax.tree.map(lambda a, b: b - a, after, params))
    np.testing.assert_allclose(change["encoder", "blocks", "feed_forward", "up", "bias"][:, 0], [0.125, 0.25, 0.5])
    assert not change["encoder", "tokens", "embedding"].any()
    np.testing.assert_allclose(change["encoder", "segments"], 0.0625, rtol=1e-5)


def nested(values):
    """A tree of nested dicts, from values by path."""
    tree = {}
    for path, value in values.items():
        node = tree
        for name in path[:-1]:
            node = node.setdefault(name, {})
        node[path[-1]] = value
    return tree


def toy_factors(shapes, table, decay=0.5):
    params = nested({path: np.ones(shape) for path, shape in shapes.items()})
    return by_path(layer_factors(params, functools.partial(describe, table.__getitem__), decay))


def test_a_vision_transformer_has_its_patch_embedding_below_its_blocks_whatever_the_names():
    shapes = {
        ("patches", "kernel"): (12, 4),
        ("class_token",): (4,),
        ("transformer", "kernel"): (2, 4, 8),
        ("classifier", "kernel"): (4, 3),
    }
    table = {
        ("patches", "kernel"): Parameter("PD", "below", matrix=True),
        ("class_token",): Parameter("D", "below"),
        ("transformer", "kernel"): Parameter("LDF", 0, matrix=True),
        ("classifier", "kernel"): Parameter("DC", matrix=True, head=True),
    }
    found = toy_factors(shapes, table)
    assert found["patches", "kernel"] == found["class_token",] == 0.125
    np.testing.assert_array_equal(found["transformer", "kernel"], np.array([0.25, 0.5]).reshape(2, 1, 1))
    assert found["classifier", "kernel"] == 1.0


@pytest.mark.parametrize("stacked", [True, False])
def test_encoder_and_decoder_count_their_own_blocks(stacked):
    shapes, table = {("shared", "embedding"): (5, 4)}, {("shared", "embedding"): Parameter("VD", "below")}
    for side, layers in (("encoder", 1), ("decoder", 3)):
        shapes |= {(side, "tokens"): (5, 4), (side, "norm"): (4,)}
        table |= {(side, "tokens"): Parameter("VD", "below"), (side, "norm"): Parameter("D", "above")}
        if stacked:
            shapes |= {(side, "blocks", "kernel"): (layers, 4, 4)}
            table |= {(side, "blocks", "kernel"): Parameter("LDD", matrix=True)}
        else:
            shapes |= {(side, f"block_{n}", "kernel"): (4, 4) for n in range(layers)}
            table |= {(side, f"block_{n}", "kernel"): Parameter("DD", n, matrix=True) for n in range(layers)}
    found = toy_factors(shapes, table)

    def of_blocks(side):
        return [float(x) for path, value in found.items() if path[0] == side and len(path) == 3 for x in value.ravel()]

    assert (of_blocks("encoder"), of_blocks("decoder")) == ([0.5], [0.125, 0.25, 0.5])
    assert (found["encoder", "tokens"], found["decoder", "tokens"]) == (0.25, 0.0625)
    assert found["encoder", "norm"] == found["decoder", "norm"] == 1.0
    assert found["shared", "embedding"] == 0.0625


def test_recurrent_layers_are_blocks():
    model = RecurrentLMConfig(embedding_width=4, widths=(6, 4), tie_embeddings=True)
    factors = by_path(layer_factors(params_of(model), functools.partial(describe, model.parameter), 0.5))
    assert {factors[path].item() for path in factors if "layer_0_forward" in path} == {0.25}
    assert {factors[path].item() for path in factors if "layer_1_forward" in path} == {0.5}
    assert factors["tokens", "embedding"] == 0.125


def test_layer_decay_is_refused_where_no_blocks_are_trained():
    message = r"layer_decay and optimizer.blocks_lr_ratio need a model with trained blocks, which this model"
    two_layers = PerceiverConfig(num_layers=2, num_heads=1, width=4, context_length=4, num_latents=2)
    config = AdamW(layer_decay=0.5)
    with pytest.raises(ConfigError, match=message):
        stepped(config, params_of(two_layers), [], parameter=two_layers.parameter)
    with pytest.raises(ConfigError, match=message):
        stepped(config, params_of(TASKED), [], frozen=("encoder",))
