import dataclasses
import functools
import math

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from train.objectives import LossConfig, carrying, next_token, next_token_carried, text_tasks

from jaxnlp.models.bert import BertConfig
from jaxnlp.models.gpt import GPTConfig
from jaxnlp.models.recurrent_lm import RecurrentLMConfig
from jaxnlp.models.text_tasks import TextTasksConfig
from jaxnlp.nn.dropout import Dropout
from jaxnlp.ops.losses import cross_entropy
from train.step import init_state, train_step

VOCABULARY = 5


class Bigram(nn.Module):
    """Logits of the next token are a row of a table, with dropout."""

    @nn.compact
    def __call__(self, tokens, *, deterministic=True):
        return Dropout(0.5)(nn.Embed(VOCABULARY, VOCABULARY, name="table")(tokens), deterministic=deterministic)


def params():
    return {"table": {"embedding": jax.random.normal(jax.random.key(0), (VOCABULARY, VOCABULARY))}}


def batch(rows=3, length=4, seed=0):
    generator = np.random.default_rng(seed)
    tokens = generator.integers(VOCABULARY, size=(rows, length + 1)).astype(np.int32)
    mask = generator.random((rows, length)) < 0.7
    return {"tokens": jnp.array(tokens[:, :-1]), "targets": jnp.array(tokens[:, 1:]), "loss_mask": jnp.array(mask)}


def test_loss_is_the_mean_surprise_at_the_targets_that_count():
    table, held = np.array(params()["table"]["embedding"], np.float64), batch()
    surprises = []
    for row, column in np.argwhere(held["loss_mask"]):
        exponentials = [math.exp(x) for x in table[held["tokens"][row, column]]]
        surprises.append(-math.log(exponentials[held["targets"][row, column]] / sum(exponentials)))
    loss, metrics = next_token(Bigram())(params(), held, None)
    np.testing.assert_allclose(loss, np.mean(surprises), rtol=1e-6)
    np.testing.assert_allclose(metrics["loss"], [np.sum(surprises), len(surprises)], rtol=1e-6)


def test_gradient_is_the_softmax_minus_the_target():
    table, held = np.array(params()["table"]["embedding"], np.float64), batch()
    expected = np.zeros_like(table)
    counted = np.argwhere(held["loss_mask"])
    for row, column in counted:
        token, target = held["tokens"][row, column], held["targets"][row, column]
        expected[token] += np.exp(table[token]) / np.exp(table[token]).sum() - np.eye(VOCABULARY)[target]
    gradient = jax.grad(lambda p: next_token(Bigram())(p, held, None)[0])(params())["table"]["embedding"]
    np.testing.assert_allclose(gradient, expected / len(counted), atol=1e-6)


def test_no_key_means_no_dropout():
    loss_fn = next_token(Bigram())
    first, second = (loss_fn(params(), batch(), None)[0] for _ in range(2))
    assert first == second
    dropped = [float(loss_fn(params(), batch(), jax.random.key(seed))[0]) for seed in (0, 0, 1)]
    assert dropped[0] == dropped[1]
    assert len({*dropped, float(first)}) == 3


@pytest.mark.parametrize("key", [None, 3])
def test_what_is_logged_is_what_is_optimised(key):
    key = None if key is None else jax.random.key(key)
    loss, metrics = next_token(Bigram())(params(), batch(), key)
    total, count = metrics["loss"]
    np.testing.assert_array_equal(loss, total / count)


@pytest.mark.parametrize("garbage", [0, VOCABULARY - 1])
def test_padding_rows_change_neither_loss_nor_gradient(garbage):
    held = batch()
    padded = {
        name: jnp.concatenate([x, jnp.full((2, *x.shape[1:]), False if name == "loss_mask" else garbage, x.dtype)])
        for name, x in held.items()
    }
    step = jax.value_and_grad(next_token(Bigram()), has_aux=True)
    for key in (None, jax.random.key(0)):
        chex.assert_trees_all_close(step(params(), held, key), step(params(), padded, key), rtol=1e-6)


