import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnlp.models import parameter_shapes
from jaxnlp.models.feed_forward_parser import FeedForwardParserConfig
from jaxnlp.nn.compute import Compute
from jaxnlp.text.word_inputs import UNKNOWN_ID
from tests.jaxnlp.models.parameter_helpers import assert_described
from tests.jaxnlp.models.parser_helpers import PROCESSOR, batch_of, configurations, processor_of
from tests.random_parameters import random_parameters

CONFIG = FeedForwardParserConfig(word_width=4, tag_width=3, hidden_width=5, label_width=2)


def parser(config, processor=PROCESSOR):
    model = config.build(processor)
    return model, random_parameters(model, *config.inputs(processor))


@functools.partial(jax.jit, static_argnums=0, static_argnames=("method", "deterministic"))
def compiled(model, params, *arrays, **options):
    return model.apply({"params": params}, *arrays, **options)


def apply(model, params, *arrays, **options):
    """The model's output, on the host."""
    return jax.device_get(compiled(model, params, *arrays, **options))


@pytest.mark.parametrize("tag_column", ["upos", "none"])
@pytest.mark.parametrize("label_width", [0, 2])
def test_every_parameter_is_described(tag_column, label_width):
    config = dataclasses.replace(CONFIG, label_width=label_width)
    processor = processor_of(tag_column)
    model = config.build(processor)
    shapes = parameter_shapes(model, *config.inputs(processor))
    found = assert_described(config, shapes)
    assert {path for path, entry in found.items() if entry.head} == {
        ("scorer", "head", name) for name in ("kernel", "bias")
    }
    assert ("tags" in shapes) == (tag_column == "upos")


def test_a_vector_is_that_of_the_word_beside_that_of_the_tag_and_root_has_its_own():
    model, params = parser(CONFIG)
    batch = batch_of(PROCESSOR)
    vectors = apply(model, params, batch["words"], batch["tags"], method="encode")
    words, tags = params["words"]["embedding"], params["tags"]["embedding"]
    assert vectors.shape == (2, 8, 7)
    np.testing.assert_array_equal(vectors[:, 2:, :4], words[batch["words"]])
    np.testing.assert_array_equal(vectors[:, 2:, 4:], tags[batch["tags"]])
    np.testing.assert_array_equal(vectors[0, 0], np.concatenate([words[0], tags[0]]))  # no word
    np.testing.assert_array_equal(vectors[0, 1], np.concatenate([words[-1], tags[-1]]))  # ROOT
    assert words.shape[0] == PROCESSOR.inputs.vocabulary_size + 1


def test_words_become_unknown_in_training():
    config = dataclasses.replace(CONFIG, word_dropout_rate=0.5)
    model, params = parser(config)
    words = np.full((8, 50), 3)
    training = {"deterministic": False, "rngs": {"dropout": jax.random.key(0)}}
    vectors = apply(model, params, words, np.zeros_like(words), method="encode", **training)[:, 2:, :4]
    of_word, unknown = (params["words"]["embedding"][number] for number in (3, UNKNOWN_ID))
    is_unknown = (vectors == unknown).all(axis=-1)
    assert (is_unknown | (vectors == of_word).all(axis=-1)).all()
    assert 0.4 < is_unknown.mean() < 0.6


def test_other_sentences_and_padding_do_not_change_a_sentence():
    model, params = parser(CONFIG)
    nodes, labels = configurations()
    short, long = (batch_of(PROCESSOR, length=length) for length in (6, 9))
    one = apply(model, params, nodes, labels, short["words"], short["tags"])
    other = apply(model, params, nodes, labels, long["words"], long["tags"])
    np.testing.assert_array_equal(one, other)
    changed = short["words"].copy()
    changed[1] = UNKNOWN_ID
    found = apply(model, params, nodes, labels, changed, short["tags"])
    np.testing.assert_array_equal(found[0], one[0])
    assert np.abs(found[1] - one[1]).max() > 1e-3


def test_computes_in_bfloat16_and_returns_float32():
    config = dataclasses.replace(CONFIG, compute=Compute(dtype="bfloat16"))
    model, params = parser(config)
    nodes, labels = configurations()
    batch = batch_of(PROCESSOR)
    found = apply(model, params, nodes, labels, batch["words"], batch["tags"])
    exact = apply(CONFIG.build(PROCESSOR), params, nodes, labels, batch["words"], batch["tags"])
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, exact, rtol=0.1, atol=0.1)
    assert np.abs(found - exact).max() > 1e-5


def test_wrong_widths_are_refused():
    with pytest.raises(ValueError, match=r"model.tag_width must be at least 1, got 0"):
        FeedForwardParserConfig(tag_width=0)
