"""The task itself: its loss, its metrics, and what it refuses."""

import dataclasses
import functools
import math

import jax
import numpy as np
import optax
import pytest

from data.minbert import LABELS, MinBertData
from jaxnlp.corpus import Corpus, Split
from jaxnlp.models.bert import BertConfig
from jaxnlp.models.bert_pretraining import BertPretrainingConfig
from jaxnlp.models.text_tasks import TextTasksConfig
from jaxnlp.tasks.text_tasks import TextTasks
from jaxnlp.text.text_processor import TextProcessor
from jaxnlp.text.wordpiece import SPECIAL, WordPieceVocabulary
from tests.random_parameters import random_parameters
from train.config import TrainConfig
from train.step import init_state, train_step

VOCABULARY = WordPieceVocabulary.of_pieces(list(SPECIAL))
CONFIG = TextTasksConfig(encoder=BertConfig(num_layers=1, num_heads=1, width=4, max_positions=6), pooling="mean")
EXAMPLES = {"sst": [4.0, 0.0, 2.0], "quora": [1.0, 0.0, 1.0], "sts": [5.0, 0.0, 2.2]}


def processor(*names):
    return TextProcessor(VOCABULARY, 6, tuple((name, LABELS[name]) for name in names))


def corpus(*names):
    return Corpus((), {}, processor(*names), "", "")


def batch(part, labels):
    """Rows of one or two texts of up to five tokens; the last row is padding."""
    generator = np.random.default_rng(0)
    mask = np.arange(5)[None, None] < generator.integers(1, 6, (4, LABELS[part].texts, 1))
    return {
        "tokens": generator.integers(0, VOCABULARY.size, (*mask.shape[:2], 5)).astype(np.int32),
        "attention_mask": mask,
        "loss_mask": np.array([True, True, True, False]),
        part: np.array([*labels, np.nan], np.float32),
    }


@functools.cache
def build(task, *names, config=CONFIG, scale=1.0):
    model, inputs = config.build(processor(*names)), config.inputs(processor(*names))
    return model, jax.tree.map(lambda x: np.float32(scale * x), random_parameters(model, *inputs, spread=0.02))


@functools.cache
def compiled_loss(task, model):
    return jax.jit(task.objective(model, None).loss)


def measure(task, names, part, key=None, config=CONFIG, scale=10.0):
    """The objective and the metrics of a batch of a part."""
    model, params = build(task, *names, config=config, scale=scale)
    value, (metrics, carry) = compiled_loss(task, model)(params, batch(part, EXAMPLES[part]), key, ())
    assert carry == ()
    return float(value), {name: np.array(pair) for name, pair in metrics.items()}


@pytest.mark.sweep(1)
@pytest.mark.parametrize("part", EXAMPLES)
def test_each_part_has_its_loss_and_accuracy_by_definition(part):
    task = TextTasks(part_weights=(2.0, 3.0, 5.0))
    model, params = build(task, *EXAMPLES, scale=10.0)
    held, expected = batch(part, EXAMPLES[part]), np.array(EXAMPLES[part])
    arguments = (held["tokens"], held["attention_mask"], part)
    predict = jax.jit(functools.partial(model.apply, method="predict"), static_argnums=3)
    outputs = np.asarray(predict({"params": params}, *arguments))[:3]
    if part == "sst":
        losses = [math.log(np.exp(row).sum()) - row[int(x)] for row, x in zip(outputs, expected, strict=True)]
        right = outputs.argmax(axis=1) == expected
    elif part == "quora":
        shares = 1.0 / (1.0 + np.exp(-outputs))
        losses, right = -np.log(np.where(expected == 1.0, shares, 1.0 - shares)), (shares > 0.5) == expected
    else:
        losses, right = (outputs - expected / 5.0) ** 2, None
    weight = {"sst": 2.0, "quora": 3.0, "sts": 5.0}[part]
    value, metrics = measure(task, tuple(EXAMPLES), part)
    np.testing.assert_allclose(value, weight * np.mean(losses), rtol=1e-5)
    np.testing.assert_allclose(metrics["objective"], [weight * np.sum(losses), 3.0], rtol=1e-5)
    np.testing.assert_allclose(metrics[f"{part}/loss"], [np.sum(losses), 3.0], rtol=1e-5)
    assert (right is None) == (f"{part}/accuracy" not in metrics)
    if right is not None:
        np.testing.assert_array_equal(metrics[f"{part}/accuracy"], [right.sum(), 3.0])
    loss = task.objective(model, None).loss
    gradients = jax.jit(jax.grad(lambda p, batch: loss(p, batch, jax.random.key(0), ())[0]))(params, held)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradients))
    assert any(leaf.any() for leaf in jax.tree.leaves(gradients["encoder"]))


@pytest.mark.thorough
def test_several_parts_have_no_plain_loss_in_training_and_a_single_part_has():
    """The schedule of the parts' batches would weight it; validation weights it by part."""
    key = jax.random.key(0)
    _, several = measure(TextTasks(), ("sst", "sts"), "sst", key)
    assert several.keys() == {"objective", "sst/loss", "sst/accuracy", "positions_per_token"}
    _, single = measure(TextTasks(), ("sst",), "sst", key)
    assert single.keys() == {"loss", "sst/loss", "sst/accuracy", "positions_per_token"}
    np.testing.assert_array_equal(single["loss"], single["sst/loss"])


