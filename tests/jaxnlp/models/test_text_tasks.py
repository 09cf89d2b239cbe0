import dataclasses
import functools
import math

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from data.minbert import LABELS
from jaxnlp.models import text_vectors
from jaxnlp.models.bert import Bert, BertConfig
from jaxnlp.models.text_tasks import TextTasksConfig
from jaxnlp.models.text_vectors import pool
from jaxnlp.text.labels import Labels, number_of_texts
from tests.processors import of_parts
from tests.random_parameters import random_parameters

VOCABULARY, ALL = 13, tuple(LABELS.items())
ENCODER = BertConfig(num_layers=1, num_heads=2, width=8, max_positions=10)
CONFIG = TextTasksConfig(encoder=ENCODER)


def batch(texts, rows=3, length=6, seed=0):
    generator = np.random.default_rng(seed)
    tokens = generator.integers(1, VOCABULARY, (rows, texts, length)).astype(np.int32)
    ends = generator.integers(2, length + 1, (rows, texts))
    return tokens, np.arange(length)[None, None] < ends[:, :, None]


@functools.cache
def build(config=CONFIG, parts=ALL, token_dropout_rate=0.0):
    """The model, and parameters larger than initial ones, so that every parameter matters."""
    model = dataclasses.replace(config, token_dropout_rate=token_dropout_rate).build(of_parts(VOCABULARY, parts))
    return model, random_parameters(model, np.zeros((1, 2, 1), np.int32))


@functools.partial(jax.jit, static_argnames="model")
def apply(model, params, tokens, mask):
    return model.apply({"params": params}, tokens, mask)


@functools.partial(jax.jit, static_argnames=("model", "part", "deterministic"))
def predict(model, params, tokens, mask, part, **arguments):
    return model.apply({"params": params}, tokens, mask, part, method="predict", **arguments)


def outputs(model, params, texts):
    return jax.device_get(apply(model, params, *batch(texts)))


@pytest.mark.thorough
def test_each_part_has_an_output_of_its_shape():
    model, params = build()
    singles, pairs = outputs(model, params, 1), outputs(model, params, 2)
    assert {name: output.shape for name, output in singles.items()} == {"sst": (3, 5), "cfimdb": (3, 2)}
    shapes = {"sst": (3, 5), "cfimdb": (3, 2), "quora": (3,), "sts": (3,)}
    assert {name: output.shape for name, output in pairs.items()} == shapes
    for name, labels in ALL:
        expected = (singles if labels.texts == 1 else pairs)[name]
        assert expected.dtype == jnp.float32
        chex.assert_trees_all_close(predict(model, params, *batch(labels.texts), name), expected, atol=1e-6)
    firsts = (x[:, :1] for x in batch(2))
    chex.assert_trees_all_close(pairs["sst"], jax.device_get(apply(model, params, *firsts))["sst"])
    assert (np.abs(pairs["sts"]) <= 1.0).all()


@pytest.mark.parametrize("texts", [1, 2])
def test_classes_of_texts_and_of_pairs_may_have_any_names_and_number(texts):
    parts = (("mood", Labels("classification", texts, ("angry", "calm", "none", "sad"))),)
    model, params = build(CONFIG, parts)
    assert params["heads_mood"]["kernel"].shape == (8 if texts == 1 else 40, 4)
    assert predict(model, params, *batch(texts), "mood").shape == (3, 4)


@pytest.mark.thorough
def test_initialisation_makes_every_head_with_values_that_other_parts_do_not_change():
    key, tokens = jax.random.key(0), np.zeros((1, 2, 1), np.int32)
    config = dataclasses.replace(CONFIG, similarity="learned", pair_layer="separate")
    every = jax.jit(config.build(of_parts(VOCABULARY, ALL)).init)(key, tokens)["params"]
    assert every.keys() == {
        "encoder",
        *(f"heads_{name}" for name, _ in ALL),
        *(f"relations_{name}" for name, labels in ALL if labels.texts == 2),
    }
    single = jax.jit(config.build(of_parts(VOCABULARY, [("quora", dict(ALL)["quora"])])).init)(key, tokens)["params"]
    assert single.keys() == {"encoder", "heads_quora", "relations_quora"}
    chex.assert_trees_all_equal(single, {name: every[name] for name in single})


@pytest.mark.parametrize(("part", "texts"), [("sst", 2), ("quora", 1)])
def test_another_number_of_texts_is_refused(part, texts):
    model, params = build()
    message = rf"{part} takes {number_of_texts(3 - texts)}, got tokens \(3, {texts}, 6\)"
    with pytest.raises(ValueError, match=message):
        predict(model, params, *batch(texts), part)


@functools.partial(jax.jit, static_argnames="config")
def vector(config, params, tokens, mask):
    """Of texts, [B, D], pooled as in the config."""
    encoding = Bert(config.encoder, VOCABULARY).apply({"params": params["encoder"]}, tokens, None, mask)
    return pool(encoding, mask, config.pooling)


def encode(config, params, tokens, mask):
    """The vector of each text, [S][B, D]."""
    texts = range(tokens.shape[1])
    return [np.asarray(vector(config, params, tokens[:, number], mask[:, number])) for number in texts]


