import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch

from jaxnlp.ops.losses import cross_entropy

GENERATOR = np.random.default_rng(0)
LOGITS = (3.0 * GENERATOR.normal(size=(4, 6, 11))).astype(np.float32)
TARGETS = GENERATOR.integers(0, 11, size=(4, 6)).astype(np.int32)
MASK = GENERATOR.random((4, 6)) < 0.6

compiled_loss = jax.jit(cross_entropy)


@jax.jit
def sum_and_gradient(logits, targets, loss_mask):
    return jax.value_and_grad(lambda logits: cross_entropy(logits, targets, loss_mask)[0])(logits)


@jax.jit
def losses_by_optax(logits, targets):
    return optax.softmax_cross_entropy_with_integer_labels(logits, targets)


def test_sum_and_gradient_equal_those_of_optax():
    theirs = jax.jit(jax.value_and_grad(lambda logits: jnp.where(MASK, losses_by_optax(logits, TARGETS), 0.0).sum()))
    loss, gradient = sum_and_gradient(LOGITS, TARGETS, MASK)
    expected_loss, expected_gradient = theirs(LOGITS)
    np.testing.assert_allclose(loss, expected_loss, rtol=1e-6)
    np.testing.assert_allclose(gradient, expected_gradient, atol=1e-6)


def test_mean_and_gradient_equal_those_of_pytorch_with_ignored_targets():
    leaf = torch.tensor(LOGITS, requires_grad=True)
    ignored = torch.tensor(np.where(MASK, TARGETS, -100), dtype=torch.int64)
    theirs = torch.nn.functional.cross_entropy(leaf.reshape(-1, 11), ignored.reshape(-1))
    theirs.backward()
    loss, gradient = sum_and_gradient(LOGITS, TARGETS, MASK)
    count = compiled_loss(LOGITS, TARGETS, MASK)[1]
    np.testing.assert_allclose(loss / count, theirs.item(), rtol=1e-6)
    np.testing.assert_allclose(gradient / count, leaf.grad, atol=1e-7)


def test_count_is_the_number_of_scored_positions():
    assert float(compiled_loss(LOGITS, TARGETS)[1]) == LOGITS.shape[0] * LOGITS.shape[1]
    assert float(compiled_loss(LOGITS, TARGETS, MASK)[1]) == MASK.sum()
    assert [float(x) for x in compiled_loss(LOGITS, TARGETS, np.zeros_like(MASK))] == [0.0, 0.0]


def test_no_mask_equals_a_mask_of_ones():
    np.testing.assert_allclose(
        compiled_loss(LOGITS, TARGETS)[0], compiled_loss(LOGITS, TARGETS, np.ones_like(MASK))[0], rtol=1e-6
    )


def test_weights_scale_losses_and_count():
    weights = np.random.default_rng(1).random((4, 6)).astype(np.float32)
    loss, count = compiled_loss(LOGITS, TARGETS, weights)
    np.testing.assert_allclose(loss, np.vdot(weights, losses_by_optax(LOGITS, TARGETS)), rtol=1e-6)
    np.testing.assert_allclose(count, np.sum(weights, dtype=np.float64), rtol=1e-6)


def test_sums_and_counts_of_parts_add_up_to_the_whole():
    parts = [compiled_loss(LOGITS[i : i + 2], TARGETS[i : i + 2], MASK[i : i + 2]) for i in (0, 2)]
    np.testing.assert_allclose(np.sum(parts, axis=0), compiled_loss(LOGITS, TARGETS, MASK), rtol=1e-6)


@pytest.mark.parametrize("filler", [np.nan, np.inf, -np.inf, 1e38])
def test_logits_of_masked_positions_may_be_anything(filler):
    noisy = LOGITS.copy()
    noisy[~MASK, ::2] = filler
    found, gradient = sum_and_gradient(noisy, TARGETS, MASK)
    expected, expected_gradient = sum_and_gradient(LOGITS, TARGETS, MASK)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(gradient[MASK], expected_gradient[MASK])
    np.testing.assert_array_equal(gradient[~MASK], 0.0)


@pytest.mark.parametrize("filler", [-100, -1, 11, 2**30])
def test_targets_of_masked_positions_may_be_anything(filler):
    noisy = np.where(MASK, TARGETS, np.int32(filler))
    found, gradient = sum_and_gradient(LOGITS, noisy, MASK)
    expected, expected_gradient = sum_and_gradient(LOGITS, TARGETS, MASK)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(gradient, expected_gradient)


def test_large_logits_give_finite_losses_and_gradients():
    logits = np.array([[1e4, -1e4, 0.0], [1e4, -1e4, 0.0]], np.float32)
    found, gradient = sum_and_gradient(logits, np.array([0, 1]), None)
    np.testing.assert_allclose(found, 2e4)
    np.testing.assert_allclose(gradient, [[0.0, 0.0, 0.0], [1.0, -1.0, 0.0]], atol=1e-6)


def test_bfloat16_logits_are_scored_in_float32():
    logits = jnp.asarray(LOGITS, jnp.bfloat16)
    loss, count = compiled_loss(logits, TARGETS)
    assert (loss.dtype, count.dtype) == (jnp.float32, jnp.float32)
    np.testing.assert_allclose(loss, losses_by_optax(np.asarray(logits, np.float32), TARGETS).sum(), rtol=1e-6)


@pytest.mark.parametrize("axes", [0, 1, 3])
def test_any_number_of_leading_axes(axes):
    logits, targets = LOGITS[0, 0], TARGETS[0, 0]
    many = np.broadcast_to(logits, (2,) * axes + logits.shape), np.broadcast_to(targets, (2,) * axes)
    loss, count = compiled_loss(*many)
    assert count == 2**axes
    np.testing.assert_allclose(loss / count, losses_by_optax(LOGITS, TARGETS)[0, 0], rtol=1e-6)
