import dataclasses
import functools
import math

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnlp.models import text_tasks
from jaxnlp.models.bert import Bert, BertConfig, BertOutput
from jaxnlp.models.text_tasks import TextTasksConfig, cosine, pair_features, pool
from jaxnlp.text.labels import Labels

VOCABULARY = 13
LABELS = {
    "sst": Labels("classification", 1, ("0", "1", "2", "3", "4")),
    "nli": Labels("classification", 2, ("entailment", "neutral", "contradiction")),
    "quora": Labels("paraphrase", 2, ("0", "1")),
    "sts": Labels("similarity", 2, highest=5.0),
}
ENCODER = BertConfig(num_layers=1, num_heads=2, width=8, max_positions=10)
CONFIG = TextTasksConfig(encoder=ENCODER)


def batch(texts, rows=3, length=6, seed=0):
    generator = np.random.default_rng(seed)
    tokens = generator.integers(1, VOCABULARY, (rows, texts, length)).astype(np.int32)
    ends = generator.integers(2, length + 1, (rows, texts))
    return jnp.array(tokens), jnp.array(np.arange(length)[None, None] < ends[:, :, None])


def parts_of(*names):
    return tuple((name, LABELS[name]) for name in names or LABELS)


@functools.cache
def build(config=CONFIG, names=(), token_dropout_rate=0.0):
    """The model, and parameters larger than initial ones, so that all parameters count."""
    model = config.build(VOCABULARY, parts_of(*names), token_dropout_rate)
    params = jax.jit(model.init)(jax.random.key(0), jnp.zeros((1, 2, 1), jnp.int32))["params"]
    leaves, tree = jax.tree.flatten(params)
    keys = jax.random.split(jax.random.key(1), len(leaves))
    return model, jax.tree.unflatten(
        tree, [leaf + 0.3 * jax.random.normal(key, leaf.shape) for leaf, key in zip(leaves, keys, strict=True)]
    )


@functools.partial(jax.jit, static_argnames=("model", "part", "deterministic"))
def predict(model, params, part, **arguments):
    return model.apply({"params": params}, *batch(LABELS[part].texts), part, method="predict", **arguments)


@functools.partial(jax.jit, static_argnames="model")
def predict_pairs(model, params):
    return model.apply({"params": params}, *batch(2))


def test_each_part_has_predictions_of_its_shape():
    model, params = build()
    found = predict_pairs(model, params)
    assert {name: x.shape for name, x in found.items()} == {"sst": (3, 5), "nli": (3, 3), "quora": (3,), "sts": (3,)}
    for name in ("nli", "quora", "sts"):
        assert found[name].dtype == jnp.float32
        np.testing.assert_allclose(predict(model, params, name), found[name], atol=1e-6)
    assert (np.abs(found["sts"]) <= 1.0).all()


def test_parts_with_pairs_are_left_out_for_single_texts():
    model, params = build()
    tokens, mask = batch(1)
    found = jax.jit(model.apply)({"params": params}, tokens, mask)
    assert list(found) == ["sst"]
    np.testing.assert_allclose(predict(model, params, "sst"), found["sst"], atol=1e-6)


def test_initialisation_makes_every_head_and_the_same_values_for_any_other_part():
    key, tokens = jax.random.key(0), jnp.zeros((1, 2, 1), jnp.int32)
    config = dataclasses.replace(CONFIG, similarity="learned", pair_layer="separate")
    every = config.build(VOCABULARY, parts_of()).init(key, tokens)["params"]
    heads = {f"heads_{name}" for name in LABELS} | {f"relations_{name}" for name in ("nli", "quora", "sts")}
    assert every.keys() == {"encoder", *heads}
    single = config.build(VOCABULARY, parts_of("quora")).init(key, tokens)["params"]
    assert single.keys() == {"encoder", "heads_quora", "relations_quora"}
    chex.assert_trees_all_equal(single, {name: every[name] for name in single})


@pytest.mark.parametrize(("part", "texts"), [("sst", 2), ("quora", 1)])
def test_another_number_of_texts_is_refused(part, texts):
    model, params = build()
    message = rf"{part} takes {3 - texts} text\(s\) per example, got tokens \(3, {texts}, 6\)"
    with pytest.raises(ValueError, match=message):
        model.apply({"params": params}, *batch(texts), part, method="predict")


def encode(config, params, tokens, mask):
    """Each text encoded separately, [S][B, D], pooled as the config has it."""
    encoder = Bert(config.encoder, VOCABULARY, config.compute)
    return [
        pool(
            encoder.apply({"params": params["encoder"]}, tokens[:, number], None, mask[:, number]),
            mask[:, number],
            config.pooling,
        )
        for number in range(tokens.shape[1])
    ]


