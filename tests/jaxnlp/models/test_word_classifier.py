"""Word vectors of classifiers, with the convolutional one."""

import dataclasses
import logging
import re
import types

import jax
import numpy as np
import pytest

from jaxnlp.models.text_cnn import TextCNNConfig
from jaxnlp.models.text_rnn import TextRNNConfig
from jaxnlp.models.word_classifier import EMBEDDING_BOUND, WordClassifier, WordClassifierConfig
from tests.jaxnlp.models.word_classifier_helpers import MASK, PROCESSOR, TOKENS, WIDTH, WORDS, with_random_params


def of_words(words):
    """A corpus of these words."""
    return types.SimpleNamespace(processor=types.SimpleNamespace(words=words))


CORPUS = of_words(WORDS)


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "vectors.txt"
    file.write_text("".join(f"{word} {number} 1 2 3\n" for number, word in enumerate(WORDS[1:8])))
    return str(file)


def config(vectors, path):
    return TextCNNConfig(embedding_width=WIDTH, windows=(2,), feature_maps=2, vectors=vectors, vectors_path=path)


@pytest.mark.parametrize(
    ("vectors", "trained", "constant"),
    [
        ("static", [], ["tokens"]),
        ("non_static", ["tokens"], []),
        ("two_channels", ["tokens"], ["static_tokens"]),
    ],
)
def test_vectors_of_a_file_are_trained_or_stay(path, vectors, trained, constant):
    model_config = config(vectors, path)
    given = model_config.initial_params(CORPUS)
    assert given.keys() == {*trained, *constant}
    for table in given.values():
        np.testing.assert_array_equal(table["embedding"][1:8], [[number, 1, 2, 3] for number in range(7)])
        assert table["embedding"].shape == (11, WIDTH)
    model, params = with_random_params(model_config)
    assert jax.tree.map(np.shape, given) == {name: jax.tree.map(np.shape, params[name]) for name in given}
    for name in trained:
        assert not model_config.frozen((name, "embedding"))
    for name in constant:
        assert model_config.frozen((name, "embedding"))
    assert not model_config.frozen(("head", "kernel"))
    gradients = jax.jit(jax.grad(lambda params: model.apply({"params": params}, TOKENS, MASK).sum()))(params)
    for name in given:
        assert np.any(gradients[name]["embedding"]) == (name in trained)


def test_random_vectors_are_given_by_no_file_and_uniform():
    random = TextCNNConfig(embedding_width=16, windows=(1,), feature_maps=1)
    assert random.initial_params(CORPUS) == {}
    assert not random.frozen(("tokens", "embedding"))
    table = jax.jit(random.build(PROCESSOR).init)(jax.random.key(0), TOKENS, MASK)["params"]["tokens"]
    assert 0.9 * EMBEDDING_BOUND < np.abs(table["embedding"]).max() <= EMBEDDING_BOUND
    assert np.asarray(table["embedding"]).min() < 0.0


def test_vectors_of_another_width_are_refused_and_few_words_are_reported(path, caplog):
    message = f"model.embedding_width must be that of {path}, 4, got 5"
    with pytest.raises(ValueError, match=re.escape(message)):
        dataclasses.replace(config("static", path), embedding_width=5).initial_params(CORPUS)
    with caplog.at_level(logging.WARNING):
        config("static", path).initial_params(CORPUS)
        assert not caplog.records
        config("static", path).initial_params(of_words((*WORDS, *"klmnopqrst")))
    assert f"{path} has vectors of 7 of the 21 words; the others are initialised at random" in caplog.text


def test_models_with_the_same_function_have_the_same_architecture():
    base = config("random", None).architecture()
    assert config("static", "a").architecture() == config("non_static", "b").architecture() == base
    assert config("two_channels", "a").architecture() != base
    assert (
        TextRNNConfig(forget_bias=1.0).architecture()
        == TextRNNConfig(vectors="static", vectors_path="a").architecture()
    )


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"vectors": "static"}, "model.vectors static needs a file of word vectors: set model.vectors_path"),
        ({"vectors": "non_static"}, "model.vectors non_static needs a file of word vectors"),
        (
            {"vectors_path": "file"},
            "model.vectors_path applies only to vectors that are not random; set it to None, got 'file'",
        ),
        ({"embedding_width": 0}, "model.embedding_width must be at least 1, got 0"),
        ({"dropout_rate": 1.0}, "model.dropout_rate must be in [0, 1), got 1.0"),
        ({"embedding_dropout_rate": -0.1}, "model.embedding_dropout_rate must be in [0, 1), got -0.1"),
    ],
)
def test_a_config_that_cannot_be_is_refused(fields, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        TextCNNConfig(**fields)


def test_a_model_without_features_says_so():
    model = WordClassifier(WordClassifierConfig(), 3, 2)
    with pytest.raises(TypeError, match=re.escape("WordClassifier does not define features()")):
        model.init(jax.random.key(0), TOKENS[:, :1] % 3, MASK[:, :1])


def test_pairs_whose_texts_are_read_apart_are_refused():
    TextRNNConfig().check(types.SimpleNamespace(apart=False, by_part={"": None}))
    with pytest.raises(ValueError, match=r"this model reads both texts of a pair together; set data.pairs to together"):
        TextRNNConfig().check(types.SimpleNamespace(apart=True, by_part={"": None}))