def test_batch_of_padding_alone_has_loss_and_gradient_zero():
    held = batch() | {"loss_mask": jnp.zeros((3, 4), bool)}
    (loss, metrics), gradient = jax.value_and_grad(next_token(Bigram()), has_aux=True)(params(), held, None)
    assert (loss, *metrics["loss"]) == (0.0, 0.0, 0.0)
    chex.assert_trees_all_equal(gradient, jax.tree.map(jnp.zeros_like, params()))


def test_sums_of_two_halves_are_the_sum_of_the_whole():
    held = batch(rows=4)
    halves = [{name: x[part] for name, x in held.items()} for part in (slice(0, 1), slice(1, 4))]
    loss_fn = next_token(Bigram())
    parts = [np.array(loss_fn(params(), half, None)[1]["loss"]) for half in halves]
    np.testing.assert_allclose(sum(parts), loss_fn(params(), held, None)[1]["loss"], rtol=1e-6)


GPT = GPTConfig(num_layers=1, num_heads=2, width=8, context_length=4, embedding_dropout_rate=0.3)


def loss_metrics_and_gradient(model, weights, config, key):
    @jax.jit
    def run(weights, held, key):
        return jax.value_and_grad(next_token(model, config), has_aux=True)(weights, held, key)

    (loss, metrics), gradient = run(weights, batch(), key)
    return loss, metrics, gradient


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("smoothing", [{}, {"label_smoothing": 0.2, "z_loss": 0.1}])
def test_a_loss_by_chunks_is_that_of_all_logits_at_once(training, tied, smoothing):
    model = dataclasses.replace(GPT, tie_embeddings=tied).build(VOCABULARY)
    weights = model.init(jax.random.key(0), jnp.zeros((1, 1), jnp.int32))["params"]
    key = jax.random.key(1) if training else None
    found = loss_metrics_and_gradient(model, weights, LossConfig(chunk_tokens=5, **smoothing), key)
    expected = loss_metrics_and_gradient(model, weights, LossConfig(**smoothing), key)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), found, expected)


def test_smoothing_and_z_loss_are_what_is_minimised_and_evaluation_reports_the_cross_entropy_alone():
    held, settings = batch(), {"label_smoothing": 0.3, "z_loss": 0.2}
    key = jax.random.key(0)
    loss, metrics = next_token(Bigram(), LossConfig(**settings))(params(), held, key)
    logits = Bigram().apply({"params": params()}, held["tokens"], deterministic=False, rngs={"dropout": key})
    total, _, count = cross_entropy(logits, held["targets"], held["loss_mask"], **settings)
    np.testing.assert_allclose(metrics["loss"], (total, count), rtol=1e-6)
    np.testing.assert_allclose(loss, total / count, rtol=1e-6)
    evaluated = next_token(Bigram(), LossConfig(**settings))(params(), held, None)
    chex.assert_trees_all_equal(evaluated, next_token(Bigram())(params(), held, None))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"label_smoothing": 1.0}, r"loss.label_smoothing must lie in \[0, 1\), got 1.0"),
        ({"label_smoothing": math.nan}, "loss.label_smoothing"),
        ({"z_loss": -0.1}, "loss.z_loss must be finite and not negative, got -0.1"),
        ({"z_loss": math.inf}, "loss.z_loss"),
        ({"chunk_tokens": 0}, "loss.chunk_tokens must be at least 1 or None, got 0"),
        ({"sampled_tokens": 0}, "loss.sampled_tokens must be at least 1 or None, got 0"),
        ({"frequent_tokens": -1}, "loss.frequent_tokens must not be negative, got -1"),
        ({"sampled_tokens": 5, "z_loss": 0.1}, "loss.sampled_tokens estimates the plain cross-entropy"),
    ],
)
def test_loss_config_that_cannot_be_is_refused_with_its_value(changes, message):
    with pytest.raises(ValueError, match=message):
        LossConfig(**changes)