@pytest.mark.sweep(1)
@pytest.mark.parametrize("pooling", ["cls", "pooler", "mean"])
def test_outputs_are_those_of_heads_on_the_vectors_of_single_texts(pooling):
    config = dataclasses.replace(CONFIG, pooling=pooling)
    model, params = build(config)
    (u,) = encode(config, params, *batch(1))
    expected = u @ params["heads_sst"]["kernel"] + params["heads_sst"]["bias"][None]
    np.testing.assert_allclose(outputs(model, params, 1)["sst"], expected, atol=1e-5)
    u, v = encode(config, params, *batch(2))
    features = np.concatenate([u, v, u - v, np.abs(u - v), u * v], axis=1)
    logit = features @ params["heads_quora"]["kernel"] + params["heads_quora"]["bias"][None]
    found = outputs(model, params, 2)
    np.testing.assert_allclose(found["quora"], logit[:, 0], atol=1e-4)
    expected = [np.dot(a, b) / np.linalg.norm(a) / np.linalg.norm(b) for a, b in zip(u, v, strict=True)]
    np.testing.assert_allclose(found["sts"], expected, atol=1e-5)


@pytest.mark.sweep(1)
@pytest.mark.parametrize(
    ("pair_layer", "similarity", "layers"),
    [
        ("none", "learned", []),
        ("separate", "learned", ["relations_quora", "relations_sts"]),
        ("separate", "cosine", ["relations_quora"]),
        ("shared", "learned", ["relations_pairs"]),
        ("shared", "cosine", ["relations_pairs"]),
    ],
)
def test_pair_layers_are_those_of_the_config(pair_layer, similarity, layers):
    config = dataclasses.replace(CONFIG, pair_layer=pair_layer, similarity=similarity)
    model, params = build(config)
    assert sorted(name for name in params if name.startswith("relations")) == layers
    assert ("heads_sts" in params) == (similarity == "learned")
    found = outputs(model, params, 2)
    if similarity == "learned":
        assert ((found["sts"] > 0.0) & (found["sts"] < 1.0)).all()
    for name in layers:
        changed = {**params, name: jax.tree.map(lambda x: x + 1.0, params[name])}
        for part, output in outputs(model, changed, 2).items():
            of_pairs = LABELS[part].texts == 2 and f"heads_{part}" in params
            concerned = name == f"relations_{part}" or (name == "relations_pairs" and of_pairs)
            assert (np.abs(output - found[part]).max() > 1e-4) == concerned, (name, part)


def test_the_logit_of_the_cosine_is_added_only_to_paraphrases():
    plain, params = build()
    model, _ = build(dataclasses.replace(CONFIG, cosine_logit=(10.0, 0.8)))
    without, found = outputs(plain, params, 2), outputs(model, params, 2)
    np.testing.assert_allclose(found["quora"] - without["quora"], 10.0 * (without["sts"] - 0.8), atol=1e-5)
    np.testing.assert_array_equal(found["sts"], without["sts"])


def parts_of(*names):
    return tuple((name, LABELS[name]) for name in names)


@pytest.mark.parametrize(
    ("name", "value", "unread", "read", "what"),
    [
        ("similarity", "learned", "sst quora", "sts", "parts with similarities"),
        ("pair_layer", "separate", "sst sts", "quora", "parts with features of a pair"),
        ("pair_layer", "shared", "cfimdb", "sst quora", "parts with features of a pair"),
        ("cosine_logit", (10.0, 0.8), "sst sts", "quora", "parts with paraphrases"),
        ("head_dropout_rate", 0.2, "sts", "sts sst", "parts with a head"),
    ],
)
def test_an_option_that_no_part_reads_is_refused(name, value, unread, read, what):
    config = TextTasksConfig(**{name: value})
    config.check(of_parts(VOCABULARY, parts_of(*read.split())))
    with pytest.raises(ValueError, match=rf"model\.{name} applies only to {what}; set it to"):
        config.check(of_parts(VOCABULARY, parts_of(*unread.split())))


@pytest.mark.parametrize("name", ["dropout_rate", "attention_dropout_rate"])
def test_dropout_in_a_frozen_encoder_is_refused(name):
    encoder = dataclasses.replace(ENCODER, **{name: 0.2})
    TextTasksConfig(encoder=encoder)
    with pytest.raises(
        ValueError, match=rf"model\.encoder\.{name} applies only to models without model.freeze_encoder"
    ):
        TextTasksConfig(encoder=encoder, freeze_encoder=True)


@pytest.mark.parametrize("given", [(math.nan, 0.8), (math.inf, 0.8), (-1.0, 0.8), (0.0, 0.8), (10.0, math.nan)])
def test_the_logit_of_the_cosine_needs_a_positive_slope(given):
    with pytest.raises(ValueError, match=r"model\.cosine_logit must be a positive slope and a threshold, both finite"):
        TextTasksConfig(cosine_logit=given)