@pytest.mark.parametrize("pooling", ["cls", "pooler", "mean"])
def test_predictions_are_heads_on_the_vectors_of_single_texts(pooling):
    config = dataclasses.replace(CONFIG, pooling=pooling)
    model, params = build(config)
    (u,) = encode(config, params, *batch(1))
    expected = u @ params["heads_sst"]["kernel"] + params["heads_sst"]["bias"][None]
    np.testing.assert_allclose(predict(model, params, "sst"), expected, atol=1e-5)
    u, v = encode(config, params, *batch(2))
    features = np.concatenate([u, v, u - v, np.abs(u - v), u * v], axis=1)
    logit = features @ params["heads_quora"]["kernel"] + params["heads_quora"]["bias"][None]
    found = predict_pairs(model, params)
    np.testing.assert_allclose(found["quora"], logit[:, 0], atol=1e-4)
    logits = features @ params["heads_nli"]["kernel"] + params["heads_nli"]["bias"][None]
    np.testing.assert_allclose(found["nli"], logits, atol=1e-4)
    expected = [np.dot(a, b) / np.linalg.norm(a) / np.linalg.norm(b) for a, b in zip(u, v, strict=True)]
    np.testing.assert_allclose(found["sts"], expected, atol=1e-5)


@pytest.mark.sweep(2)
@pytest.mark.parametrize(
    ("pair_layer", "similarity", "layers"),
    [
        ("none", "learned", []),
        ("separate", "learned", ["relations_nli", "relations_quora", "relations_sts"]),
        ("separate", "cosine", ["relations_nli", "relations_quora"]),
        ("shared", "learned", ["relations_pairs"]),
        ("shared", "cosine", ["relations_pairs"]),
    ],
)
def test_pair_layers_are_those_that_the_config_has(pair_layer, similarity, layers):
    model, params = build(dataclasses.replace(CONFIG, pair_layer=pair_layer, similarity=similarity))
    assert sorted(name for name in params if name.startswith("relations")) == layers
    assert ("heads_sts" in params) == (similarity == "learned")
    found = predict_pairs(model, params)
    if similarity == "learned":
        assert ((found["sts"] > 0.0) & (found["sts"] < 1.0)).all()
    for name in layers:
        changed = {**params, name: jax.tree.map(lambda x: x + 1.0, params[name])}
        for part, output in predict_pairs(model, changed).items():
            paired = LABELS[part].texts == 2 and f"heads_{part}" in params
            reads = name == f"relations_{part}" or (name == "relations_pairs" and paired)
            assert (np.abs(output - found[part]).max() > 1e-4) == reads, (name, part)


def test_the_logit_of_the_cosine_is_added_only_to_paraphrases():
    plain, params = build()
    model, _ = build(dataclasses.replace(CONFIG, cosine_logit=(10.0, 0.8)))
    without, found = predict_pairs(plain, params), predict_pairs(model, params)
    np.testing.assert_allclose(found["quora"] - without["quora"], 10.0 * (without["sts"] - 0.8), atol=1e-5)
    for name in ("sst", "nli", "sts"):
        np.testing.assert_array_equal(found[name], without[name])


@pytest.mark.parametrize(
    ("name", "value", "reading", "not_reading"),
    [
        ("pair_layer", "separate", ("sst", "nli"), ("sst", "sts")),
        ("similarity", "learned", ("sts",), ("sst", "quora")),
        ("cosine_logit", (10.0, 0.8), ("quora",), ("sst", "nli", "sts")),
        ("head_dropout_rate", 0.2, ("sst",), ("sts",)),
    ],
)
def test_an_option_that_no_part_reads_is_refused(name, value, reading, not_reading):
    config = dataclasses.replace(CONFIG, **{name: value})
    config.check_labels(parts_of(*reading))
    with pytest.raises(ValueError, match=rf"model\.{name} applies only to parts with .*; leave it at"):
        config.check_labels(parts_of(*not_reading))


@pytest.mark.parametrize("given", [(math.nan, 0.8), (math.inf, 0.8), (-1.0, 0.8), (0.0, 0.8), (10.0, math.nan)])
def test_the_logit_of_the_cosine_has_a_positive_slope(given):
    with pytest.raises(ValueError, match=r"model\.cosine_logit must be a positive slope and a threshold, both finite"):
        TextTasksConfig(cosine_logit=given)


def test_a_frozen_encoder_learns_nothing_and_drops_nothing():
    config = dataclasses.replace(CONFIG, freeze_encoder=True, head_dropout_rate=0.0)
    model, params = build(config)

    @functools.partial(jax.jit, static_argnums=1)
    def loss(params, model=model):
        return predict(model, params, "sst", deterministic=False, rngs={"dropout": jax.random.key(0)}).sum()

    gradients = jax.grad(loss)(params)
    assert not any(leaf.any() for leaf in jax.tree.leaves(gradients["encoder"]))
    assert gradients["heads_sst"]["kernel"].any()
    np.testing.assert_allclose(loss(params), predict(model, params, "sst").sum(), rtol=1e-6)
    free, _ = build(dataclasses.replace(config, freeze_encoder=False))
    assert any(leaf.any() for leaf in jax.tree.leaves(jax.grad(lambda p: loss(p, free))(params)["encoder"]))