RECURRENT = RecurrentLMConfig(embedding_width=3, widths=(4,), output_dropout_rate=0.5).build(VOCABULARY)


GPT_MODEL = GPTConfig(num_layers=1, num_heads=1, width=4, context_length=4).build(VOCABULARY)


def recurrent_params():
    return RECURRENT.init(jax.random.key(0), jnp.zeros((1, 1), jnp.int32))["params"]


def test_rows_read_on_where_they_stopped_unless_they_begin_anew():
    whole = batch(length=8)
    halves = [{name: array[:, part] for name, array in whole.items()} for part in (slice(4), slice(4, 8))]
    loss = next_token_carried(RECURRENT)
    carry, sums = loss.empty(3), np.zeros(2)
    for number, half in enumerate(halves):
        reset = jnp.full(3, number == 0)
        _, (metrics, carry) = loss.loss_fn(recurrent_params(), half | {"reset": reset}, None, carry)
        sums += metrics["loss"]
    _, (expected, untouched) = loss.loss_fn(recurrent_params(), whole, None, ())
    np.testing.assert_allclose(sums, expected["loss"], rtol=1e-6)
    assert untouched == ()
    anew = halves[1] | {"reset": jnp.array([False, True, False])}
    _, (_, found) = loss.loss_fn(recurrent_params(), anew, None, carry)
    _, (_, fresh) = loss.loss_fn(recurrent_params(), halves[1] | {"reset": jnp.full(3, True)}, None, loss.empty(3))
    np.testing.assert_allclose(found[0][0][0][1], fresh[0][0][0][1], rtol=1e-6)
    assert (found[0][0][0][0] != fresh[0][0][0][0]).any()


def test_no_gradient_flows_into_what_is_carried():
    loss = next_token_carried(RECURRENT)
    held = batch() | {"reset": jnp.full(3, False)}

    def final_state(params):
        return sum(jnp.sum(leaf) for leaf in jax.tree.leaves(loss.loss_fn(params, held, None, loss.empty(3))[1][1]))

    assert not any(leaf.any() for leaf in jax.tree.leaves(jax.grad(final_state)(recurrent_params())))


def test_activation_regularisers_are_mean_squares_of_dropped_outputs_and_of_changes():
    params, held, key = recurrent_params(), batch(), jax.random.key(5)
    plain, _ = next_token_carried(RECURRENT).loss_fn(params, held, key, ())
    config = LossConfig(activation_regularisation=2.0, temporal_activation_regularisation=3.0)
    loss, (metrics, _) = next_token_carried(RECURRENT, config).loss_fn(params, held, key, ())
    reading = RECURRENT.apply(
        {"params": params}, held["tokens"], deterministic=False, rngs={"dropout": key}, method="read"
    )
    counted, dropped, outputs = (np.asarray(a) for a in (held["loss_mask"], reading.dropped, reading.outputs))
    changes = [
        np.square(outputs[row, t + 1] - outputs[row, t]).mean()
        for row in range(3)
        for t in range(3)
        if counted[row, t + 1]
    ]
    expected = 2.0 * np.square(dropped[counted]).mean() + 3.0 * np.mean(changes)
    np.testing.assert_allclose(loss - plain, expected, rtol=1e-4)
    np.testing.assert_allclose(metrics["loss"][0] / metrics["loss"][1], loss, rtol=1e-6)


def test_evaluation_of_a_regularised_model_reports_the_cross_entropy_alone():
    config = LossConfig(activation_regularisation=2.0, temporal_activation_regularisation=3.0, label_smoothing=0.1)
    found = next_token_carried(RECURRENT, config).loss_fn(recurrent_params(), batch(), None, ())
    chex.assert_trees_all_equal(found, next_token_carried(RECURRENT).loss_fn(recurrent_params(), batch(), None, ()))


TASKED = TextTasksConfig(
    encoder=BertConfig(num_layers=1, num_heads=1, width=4, max_positions=6),
    tasks=("sst", "quora", "sts"),
    pooling="mean",
)