@pytest.mark.thorough
def test_a_frozen_encoder_has_no_gradient_and_no_dropout():
    config = dataclasses.replace(CONFIG, freeze_encoder=True, head_dropout_rate=0.0)
    model, params = build(config)

    @functools.partial(jax.jit, static_argnums=1)
    @jax.value_and_grad
    def loss(params, model):
        rngs = {"dropout": jax.random.key(0)}
        return predict(model, params, *batch(1), "sst", deterministic=False, rngs=rngs).sum()

    value, gradients = jax.device_get(loss(params, model))
    assert not any(leaf.any() for leaf in jax.tree.leaves(gradients["encoder"]))
    assert gradients["heads_sst"]["kernel"].any()
    np.testing.assert_allclose(value, np.sum(np.asarray(predict(model, params, *batch(1), "sst"))), rtol=1e-6)
    free, _ = build(dataclasses.replace(config, freeze_encoder=False))
    _, gradients = jax.device_get(loss(params, free))
    assert any(leaf.any() for leaf in jax.tree.leaves(gradients["encoder"]))


def test_frozen_parameters_are_those_of_a_frozen_encoder_and_of_an_unread_pooler():
    _, params = build()
    paths = [tuple(part.key for part in path) for path, _ in jax.tree_util.tree_leaves_with_path(params)]
    frozen = dataclasses.replace(CONFIG, freeze_encoder=True)
    assert {path for path in paths if frozen.frozen(path)} == {path for path in paths if path[0] == "encoder"}
    for pooling, unread in (("pooler", set()), ("mean", {"pooler"}), ("cls", {"pooler"})):
        free = dataclasses.replace(CONFIG, pooling=pooling)
        assert {path[1] for path in paths if free.frozen(path)} == unread


def test_a_frozen_encoder_without_heads_is_refused():
    for parts, similarity in [(parts_of("sts"), "learned"), (parts_of("sts", "sst"), "cosine")]:
        TextTasksConfig(similarity=similarity, freeze_encoder=True).check(of_parts(VOCABULARY, parts))
    with pytest.raises(ValueError, match=r"freeze_encoder leaves nothing to train: sts with cosine has no head"):
        TextTasksConfig(freeze_encoder=True).check(of_parts(VOCABULARY, parts_of("sts")))


@pytest.mark.thorough
def test_token_dropout_acts_as_padding_on_single_texts_in_training_and_keeps_the_first_token(monkeypatch):
    encoder = dataclasses.replace(CONFIG.encoder, dropout_rate=0.0, attention_dropout_rate=0.0)
    config = dataclasses.replace(CONFIG, encoder=encoder, head_dropout_rate=0.0, pooling="mean")
    model, params = build(config, token_dropout_rate=0.4)
    tokens, mask = batch(1)
    kept = np.random.default_rng(3).random((len(tokens), tokens.shape[2])) < 0.6
    drawn = []

    def known(key, shape, rate, *, first_row):
        drawn.append((shape, rate, first_row))
        return jnp.array(kept)

    monkeypatch.setattr(text_vectors, "keep_mask", known)
    in_training = {"deterministic": False, "rngs": {"dropout": jax.random.key(0)}}
    found = predict(model, params, tokens, mask, "sst", **in_training)
    assert drawn == [(kept.shape, 0.4, 0)]
    kept[:, 0] = True
    seen = mask & kept.reshape(mask.shape)
    assert seen.sum() < mask.sum()
    np.testing.assert_allclose(found, predict(model, params, tokens, seen, "sst"), atol=1e-6)
    predict(model, params, *batch(2), "quora", **in_training)
    assert len(drawn) == 1


def test_padding_changes_no_output():
    model, params = build(dataclasses.replace(CONFIG, pooling="mean"))
    tokens, mask = batch(2)
    garbage = np.where(mask, tokens, 3)
    expected = apply(model, params, tokens, mask)
    chex.assert_trees_all_close(apply(model, params, garbage, mask), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pooling": "sum"}, "model.pooling must be one of cls, pooler, mean, .*got 'sum'"),
        ({"similarity": "relation"}, "model.similarity must be one of cosine, learned, got 'relation'"),
        ({"head_dropout_rate": 1.0}, r"model.head_dropout_rate must be in \[0, 1\), got 1.0"),
        ({"encoder": dataclasses.replace(ENCODER, use_pooler=False)}, "needs an encoder with a pooler; set model"),
    ],
)
def test_a_config_with_an_impossible_value_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(CONFIG, **changes)


def test_every_parameter_has_its_axes_and_heads_are_known():
    config = dataclasses.replace(CONFIG, pair_layer="separate", similarity="learned")
    model = config.build(of_parts(VOCABULARY, ALL))
    shapes = jax.eval_shape(model.init, jax.random.key(0), jax.ShapeDtypeStruct((1, 2, 1), jnp.int32))["params"]
    for path, leaf in jax.tree_util.tree_leaves_with_path(shapes):
        names = tuple(part.key for part in path)
        parameter = config.parameter(names)
        assert len(parameter.axes) == leaf.ndim, names
        assert parameter.head == names[0].startswith("heads_"), names
    with pytest.raises(KeyError, match="this model has no parameter classifier/kernel"):
        config.parameter(("classifier", "kernel"))
