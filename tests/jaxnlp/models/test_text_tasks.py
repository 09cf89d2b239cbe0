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

VOCABULARY, ALL = 13, ("sst", "cfimdb", "quora", "sts")
ENCODER = BertConfig(num_layers=1, num_heads=2, width=8, max_positions=10)
CONFIG = TextTasksConfig(encoder=ENCODER, tasks=ALL)


def batch(texts, rows=3, length=6, seed=0):
    generator = np.random.default_rng(seed)
    tokens = generator.integers(1, VOCABULARY, (rows, texts, length)).astype(np.int32)
    ends = generator.integers(2, length + 1, (rows, texts))
    return jnp.array(tokens), jnp.array(np.arange(length)[None, None] < ends[:, :, None])


@functools.cache
def build(config=CONFIG):
    """The model, and parameters larger than initial ones, so that all parts count."""
    model = config.build(VOCABULARY)
    params = jax.jit(model.init)(jax.random.key(0), jnp.zeros((1, 1), jnp.int32))["params"]
    leaves, tree = jax.tree.flatten(params)
    keys = jax.random.split(jax.random.key(1), len(leaves))
    return model, jax.tree.unflatten(
        tree, [leaf + 0.3 * jax.random.normal(key, leaf.shape) for leaf, key in zip(leaves, keys, strict=True)]
    )


@functools.partial(jax.jit, static_argnames=("model", "texts", "task", "deterministic"))
def answers(model, params, texts, **arguments):
    return model.apply({"params": params}, *batch(texts), **arguments)


def test_each_task_has_an_answer_of_its_shape():
    model, params = build()
    singles, pairs = answers(model, params, 1), answers(model, params, 2)
    assert {name: answer.shape for name, answer in singles.items()} == {"sst": (3, 5), "cfimdb": (3, 2)}
    assert {name: answer.shape for name, answer in pairs.items()} == {"quora": (3,), "sts": (3,)}
    for name, answer in (singles | pairs).items():
        assert answer.dtype == jnp.float32
        chex.assert_trees_all_close(answers(model, params, 1 if name in singles else 2, task=name), answer)
    assert (np.abs(pairs["sts"]) <= 1.0).all()


@pytest.mark.parametrize(("task", "texts"), [("sst", 2), ("quora", 1)])
def test_a_task_about_another_number_of_texts_is_refused(task, texts):
    model, params = build()
    with pytest.raises(ValueError, match=rf"{task} is about {3 - texts} text\(s\), got {texts}"):
        answers(model, params, texts, task=task)


def encode(config, params, tokens, mask):
    """Each text alone, [S][B, D], pooled as the config has it."""
    encoder = Bert(config.encoder, VOCABULARY)
    return [
        pool(
            encoder.apply({"params": params["encoder"]}, tokens[:, number], None, mask[:, number]),
            mask[:, number],
            config.pooling,
        )
        for number in range(tokens.shape[1])
    ]


@pytest.mark.parametrize("pooling", ["cls", "pooler", "mean"])
def test_answers_are_heads_on_the_vectors_of_single_texts(pooling):
    config = dataclasses.replace(CONFIG, pooling=pooling)
    model, params = build(config)
    (u,) = encode(config, params, *batch(1))
    expected = u @ params["heads_sst"]["kernel"] + params["heads_sst"]["bias"][None]
    np.testing.assert_allclose(answers(model, params, 1)["sst"], expected, atol=1e-5)
    u, v = encode(config, params, *batch(2))
    features = np.concatenate([u, v, u - v, np.abs(u - v), u * v], axis=1)
    logit = features @ params["heads_quora"]["kernel"] + params["heads_quora"]["bias"][None]
    found = answers(model, params, 2)
    np.testing.assert_allclose(found["quora"], logit[:, 0], atol=1e-4)
    expected = [np.dot(a, b) / np.linalg.norm(a) / np.linalg.norm(b) for a, b in zip(u, v, strict=True)]
    np.testing.assert_allclose(found["sts"], expected, atol=1e-5)


@pytest.mark.sweep(2)
@pytest.mark.parametrize(
    ("relation", "similarity", "layers"),
    [
        ("none", "relation", []),
        ("separate", "relation", ["relations_quora", "relations_sts"]),
        ("separate", "cosine", ["relations_quora"]),
        ("shared", "relation", ["relations_pairs"]),
        ("shared", "cosine", ["relations_pairs"]),
    ],
)
def test_relation_layers_are_those_that_the_config_has(relation, similarity, layers):
    config = dataclasses.replace(CONFIG, relation=relation, similarity=similarity)
    model, params = build(config)
    assert sorted(name for name in params if name.startswith("relations")) == layers
    assert ("heads_sts" in params) == (similarity == "relation")
    found = answers(model, params, 2)
    if similarity == "relation":
        assert ((found["sts"] > 0.0) & (found["sts"] < 1.0)).all()
    for name in layers:
        changed = {**params, name: jax.tree.map(lambda x: x + 1.0, params[name])}
        for task, answer in answers(model, changed, 2).items():
            concerned = name == f"relations_{task}" or (name == "relations_pairs" and f"heads_{task}" in params)
            assert (np.abs(answer - found[task]).max() > 1e-4) == concerned, (name, task)


def test_a_logit_of_the_cosine_is_added_to_a_paraphrases_alone():
    plain, params = build()
    model, _ = build(dataclasses.replace(CONFIG, cosine_logit=(10.0, 0.8)))
    without, found = answers(plain, params, 2), answers(model, params, 2)
    np.testing.assert_allclose(found["quora"] - without["quora"], 10.0 * (without["sts"] - 0.8), atol=1e-5)
    np.testing.assert_array_equal(found["sts"], without["sts"])


