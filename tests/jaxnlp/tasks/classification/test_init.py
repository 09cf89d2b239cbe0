"""What is minimised, and what is refused."""

import ast
import dataclasses
import re

import jax
import numpy as np
import pytest
import scipy.special

from data.images import Images
from jaxnlp.corpus import Corpus, DataError, Split
from jaxnlp.images.processor import ImageProcessor
from jaxnlp.models.bert_classifier import BertClassifierConfig
from jaxnlp.models.gpt import GPTConfig
from jaxnlp.models.vit import ViTConfig
from jaxnlp.ops.classification import balanced_weights
from jaxnlp.targets import Number, SeveralClasses
from jaxnlp.tasks.classification import Classification
from jaxnlp.text.classifier_processor import TextClassifierProcessor, one_part
from jaxnlp.text.wordpiece import SPECIAL, WordPieceVocabulary
from tests.random_parameters import random_parameters
from train.step import UNDIVIDED, _accumulated_gradients

MODEL = ViTConfig(num_layers=1, num_heads=2, width=16, feed_forward_width=32, dropout_rate=0.0)
PROCESSOR = ImageProcessor(8, 1, (0.5,), (0.5,), ("a", "b", "c"))


PLAIN = Corpus((), {}, PROCESSOR, "", "")


def build(task, model=None):
    config = model or MODEL
    model, inputs = config.build(PROCESSOR), config.inputs(PROCESSOR)
    return model, random_parameters(model, *inputs)


def batch(**more):
    generator = np.random.default_rng(0)
    return {
        "images": generator.integers(0, 256, (6, 8, 8, 1), dtype=np.uint8),
        "labels": np.array([0, 1, 2, 0, 1, 2], np.int32),
        "loss_mask": np.array([1, 1, 1, 1, 1, 0], bool),
    } | more


def log_probabilities(model, params, inputs):
    """Of the classes, [B, K]."""
    return scipy.special.log_softmax(jax.jit(model.apply)({"params": params}, inputs["images"]), axis=-1)


def corpus_with(counts):
    return dataclasses.replace(Images().load(0), processor=PROCESSOR, token_counts=np.array(counts))


@pytest.mark.thorough
@pytest.mark.parametrize("fields", [{"balanced": True}, {"class_weights": (1.0, 2.0, 0.5)}], ids=["balanced", "given"])
def test_the_objective_weights_classes_and_the_plain_loss_does_not(fields):
    task, counts = Classification(**fields), [4, 2, 1]
    model, params = build(task)
    given, plain = task.objective(model, corpus_with(counts)), Classification().objective(model, PLAIN)
    inputs = batch()
    _, (metrics, _) = jax.jit(given.loss)(params, inputs, jax.random.key(0), ())
    _, (expected, _) = jax.jit(plain.loss)(params, inputs, None, ())
    np.testing.assert_allclose(metrics["loss"], expected["loss"], rtol=1e-5)
    weights = np.asarray(balanced_weights(np.array(counts)) if task.balanced else task.class_weights)
    log_p = log_probabilities(model, params, inputs)
    rows = np.flatnonzero(inputs["loss_mask"])
    labels = inputs["labels"][rows]
    np.testing.assert_allclose(metrics["objective"][0], -(weights[labels] * log_p[rows, labels]).sum(), rtol=1e-4)
    np.testing.assert_allclose(metrics["objective"][1], weights[labels].sum(), rtol=1e-6)


@pytest.mark.thorough
def test_accumulated_gradients_are_those_of_the_whole_batch_however_small_the_weights():
    task = Classification(class_weights=(0.01, 0.02, 0.03))
    model, params = build(task)
    objective, parts = (
        task.objective(model, PLAIN),
        {name: x.reshape(2, 3, *x.shape[1:]) for name, x in batch().items()},
    )
    key = jax.random.key(0)
    found, metrics = jax.jit(lambda: _accumulated_gradients(params, parts, key, objective, 2, UNDIVIDED))()
    expected = jax.jit(jax.grad(lambda params: objective.loss(params, batch(), key, ())[0]))(params)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), found, expected)
    assert metrics["objective"][1] < 0.2


@pytest.mark.parametrize(
    ("fields", "logged"), [({}, False), ({"label_smoothing": 0.1}, True), ({"balanced": True}, True)]
)
def test_an_objective_that_is_the_loss_is_neither_declared_nor_measured(fields, logged):
    task = Classification(**fields)
    model, params = build(task)
    corpus = dataclasses.replace(PLAIN, token_counts=np.array([2, 2, 1]))
    shapes = jax.eval_shape(task.objective(model, corpus).loss, params, batch(), jax.random.key(0), ())
    assert ("objective" in shapes[1][0]) == logged
    assert ("objective" in task.metrics(PLAIN.processor, Split())) == logged