def test_progress_is_the_number_of_tokens_without_padding():
    held = batch("quora", EXAMPLES["quora"])
    _, metrics = measure(TextTasks(), ("quora",), "quora")
    np.testing.assert_array_equal(metrics["positions_per_token"], [4 * 2 * 5, held["attention_mask"].sum()])
    assert TextTasks().objective(build(TextTasks(), "quora")[0], None).progress == "positions_per_token"


@pytest.mark.sweep(1)
@pytest.mark.parametrize("names", [("sst",), ("sts",), ("sst", "quora", "sts")])
@pytest.mark.parametrize("task", [TextTasks(), TextTasks(label_smoothing=0.5)])
def test_every_metric_of_training_is_declared_with_its_unit(task, names):
    declared = task.metrics(processor(*names), Split())
    for part in names:
        _, found = measure(task, names, part, jax.random.key(0))
        assert found.keys() <= declared.keys()
    units = {("sst",): "nats", ("sts",): "squared error"}
    assert declared["loss"].unit == units.get(names, "nats and squared errors")
    assert declared["positions_per_token"].of == "tokens"
    assert all(kind.better == "lower" for name, kind in declared.items() if name.endswith("loss"))
    assert declared["mean_score"].better == "higher"


def test_a_step_on_two_parts_logs_the_weighted_sum_of_their_losses():
    task = TextTasks(part_weights=(2.0, 0.5), gradient_surgery=True)
    model, params = build(task, "sst", "sts", config=dataclasses.replace(CONFIG, freeze_encoder=True))
    optimizer = optax.with_extra_args_support(optax.sgd(0.1))
    state = init_state(params, optimizer, jax.random.key(1), ema=False)
    step = jax.jit(functools.partial(train_step, objective=task.objective(model, None), optimizer=optimizer))
    _, output = step(state, {part: batch(part, [1.0, 0.0, 2.0]) for part in ("sst", "sts")})
    metrics = output.metrics
    assert "loss" not in metrics
    (sst, rows), (sts, other_rows) = metrics["sst/loss"], metrics["sts/loss"]
    assert rows == other_rows == 3
    np.testing.assert_allclose(metrics["objective"], [6 * (2.0 * sst / 3 + 0.5 * sts / 3), 6.0], rtol=1e-5)
    assert sst > 0.1
    assert sts > 0.01


@pytest.mark.thorough
def test_smoothing_changes_the_objective_of_training_but_no_plain_loss():
    config = dataclasses.replace(CONFIG, head_dropout_rate=0.0, freeze_encoder=True)
    arguments = {"names": ("sst",), "part": "sst", "config": config}
    smoothing, key = TextTasks(label_smoothing=0.5), jax.random.key(0)
    plain, expected = measure(TextTasks(), **arguments)
    value, evaluated = measure(smoothing, **arguments)
    assert value == plain
    assert "objective" not in evaluated
    value, metrics = measure(smoothing, **arguments, key=key)
    assert abs(value - plain) > 0.01
    np.testing.assert_allclose(metrics["objective"], [3 * value, 3.0], rtol=1e-5)
    for name, pair in expected.items():
        np.testing.assert_allclose(metrics[name], pair, rtol=1e-5)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"label_smoothing": 1.0}, r"task\.label_smoothing must be in \[0, 1\), got 1\.0"),
        ({"part_weights": (0.0,)}, r"task\.part_weights must be positive, got \(0\.0,\)"),
    ],
)
def test_impossible_options_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        TextTasks(**fields)


@pytest.mark.parametrize(
    ("task", "model", "data", "message"),
    [
        (
            TextTasks(part_weights=(1.0,)),
            CONFIG,
            ("sst", "sts"),
            "task.part_weights needs one weight for each",
        ),
        (TextTasks(gradient_surgery=True), CONFIG, ("sst", "sts"), "set data.schedule together"),
        (
            TextTasks(),
            BertPretrainingConfig(),
            ("sst",),
            "text tasks need a TextTasksConfig, got model Bert",
        ),
    ],
)
def test_a_config_whose_parts_do_not_fit_is_refused(task, model, data, message):
    with pytest.raises(ValueError, match=message):
        TrainConfig(recipe="r", data=MinBertData(parts=data, max_length=6), model=model, task=task)


@pytest.mark.parametrize(
    ("names", "task", "model", "message"),
    [
        ("sts", {"label_smoothing": 0.1}, {}, "task.label_smoothing applies only to classifications"),
        ("quora sts", {"label_smoothing": 0.1}, {}, "task.label_smoothing applies only to classifications"),
        ("sst quora", {}, {"similarity": "learned"}, "model.similarity applies only to parts with similarities"),
        ("sts", {}, {"head_dropout_rate": 0.3}, "model.head_dropout_rate applies only to parts with a head"),
        ("sst", {}, {"pair_layer": "shared"}, "model.pair_layer applies only to parts with features of a pair"),
        ("sst sts", {}, {"cosine_logit": (9.0, 0.8)}, "model.cosine_logit applies only to parts with paraphrases"),
        ("sts", {}, {"freeze_encoder": True}, "model.freeze_encoder leaves nothing to train"),
    ],
)
def test_options_that_the_data_does_not_read_are_refused(names, task, model, message):
    model = dataclasses.replace(CONFIG, **model)

    def check(*names):
        model.check(corpus(*names).processor)
        TextTasks(**task).check_corpus(model, corpus(*names))

    check(*LABELS)
    with pytest.raises(ValueError, match=message):
        check(*names.split())
