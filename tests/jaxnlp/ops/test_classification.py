import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from sklearn.utils.class_weight import compute_class_weight

from jaxnlp.ops.classification import (
    balanced_weights,
    class_cross_entropy,
    several_cross_entropy,
    squared_error,
)

ROWS, CLASSES = 7, 4
GENERATOR = np.random.default_rng(0)
LOGITS = GENERATOR.normal(size=(ROWS, CLASSES)).astype(np.float32) * 3
TARGETS = np.array([0, 3, 1, 1, 2, 0, 3], np.int32)
MASK = np.array([True, True, False, True, True, False, True])
WEIGHTS = np.array([0.5, 2.0, 1.0, 3.0], np.float32)
SHARES = GENERATOR.dirichlet(np.ones(CLASSES), ROWS).astype(np.float32)
SEVERAL = (GENERATOR.random((ROWS, CLASSES)) < 0.4).astype(np.float32)


def mean(logits, targets=TARGETS, mask=MASK, **options):
    found = class_cross_entropy(logits, targets, mask, **options)
    return found.objective / found.weight


STATIC = ("label_smoothing", "focal_gamma")
compiled_classes = jax.jit(class_cross_entropy, static_argnames=STATIC)
compiled_several = jax.jit(several_cross_entropy, static_argnames=STATIC)


@functools.partial(jax.jit, static_argnames=STATIC)
def mean_and_gradient(logits, targets=TARGETS, **options):
    return jax.value_and_grad(lambda logits: mean(logits, targets, **options))(logits)


def pytorchs(**options):
    logits = torch.tensor(LOGITS, requires_grad=True)
    loss = torch.nn.functional.cross_entropy(logits[MASK], torch.tensor(TARGETS[MASK]).long(), **options)
    loss.backward()
    return loss.item(), logits.grad.numpy()


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["equal", "weighted"])
def test_loss_and_gradient_are_those_of_pytorch(smoothing, weights):
    options = {"label_smoothing": smoothing, "class_weights": weights}
    found, gradient = mean_and_gradient(LOGITS, **options)
    theirs = None if weights is None else torch.tensor(weights)
    expected, expected_gradient = pytorchs(label_smoothing=smoothing, weight=theirs)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    np.testing.assert_allclose(gradient, expected_gradient, atol=1e-6)


def test_mixed_labels_are_those_of_pytorch_and_of_one_label_where_a_share_is_whole():
    expected = torch.nn.functional.cross_entropy(torch.tensor(LOGITS[MASK]), torch.tensor(SHARES[MASK]))
    np.testing.assert_allclose(mean_and_gradient(LOGITS, SHARES)[0], expected.item(), rtol=1e-5)
    onehot = np.eye(CLASSES, dtype=np.float32)[TARGETS]
    options = {"class_weights": WEIGHTS, "label_smoothing": 0.1, "focal_gamma": 1.5}
    for mixed, single in zip(
        compiled_classes(LOGITS, onehot, MASK, **options),
        compiled_classes(LOGITS, TARGETS, MASK, **options),
        strict=True,
    ):
        np.testing.assert_allclose(mixed, single, rtol=1e-6)


def test_focal_loss_is_its_formula_and_its_gradient_is_finite_where_a_prediction_is_certain():
    p = np.exp(LOGITS) / np.exp(LOGITS).sum(axis=1, keepdims=True)
    right = p[np.arange(ROWS), TARGETS][MASK]
    for gamma in (0.5, 2.0):
        expected = np.mean((1 - right) ** gamma * -np.log(right))
        np.testing.assert_allclose(mean_and_gradient(LOGITS, focal_gamma=gamma)[0], expected, rtol=1e-5)
        certain = np.where(np.eye(CLASSES, dtype=bool)[TARGETS], 1e4, 0.0).astype(np.float32)
        assert np.isfinite(np.asarray(mean_and_gradient(certain, focal_gamma=gamma)[1])).all()


def test_the_plain_loss_has_no_weights_and_masked_rows_may_hold_anything():
    options = {"class_weights": WEIGHTS, "label_smoothing": 0.3, "focal_gamma": 2.0}
    found = jax.device_get(compiled_classes(LOGITS, TARGETS, MASK, **options))
    np.testing.assert_allclose(found.nll / found.count, pytorchs()[0], rtol=1e-5)
    assert (found.count, found.weight) == (MASK.sum(), WEIGHTS[TARGETS[MASK]].sum())
    damaged = np.where(MASK[:, None], LOGITS, np.nan)
    value, gradient = mean_and_gradient(damaged, **options)
    np.testing.assert_allclose(value, mean_and_gradient(LOGITS, **options)[0], rtol=1e-6)
    assert not np.asarray(gradient)[~MASK].any()