def test_a_frozen_encoder_and_an_unread_pooler_are_not_updated():
    _, params = build()
    paths = [tuple(part.key for part in path) for path, _ in jax.tree_util.tree_leaves_with_path(params)]
    frozen = dataclasses.replace(CONFIG, freeze_encoder=True)
    assert {path for path in paths if frozen.frozen(path)} == {path for path in paths if path[0] == "encoder"}
    for pooling, unread in (("pooler", set()), ("mean", {"pooler"}), ("cls", {"pooler"})):
        free = dataclasses.replace(CONFIG, pooling=pooling)
        assert {path[1] for path in paths if free.frozen(path)} == unread


def test_a_frozen_encoder_without_heads_is_refused():
    frozen = dataclasses.replace(CONFIG, freeze_encoder=True)
    dataclasses.replace(frozen, similarity="learned").check_labels(parts_of("sts"))
    frozen.check_labels(parts_of("sts", "sst"))
    with pytest.raises(ValueError, match=r"freeze_encoder leaves nothing to train: sts by cosine has no head"):
        frozen.check_labels(parts_of("sts"))


def test_hidden_tokens_are_masked_in_training_on_single_texts_and_the_first_never_is(monkeypatch):
    encoder = dataclasses.replace(CONFIG.encoder, dropout_rate=0.0, attention_dropout_rate=0.0)
    config = dataclasses.replace(CONFIG, encoder=encoder, head_dropout_rate=0.0, pooling="mean")
    model, params = build(config, token_dropout_rate=0.4)
    tokens, mask = batch(1)
    kept = np.random.default_rng(3).random((len(tokens), tokens.shape[2])) < 0.6
    drawn = []

    def known(key, shape, rate, *, first_row):
        drawn.append((shape, rate, first_row))
        return jnp.array(kept)

    monkeypatch.setattr(text_tasks, "keep_mask", known)
    training = {"method": "predict", "deterministic": False, "rngs": {"dropout": jax.random.key(0)}}
    found = model.apply({"params": params}, tokens, mask, "sst", **training)
    assert drawn == [(kept.shape, 0.4, 0)]
    kept[:, 0] = True
    seen = mask & kept.reshape(mask.shape)
    assert seen.sum() < mask.sum()
    expected = model.apply({"params": params}, tokens, seen, "sst", method="predict")
    np.testing.assert_allclose(found, expected, atol=1e-6)
    model.apply({"params": params}, tokens, mask, "sst", method="predict")
    model.apply({"params": params}, *batch(2), "quora", **training)
    assert len(drawn) == 1


def test_padding_changes_no_prediction():
    model, params = build(dataclasses.replace(CONFIG, pooling="mean"))
    tokens, mask = batch(2)
    garbage = jnp.where(mask, tokens, 3)
    expected = model.apply({"params": params}, tokens, mask)
    chex.assert_trees_all_close(model.apply({"params": params}, garbage, mask), expected, atol=1e-6)


def test_pair_features_of_equal_texts_have_no_difference():
    u = jnp.arange(6.0).reshape(2, 3)
    u_again, v, difference, distance, products = jnp.split(pair_features(u, u), 5, axis=1)
    chex.assert_trees_all_equal((u_again, v), (u, u))
    assert not difference.any()
    assert not distance.any()
    np.testing.assert_array_equal(products, u * u)


def test_cosine_of_a_zero_vector_is_zero_with_finite_gradients():
    u, zero = jnp.ones((1, 4)), jnp.zeros((1, 4))
    value, gradients = jax.value_and_grad(lambda u, v: cosine(u, v).sum(), argnums=(0, 1))(u, zero)
    assert value == 0.0
    assert all(np.isfinite(gradient).all() for gradient in gradients)
    np.testing.assert_allclose(cosine(u, 3.0 * u), 1.0, rtol=1e-6)
    np.testing.assert_allclose(cosine(u, -u), -1.0, rtol=1e-6)


@pytest.mark.parametrize("function", [pair_features, cosine])
def test_vectors_of_different_shapes_are_refused_not_broadcast(function):
    with pytest.raises(AssertionError, match="shape"):
        function(jnp.ones((3, 4)), jnp.ones((1, 4)))


def test_pooling_is_by_definition():
    hidden = jnp.arange(24.0).reshape(2, 3, 4)
    mask = jnp.array([[True, True, False], [True, True, True]])
    encoding = BertOutput(hidden, None, hidden[None])
    np.testing.assert_array_equal(pool(encoding, mask, "cls"), hidden[:, 0])
    np.testing.assert_array_equal(pool(encoding, mask, "mean"), jnp.stack([hidden[0, :2].mean(0), hidden[1].mean(0)]))
    with pytest.raises(ValueError, match="this encoder has no pooler"):
        pool(encoding, mask, "pooler")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"head_dropout_rate": 1.0}, r"model.head_dropout_rate must lie in \[0, 1\), got 1.0"),
        ({"encoder": dataclasses.replace(ENCODER, use_pooler=False)}, "pooling pooler needs an encoder with a pooler"),
        ({"pair_layer": "both"}, "model.pair_layer must be one of none, separate, shared, got 'both'"),
    ],
)
def test_an_impossible_config_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(CONFIG, **changes)