def task_batch(task, labels):
    """Rows of one or two texts of up to five tokens; the last row is padding."""
    generator, texts = np.random.default_rng(0), 1 if task == "sst" else 2
    mask = np.arange(5)[None, None] < generator.integers(1, 6, (4, texts, 1))
    return {
        "tokens": jnp.array(generator.integers(0, VOCABULARY, (4, texts, 5)).astype(np.int32)),
        "attention_mask": jnp.array(mask),
        "loss_mask": jnp.array([True, True, True, False]),
        task: jnp.array([*labels, np.nan], jnp.float32),
    }


@pytest.mark.parametrize(
    ("task", "labels"), [("sst", [4.0, 0.0, 2.0]), ("quora", [1.0, 0.0, 1.0]), ("sts", [5.0, 0.0, 2.2])]
)
def test_each_task_has_its_loss_and_its_share_of_right_answers(task, labels):
    model = TASKED.build(VOCABULARY)
    params = jax.tree.map(lambda x: 10.0 * x, model.init(jax.random.key(0), jnp.zeros((1, 1), jnp.int32))["params"])
    held = task_batch(task, labels)
    weights = LossConfig(task_weights=(2.0, 3.0, 5.0))
    loss, metrics = jax.jit(lambda p, b: text_tasks(model, weights)(p, b, None))(params, held)
    answers = model.apply({"params": params}, held["tokens"], held["attention_mask"], task)[:3]
    expected = np.array(labels)
    if task == "sst":
        losses = [math.log(np.exp(row).sum()) - row[int(label)] for row, label in zip(answers, labels, strict=True)]
        right = answers.argmax(axis=1) == expected
    elif task == "quora":
        shares = 1.0 / (1.0 + np.exp(-answers))
        losses, right = -np.log(np.where(expected == 1.0, shares, 1.0 - shares)), (shares > 0.5) == expected
    else:
        losses, right = (answers - expected / 5.0) ** 2, None
    weight = {"sst": 2.0, "quora": 3.0, "sts": 5.0}[task]
    np.testing.assert_allclose(loss, weight * np.mean(losses), rtol=1e-5)
    np.testing.assert_allclose(metrics["loss"], [weight * np.sum(losses), 3.0], rtol=1e-5)
    np.testing.assert_allclose(metrics[f"{task}/loss"], [np.sum(losses), 3.0], rtol=1e-5)
    assert (right is None) == (f"{task}/accuracy" not in metrics)
    if right is not None:
        np.testing.assert_array_equal(metrics[f"{task}/accuracy"], [right.sum(), 3.0])
    gradients = jax.jit(jax.grad(lambda p: text_tasks(model, weights)(p, held, jax.random.key(0))[0]))(params)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradients))
    assert any(leaf.any() for leaf in jax.tree.leaves(gradients["encoder"]))


def test_a_step_on_two_tasks_logs_the_weighted_sum_of_their_losses():
    config = dataclasses.replace(TASKED, tasks=("sst", "sts"), freeze_encoder=True)
    model, optimizer = config.build(VOCABULARY), optax.with_extra_args_support(optax.sgd(0.1))
    params = jax.jit(model.init)(jax.random.key(0), jnp.zeros((1, 1), jnp.int32))["params"]
    loss_fn = text_tasks(model, LossConfig(task_weights=(2.0, 0.5)))
    state = init_state(params, optimizer, jax.random.key(1), ema=False)
    step = jax.jit(functools.partial(train_step, loss_fn=loss_fn, optimizer=optimizer, gradient_surgery=True))
    _, metrics = step(state, {task: task_batch(task, [1.0, 0.0, 2.0]) for task in config.tasks})
    assert metrics.keys() == {"loss", "sst/loss", "sst/accuracy", "sts/loss", "grad_norm"}
    (sst, rows), (sts, other_rows) = metrics["sst/loss"], metrics["sts/loss"]
    assert rows == other_rows == 3
    np.testing.assert_allclose(metrics["loss"], [6 * (2.0 * sst / 3 + 0.5 * sts / 3), 6.0], rtol=1e-5)
    assert sst > 0.1
    assert sts > 0.01