@pytest.mark.parametrize(
    ("loss", "targets", "plain"),
    [
        (class_cross_entropy, TARGETS, lambda z: -jax.nn.log_softmax(z)[np.arange(ROWS), TARGETS]),
        (several_cross_entropy, SEVERAL, lambda z: (jax.nn.softplus(z) - SEVERAL * z).mean(axis=1)),
    ],
)
def test_the_plain_loss_has_its_gradient(loss, targets, plain):
    options = {"class_weights": WEIGHTS, "label_smoothing": 0.3, "focal_gamma": 2.0}
    gradient, expected = jax.jit(
        lambda z: (
            jax.grad(lambda z: loss(z, targets, MASK, **options).nll)(z),
            jax.grad(lambda z: jnp.where(MASK, plain(z), 0.0).sum())(z),
        )
    )(LOGITS)
    np.testing.assert_allclose(gradient, expected, atol=1e-6)


def test_balanced_weights_are_those_of_scikit_learn():
    expected = compute_class_weight("balanced", classes=np.arange(CLASSES), y=TARGETS)
    found = np.asarray(jax.jit(balanced_weights)(np.bincount(TARGETS)))
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    np.testing.assert_allclose(found[TARGETS].mean(), 1.0, rtol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"targets": TARGETS[1:]}, r"expected logits \[B, C\], targets \[B\] or \[B, C\]"),
        ({"class_weights": WEIGHTS[1:]}, r"expected logits \[B, C\]"),
        ({"label_smoothing": 1.0}, r"label_smoothing must be in \[0, 1\), got 1.0"),
        ({"focal_gamma": -1.0}, "focal_gamma must not be negative, got -1.0"),
    ],
)
def test_what_does_not_fit_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        mean(LOGITS, **arguments)


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["equal", "weighted"])
def test_loss_and_gradient_of_several_classes_are_those_of_pytorch(weights):
    def loss(logits):
        found = several_cross_entropy(logits, SEVERAL, MASK, class_weights=weights)
        return found.objective / found.weight

    value, gradient = jax.jit(jax.value_and_grad(loss))(LOGITS)
    logits = torch.tensor(LOGITS, requires_grad=True)
    theirs = torch.nn.functional.binary_cross_entropy_with_logits(
        logits[MASK], torch.tensor(SEVERAL[MASK]), pos_weight=None if weights is None else torch.tensor(weights)
    )
    theirs.backward()
    np.testing.assert_allclose(value, theirs.item(), rtol=1e-5)
    np.testing.assert_allclose(gradient, logits.grad.numpy(), atol=1e-6)


def test_smoothing_and_focus_of_several_classes_are_their_definitions():
    found = jax.device_get(compiled_several(LOGITS, SEVERAL, MASK, label_smoothing=0.2, focal_gamma=2.0))
    p = 1.0 / (1.0 + np.exp(-LOGITS[MASK].astype(np.float64)))
    aim = 0.8 * SEVERAL[MASK] + 0.1
    losses = -(aim * (1 - p) ** 2 * np.log(p) + (1 - aim) * p**2 * np.log(1 - p)).mean(axis=1)
    np.testing.assert_allclose(found.objective, losses.sum(), rtol=1e-4)
    plain = compiled_several(LOGITS, SEVERAL, MASK)
    np.testing.assert_allclose(found.nll, plain.objective, rtol=1e-6)
    assert found.count == found.weight == MASK.sum()


def test_squared_errors_and_their_gradient():
    outputs, targets = LOGITS[:, :1], LOGITS[:, 1]
    value_and_gradient = jax.jit(jax.value_and_grad(lambda x: squared_error(x, targets, MASK).objective))
    value, gradient = jax.device_get(value_and_gradient(outputs))
    np.testing.assert_allclose(value, np.square(outputs[MASK, 0] - targets[MASK]).sum(), rtol=1e-6)
    np.testing.assert_allclose(gradient[:, 0], np.where(MASK, 2 * (outputs[:, 0] - targets), 0.0), rtol=1e-5)


def test_masked_rows_of_several_classes_and_numbers_may_hold_anything():
    bad = np.where(MASK[:, None], LOGITS, np.nan)
    several = jax.grad(lambda x: several_cross_entropy(x, SEVERAL, MASK, focal_gamma=1.0).objective)
    number = jax.grad(lambda x: squared_error(x, bad[:, 1], MASK).objective)
    for gradient in jax.device_get(jax.jit(lambda x: (several(x), number(x[:, :1])))(bad)):
        assert np.isfinite(gradient).all()


def test_several_classes_and_numbers_need_their_shapes():
    with pytest.raises(ValueError, match=r"logits \[B, C\], targets \[B, C\]"):
        several_cross_entropy(LOGITS, SEVERAL[:, :2], MASK)
    with pytest.raises(ValueError, match=r"outputs \[B, 1\], targets \[B\]"):
        squared_error(LOGITS, LOGITS[:, 0], MASK)
    with pytest.raises(ValueError, match=r"label_smoothing must be in \[0, 1\), got 1.0"):
        several_cross_entropy(LOGITS, SEVERAL, MASK, label_smoothing=1.0)