def test_mixed_inputs_have_both_labels_in_their_shares():
    model, params = build(Classification())
    inputs = batch(other_labels=np.array([1, 1, 0, 2, 0, 0], np.int32), share=np.full(6, 0.75, np.float32))
    _, (metrics, _) = jax.jit(Classification().objective(model, PLAIN).loss)(params, inputs, None, ())
    log_p = log_probabilities(model, params, inputs)[:5]
    rows = np.arange(5)
    expected = -(0.75 * log_p[rows, inputs["labels"][:5]] + 0.25 * log_p[rows, inputs["other_labels"][:5]]).sum()
    np.testing.assert_allclose(metrics["loss"][0], expected, rtol=1e-4)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"label_smoothing": 1.0}, r"task.label_smoothing must be in \[0, 1\), got 1.0"),
        ({"focal_gamma": -1.0}, "task.focal_gamma must be finite and not negative"),
        ({"class_weights": (1.0, 0.0)}, "task.class_weights must be positive and finite"),
        ({"balanced": True, "class_weights": (1.0, 2.0)}, "task.class_weights applies only to training without task"),
    ],
)
def test_a_task_that_cannot_be_is_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        Classification(**fields)


def test_models_and_weights_must_fit_the_data():
    with pytest.raises(ValueError, match="classification needs a ClassifierConfig, got model GPTConfig"):
        Classification().check(GPTConfig(), Images())
    corpus = Images().load(0)
    with pytest.raises(DataError, match=r"task.class_weights needs a weight for each of 10 classes, 0, 1, .* got 2"):
        Classification(class_weights=(1.0, 2.0)).check_corpus(MODEL, corpus)
    with pytest.raises(DataError, match=r"task.balanced needs the counts of the classes"):
        Classification(balanced=True).check_corpus(MODEL, dataclasses.replace(corpus, token_counts=None))


@pytest.mark.parametrize(
    ("targets", "fields", "message"),
    [
        (
            Number(0.0, 1.0),
            {"label_smoothing": 0.1},
            "task.label_smoothing applies only to classes, .*; set it to 0.0",
        ),
        (Number(0.0, 1.0), {"balanced": True}, "task.balanced applies only to one class .*; set it to False"),
        (
            SeveralClasses(("a", "b")),
            {"balanced": True},
            "task.balanced applies only to one class for each example",
        ),
        (
            SeveralClasses(("a", "b")),
            {"class_weights": (1.0,)},
            "task.class_weights needs a weight for each of 2 classes",
        ),
    ],
)
def test_options_that_these_labels_do_not_read_are_refused(targets, fields, message):
    vocabulary = WordPieceVocabulary.of_pieces([*SPECIAL, "the"])
    corpus = dataclasses.replace(
        corpus_with([1, 1]), processor=TextClassifierProcessor(vocabulary, 8, one_part(targets))
    )
    with pytest.raises(DataError, match=message):
        Classification(**fields).check_corpus(BertClassifierConfig(), corpus)


@pytest.mark.sweep(1)
@pytest.mark.parametrize(("smoothing", "gamma"), [(0.3, 0.0), (0.0, 2.0)], ids=["label smoothing", "focal loss"])
def test_training_minimises_the_loss_of_the_page(smoothing, gamma):
    task = Classification(label_smoothing=smoothing, focal_gamma=gamma)
    model, params = build(task)
    given = batch()
    measure = jax.jit(task.objective(model, PLAIN).loss)
    loss, _ = measure(params, given, jax.random.key(1), ())
    p = np.exp(log_probabilities(model, params, given), dtype=np.float64)[given["loss_mask"]]
    q = (1.0 - smoothing) * np.eye(3)[given["labels"][given["loss_mask"]]] + smoothing / 3
    expected = (-q * (1.0 - p) ** gamma * np.log(p)).sum(axis=1).mean()
    np.testing.assert_allclose(loss, expected, rtol=1e-4)
    plain, _ = measure(params, given, None, ())  # validation: the plain cross-entropy
    np.testing.assert_allclose(plain, -np.log(p[np.arange(5), given["labels"][:5]]).mean(), rtol=1e-4)
    assert abs(float(loss) - float(plain)) > 1e-3


@pytest.mark.thorough
def test_the_python_of_the_page_runs_unchanged(root, text_run, capsys):
    page = (root / "docs" / "classification.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.S)
    with jax.numpy_dtype_promotion("standard"):
        exec(code.replace("runs/reviews", str(text_run("class"))), {})
    *lines, shape = capsys.readouterr().out.splitlines()
    shares = [ast.literal_eval(line[line.index("{") :]) for line in lines]
    assert [sorted(found) for found in shares] == [["arts", "sport"]] * 2
    assert shape == "(2, 2)"
