"""What all parsers have in common, on the feed-forward parser."""

import dataclasses
import functools

import jax
import numpy as np
import pytest

from jaxnlp.models.feed_forward_parser import FeedForwardParserConfig
from jaxnlp.models.parser import ACTIVATIONS, ParserConfig, uniform_vectors
from tests.jaxnlp.models.parser_helpers import PROCESSOR, batch_of, configurations
from tests.random_parameters import random_parameters

CONFIG = FeedForwardParserConfig(word_width=4, tag_width=3, hidden_width=5, label_width=2)


def parser(config, processor=PROCESSOR):
    model = config.build(processor)
    return model, random_parameters(model, *config.inputs(processor))


def arrays(config, processor=PROCESSOR, **options):
    batch = batch_of(processor, **options)
    return [batch[name] for name in config.reads]


@pytest.mark.sweep(1)
@pytest.mark.parametrize("activation", list(ACTIVATIONS))
@pytest.mark.parametrize("label_width", [0, 2])
def test_logits_are_those_of_the_equation(activation, label_width):
    config = dataclasses.replace(CONFIG, activation=activation, label_width=label_width)
    model, params = parser(config)
    nodes, labels = configurations()
    inputs = arrays(config)

    @jax.jit
    def run(params):
        read = {"params": params}
        return model.apply(read, nodes, labels, *inputs), model.apply(read, *inputs, method="encode")

    logits, vectors = jax.device_get(run(params))
    scorer = params["scorer"]
    f = {"cube": lambda x: x**3, "relu": lambda x: np.maximum(x, 0.0), "tanh": np.tanh}[activation]
    for row in range(2):
        for step in range(4):
            x = np.concatenate([vectors[row, node + 1] for node in nodes[row, step]])
            total = x @ scorer["words_kernel"] + scorer["bias"]
            if label_width:
                y = np.concatenate([scorer["labels"]["embedding"][label] for label in labels[row, step]])
                total = total + y @ scorer["labels_kernel"]
            expected = f(total) @ scorer["head"]["kernel"] + scorer["head"]["bias"]
            np.testing.assert_allclose(logits[row, step], expected, rtol=2e-4, atol=2e-4)


def test_dropout_is_for_training_alone():
    config = dataclasses.replace(CONFIG, dropout_rate=0.5)
    model, params = parser(config)
    nodes, labels = configurations()
    inputs = arrays(config)

    @jax.jit
    def logits(key):
        """In training, and in evaluation."""
        read = functools.partial(model.apply, {"params": params}, nodes, labels, *inputs)
        return read(deterministic=False, rngs={"dropout": key}), read(deterministic=True)

    (first, plain), (second, again) = jax.device_get([logits(jax.random.key(seed)) for seed in (0, 1)])
    np.testing.assert_array_equal(plain, again)
    assert np.abs(first - second).max() > 1e-3
    assert np.abs(first - plain).max() > 1e-3


def test_initial_vectors_are_small():
    found = np.asarray(jax.jit(uniform_vectors, static_argnums=1)(jax.random.key(0), (100, 10)))
    assert 0.009 < np.abs(found).max() <= 0.01


def test_arrays_of_other_shapes_are_refused():
    model, params = parser(CONFIG)
    nodes, labels = configurations()
    with pytest.raises(AssertionError):
        model.apply({"params": params}, nodes[:, :, :17], labels, *arrays(CONFIG))
    with pytest.raises(AssertionError):
        model.apply({"params": params}, nodes, labels[:, :2], *arrays(CONFIG))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"hidden_width": 0}, "model.hidden_width must be at least 1, got 0"),
        ({"label_width": -1}, "model.label_width must be at least 0, got -1"),
        ({"dropout_rate": 1.0}, r"model.dropout_rate must be in \[0, 1\), got 1.0"),
        ({"activation": "sign"}, "model.activation must be one of cube, relu, tanh, got 'sign'"),
    ],
)
def test_wrong_fields_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        FeedForwardParserConfig(**fields)


def test_a_config_without_an_encoder_says_so():
    with pytest.raises(TypeError, match="ParserConfig cannot build a model"):
        ParserConfig().build(PROCESSOR)