@pytest.mark.parametrize(
    ("name", "value", "tasks", "what"),
    [
        ("relation", "separate", ("sst", "sts"), "features of a pair"),
        ("cosine_logit", (10.0, 0.8), ("sst", "sts"), "paraphrases"),
        ("token_dropout_rate", 0.1, ("quora", "sts"), "single texts"),
    ],
)
def test_a_setting_that_no_task_reads_is_refused(name, value, tasks, what):
    for others in (ALL, *(tuple(name for name in ALL if name not in tasks),)):
        TextTasksConfig(tasks=others, **{name: value})
    with pytest.raises(ValueError, match=rf"model.{name} is for a task .*{what}, got the tasks {', '.join(tasks)}"):
        TextTasksConfig(tasks=tasks, **{name: value})


@pytest.mark.parametrize("given", [(math.nan, 0.8), (math.inf, 0.8), (-1.0, 0.8), (0.0, 0.8), (10.0, math.nan)])
def test_a_logit_of_the_cosine_has_a_slope_above_zero(given):
    with pytest.raises(ValueError, match=r"model\.cosine_logit must be a slope above 0 and a threshold, both finite"):
        TextTasksConfig(tasks=("quora",), cosine_logit=given)


def test_a_frozen_encoder_learns_nothing_and_drops_nothing():
    config = dataclasses.replace(CONFIG, freeze_encoder=True, head_dropout_rate=0.0)
    model, params = build(config)

    @functools.partial(jax.jit, static_argnums=1)
    def loss(params, model=model):
        return answers(model, params, 1, task="sst", deterministic=False, rngs={"dropout": jax.random.key(0)}).sum()

    gradients = jax.grad(loss)(params)
    assert not any(leaf.any() for leaf in jax.tree.leaves(gradients["encoder"]))
    assert gradients["heads_sst"]["kernel"].any()
    np.testing.assert_allclose(loss(params), answers(model, params, 1, task="sst").sum(), rtol=1e-6)
    free, _ = build(dataclasses.replace(config, freeze_encoder=False))
    assert any(leaf.any() for leaf in jax.tree.leaves(jax.grad(lambda p: loss(p, free))(params)["encoder"]))


def test_what_is_frozen_is_the_encoder_where_the_config_says_so():
    _, params = build()
    paths = [tuple(part.key for part in path) for path, _ in jax.tree_util.tree_leaves_with_path(params)]
    frozen = dataclasses.replace(CONFIG, freeze_encoder=True)
    assert {path for path in paths if frozen.frozen(path)} == {path for path in paths if path[0] == "encoder"}
    for pooling, unread in (("pooler", set()), ("mean", {"pooler"}), ("cls", {"pooler"})):
        free = dataclasses.replace(CONFIG, pooling=pooling)
        assert {path[1] for path in paths if free.frozen(path)} == unread


def test_a_frozen_encoder_without_heads_is_refused():
    for tasks, similarity in [(("sts",), "relation"), (("sts", "sst"), "cosine")]:
        TextTasksConfig(tasks=tasks, similarity=similarity, freeze_encoder=True)
    with pytest.raises(ValueError, match=r"freeze_encoder leaves nothing to train: sts by cosine has no head"):
        TextTasksConfig(tasks=("sts",), freeze_encoder=True)


def test_hidden_tokens_are_as_if_they_were_not_there_and_the_first_never_is(monkeypatch):
    encoder = dataclasses.replace(CONFIG.encoder, dropout_rate=0.0, attention_dropout_rate=0.0)
    config = dataclasses.replace(CONFIG, encoder=encoder, head_dropout_rate=0.0, pooling="mean", token_dropout_rate=0.4)
    model, params = build(config)
    tokens, mask = batch(1)
    kept = np.random.default_rng(3).random((len(tokens), tokens.shape[2])) < 0.6
    drawn = []

    def known(key, shape, rate, *, first_row):
        drawn.append((shape, rate, first_row))
        return jnp.array(kept)

    monkeypatch.setattr(text_tasks, "keep_mask", known)
    found = model.apply(
        {"params": params}, tokens, mask, "sst", deterministic=False, rngs={"dropout": jax.random.key(0)}
    )
    assert drawn == [(kept.shape, 0.4, 0)]
    kept[:, 0] = True
    seen = mask & kept.reshape(mask.shape)
    assert seen.sum() < mask.sum()
    np.testing.assert_allclose(found, model.apply({"params": params}, tokens, seen, "sst"), atol=1e-6)
    model.apply({"params": params}, tokens, mask, "sst")
    pairs = batch(2)
    model.apply({"params": params}, *pairs, "quora", deterministic=False, rngs={"dropout": jax.random.key(0)})
    assert len(drawn) == 1  # in training alone, and of single texts


def test_padding_changes_no_answer():
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


def test_pools_are_what_they_say():
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
        ({"tasks": ("sst", "nli")}, "model.tasks must be one of sst, cfimdb, quora, sts, got"),
        ({"head_dropout_rate": 1.0}, r"model.head_dropout_rate must lie in \[0, 1\), got 1.0"),
        ({"token_dropout_rate": -0.1}, r"model.token_dropout_rate must lie in \[0, 1\), got -0.1"),
        ({"encoder": dataclasses.replace(ENCODER, use_pooler=False)}, "this encoder has no pooler; choose cls or mean"),
    ],
)
def test_config_that_cannot_be_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(CONFIG, **changes)