def test_labels_are_smoothed_in_training_alone():
    model = dataclasses.replace(TASKED, head_dropout_rate=0.0, freeze_encoder=True).build(VOCABULARY)
    params = model.init(jax.random.key(0), jnp.zeros((1, 1), jnp.int32))["params"]
    params = {**params, "heads_sst": jax.tree.map(lambda x: 100.0 * x, params["heads_sst"])}
    held = task_batch("sst", [4.0, 0.0, 2.0])

    def loss(smoothing, key):
        return float(text_tasks(model, LossConfig(label_smoothing=smoothing))(params, held, key)[0])

    assert loss(0.5, None) == loss(0.0, None)
    np.testing.assert_allclose(loss(0.0, jax.random.key(0)), loss(0.0, None), rtol=1e-6)
    assert loss(0.5, jax.random.key(0)) != pytest.approx(loss(0.0, None), rel=1e-4)


def test_task_weights_are_one_for_each_task_and_positive():
    with pytest.raises(ValueError, match=r"loss.task_weights needs one for each of sst, quora, sts, got \(1.0,\)"):
        text_tasks(TASKED.build(VOCABULARY), LossConfig(task_weights=(1.0,)))
    with pytest.raises(ValueError, match=r"loss.task_weights must be positive, got \(0.0,\)"):
        LossConfig(task_weights=(0.0,))


COUNTS = np.array([4, 0, 9, 7, 0])


@pytest.mark.parametrize("build", [next_token, next_token_carried])
def test_training_against_a_sample_is_exact_where_one_word_is_left_and_evaluation_is_exact_anyhow(build):
    model = RECURRENT if build is next_token_carried else GPT_MODEL
    params = model.init(jax.random.key(0), jnp.zeros((1, 1), jnp.int32))["params"]
    key = jax.random.key(5)

    def loss_of(key, **fields):
        return float(carrying(build(model, LossConfig(**fields), COUNTS)).loss_fn(params, batch(), key, ())[0])

    np.testing.assert_allclose(loss_of(key, sampled_tokens=3, frequent_tokens=4), loss_of(key), rtol=1e-6)
    np.testing.assert_allclose(loss_of(key, sampled_tokens=1, frequent_tokens=5), loss_of(key), rtol=1e-6)
    # Tokens 1 and 4 never occur, and one of them is drawn.
    assert loss_of(key, sampled_tokens=1, frequent_tokens=3) != pytest.approx(loss_of(key), rel=1e-4)
    np.testing.assert_allclose(loss_of(None, sampled_tokens=1, frequent_tokens=3), loss_of(None), rtol=1e-6)


def test_a_sample_needs_to_know_what_is_rare():
    loss = next_token_carried(RECURRENT, LossConfig(sampled_tokens=1, frequent_tokens=3))
    loss.loss_fn(recurrent_params(), batch(), None, ())
    with pytest.raises(ValueError, match="give token_counts"):
        loss.loss_fn(recurrent_params(), batch(), jax.random.key(0), ())


def test_a_loss_that_carries_nothing_hands_on_what_it_is_given():
    loss = carrying(next_token(Bigram()))
    assert loss.empty(7) == ()
    value, (metrics, carry) = loss.loss_fn(params(), batch(), None, ())
    expected, expected_metrics = next_token(Bigram())(params(), batch(), None)
    assert (value, carry) == (expected, ())
    chex.assert_trees_all_equal(metrics, expected_metrics)
    assert carrying(loss) is loss


@pytest.mark.parametrize("name", ["activation_regularisation", "temporal_activation_regularisation"])
def test_negative_regularisers_are_refused(name):
    with pytest.raises(ValueError, match=f"loss.{name} must be finite and not negative, got -1.0"):
        LossConfig(**{name: -1.0})
