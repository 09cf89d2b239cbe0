import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch

from jaxnlp.ops.losses import cross_entropy, linear_cross_entropy
from tests.jaxnlp.ops.losses_helpers import (
    BIAS,
    LOGITS,
    MASK,
    MATRIX,
    STATIC,
    TARGETS,
    TOKEN_TARGETS,
    TOKENS,
    compiled_linear_loss,
    narrow,
)

compiled_loss = jax.jit(cross_entropy, static_argnames=("label_smoothing", "z_loss"))


@functools.partial(jax.jit, static_argnames=STATIC)
def sum_and_gradient(logits, targets, loss_mask, **settings):
    return jax.value_and_grad(lambda logits: cross_entropy(logits, targets, loss_mask, **settings)[0])(logits)


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
    count = compiled_loss(LOGITS, TARGETS, MASK).count
    np.testing.assert_allclose(loss / count, theirs.item(), rtol=1e-6)
    np.testing.assert_allclose(gradient / count, leaf.grad, atol=1e-7)


def test_count_is_the_number_of_scored_positions():
    assert float(compiled_loss(LOGITS, TARGETS).count) == LOGITS.shape[0] * LOGITS.shape[1]
    assert float(compiled_loss(LOGITS, TARGETS, MASK).count) == MASK.sum()
    assert [float(x) for x in compiled_loss(LOGITS, TARGETS, np.zeros_like(MASK))] == [0.0, 0.0, 0.0]


def test_no_mask_equals_a_mask_of_ones():
    np.testing.assert_allclose(
        compiled_loss(LOGITS, TARGETS)[0], compiled_loss(LOGITS, TARGETS, np.ones_like(MASK))[0], rtol=1e-6
    )


def test_weights_scale_losses_and_count():
    weights = np.random.default_rng(1).random((4, 6)).astype(np.float32)
    loss, _, count = compiled_loss(LOGITS, TARGETS, weights)
    np.testing.assert_allclose(loss, np.vdot(weights, losses_by_optax(LOGITS, TARGETS)), rtol=1e-6)
    np.testing.assert_allclose(count, np.sum(weights, dtype=np.float64), rtol=1e-6)


def test_weights_below_zero_count_too():
    weights = np.array([[1.0, -1.0, 1.0]], np.float32)
    loss, _, count = compiled_loss(LOGITS[:1, :3], TARGETS[:1, :3], weights)
    np.testing.assert_allclose(loss, np.vdot(weights, losses_by_optax(LOGITS[:1, :3], TARGETS[:1, :3])), rtol=1e-5)
    assert count == 1.0


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
    loss, _, count = compiled_loss(logits, TARGETS)
    assert (loss.dtype, count.dtype) == (jnp.float32, jnp.float32)
    np.testing.assert_allclose(loss, losses_by_optax(np.asarray(logits, np.float32), TARGETS).sum(), rtol=1e-6)


@pytest.mark.thorough
@pytest.mark.parametrize("settings", [{}, {"label_smoothing": 0.2, "z_loss": 0.3}], ids=str)
def test_float64_logits_are_scored_in_float64(settings):
    with jax.enable_x64(True):
        wide = LOGITS.astype(np.float64)
        loss, gradient = sum_and_gradient(wide, TARGETS, MASK, **settings)
        count = compiled_loss(wide, TARGETS, MASK, **settings).count
    assert {a.dtype for a in (loss, gradient, count)} == {np.dtype(np.float64)}
    e, c = settings.get("label_smoothing", 0.0), settings.get("z_loss", 0.0)
    normaliser = np.log(np.exp(wide).sum(axis=-1))
    aim = (1.0 - e) * np.eye(11)[TARGETS] + e / 11
    np.testing.assert_allclose(
        loss, (normaliser - (aim * wide).sum(axis=-1) + c * normaliser**2)[MASK].sum(), rtol=1e-12
    )
    softmax = np.exp(wide - normaliser[..., None])
    expected = np.where(MASK[..., None], (1.0 + 2.0 * c * normaliser[..., None]) * softmax - aim, 0.0)
    np.testing.assert_allclose(gradient, expected, rtol=0.0, atol=1e-12)


@pytest.mark.thorough
def test_float64_arrays_where_jax_has_no_float64_are_scored_in_float32():
    for loss, expected in (
        (cross_entropy(LOGITS.astype(np.float64), TARGETS), cross_entropy(LOGITS, TARGETS)),
        (
            linear_cross_entropy(TOKENS, MATRIX, BIAS, TOKEN_TARGETS),
            linear_cross_entropy(*narrow(TOKENS, MATRIX, BIAS), TOKEN_TARGETS),
        ),
    ):
        assert [a.dtype for a in loss] == [np.float32] * 3
        np.testing.assert_allclose(loss, expected, rtol=1e-6)


@pytest.mark.parametrize("axes", [0, 1, 3])
def test_any_number_of_leading_axes(axes):
    logits, targets = LOGITS[0, 0], TARGETS[0, 0]
    many = np.broadcast_to(logits, (2,) * axes + logits.shape), np.broadcast_to(targets, (2,) * axes)
    loss, _, count = compiled_loss(*many)
    assert count == 2**axes
    np.testing.assert_allclose(loss / count, losses_by_optax(LOGITS, TARGETS)[0, 0], rtol=1e-6)


@pytest.mark.sweep(1)
@pytest.mark.parametrize("label_smoothing", [0.1, 0.9])
def test_label_smoothing_equals_that_of_optax(label_smoothing):
    labels = optax.smooth_labels(jax.nn.one_hot(TARGETS, 11), label_smoothing)
    loss, gradient = sum_and_gradient(LOGITS, TARGETS, MASK, label_smoothing=label_smoothing)

    @jax.jit
    @jax.value_and_grad
    def theirs(logits):
        return jnp.where(MASK, optax.softmax_cross_entropy(logits, labels), 0.0).sum()

    expected_loss, expected_gradient = theirs(LOGITS)
    np.testing.assert_allclose(loss, expected_loss, rtol=1e-6)
    np.testing.assert_allclose(gradient, expected_gradient, atol=1e-6)


def test_label_smoothing_equals_that_of_pytorch():
    leaf = torch.tensor(LOGITS, requires_grad=True)
    theirs = torch.nn.functional.cross_entropy(
        leaf.reshape(-1, 11), torch.tensor(TARGETS.reshape(-1), dtype=torch.int64), label_smoothing=0.2
    )
    theirs.backward()
    loss, gradient = sum_and_gradient(LOGITS, TARGETS, None, label_smoothing=0.2)
    np.testing.assert_allclose(loss / TARGETS.size, theirs.item(), rtol=1e-6)
    np.testing.assert_allclose(gradient / TARGETS.size, leaf.grad, atol=1e-7)


def test_z_loss_adds_the_square_of_the_log_normaliser():
    normaliser = np.exp(LOGITS.astype(np.float64)).sum(axis=-1)
    plain, plain_gradient = sum_and_gradient(LOGITS, TARGETS, MASK)
    loss, gradient = sum_and_gradient(LOGITS, TARGETS, MASK, z_loss=0.3)
    np.testing.assert_allclose(loss - plain, 0.3 * (np.log(normaliser) ** 2)[MASK].sum(), rtol=1e-5)
    softmax = np.exp(LOGITS) / normaliser[..., None]
    expected = np.where(MASK[..., None], 0.6 * np.log(normaliser)[..., None] * softmax, 0.0)
    np.testing.assert_allclose(gradient - plain_gradient, expected, atol=1e-5)


@pytest.mark.parametrize(
    "settings", [{"label_smoothing": 0.2}, {"z_loss": 0.3}, {"label_smoothing": 0.2, "z_loss": 0.3}]
)
def test_nll_is_the_plain_cross_entropy_whatever_is_added_to_the_objective(settings):
    plain = compiled_loss(LOGITS, TARGETS, MASK)
    found = compiled_loss(LOGITS, TARGETS, MASK, **settings)
    np.testing.assert_allclose(found.nll, plain.objective, rtol=1e-6)
    assert abs(found.objective - found.nll) > 1.0


@pytest.mark.parametrize("by_chunks", [False, True])
def test_nll_costs_nothing_where_it_is_the_objective(by_chunks):
    if by_chunks:
        program = jax.make_jaxpr(linear_cross_entropy)(*narrow(TOKENS, MATRIX, BIAS), TOKEN_TARGETS)
    else:
        program = jax.make_jaxpr(cross_entropy)(LOGITS, TARGETS, MASK)
    objective, nll, _ = program.jaxpr.outvars
    assert nll is objective


@pytest.mark.parametrize("settings", [{}, {"label_smoothing": 0.2, "z_loss": 0.3}], ids=str)
def test_gradients_of_objective_and_nll_equal_autodiff_of_the_formula(settings):
    def by_formula(logits, weights, label_smoothing=0.0, z_loss=0.0):
        normaliser = jax.nn.logsumexp(logits, axis=-1)
        target = (jax.nn.one_hot(TARGETS, 11, dtype=logits.dtype) * logits).sum(axis=-1)
        aim = (1.0 - label_smoothing) * target + label_smoothing * logits.mean(axis=-1)
        objective = normaliser - aim + z_loss * normaliser**2
        return (weights * objective).sum(), (weights * (normaliser - target)).sum(), weights.sum()

    def gradients(losses):
        def loss(logits, weights):
            objective, nll, count = losses(logits, weights, **settings)
            return (objective + 3.0 * jnp.sin(nll)) / count

        return jax.jit(jax.grad(loss, argnums=(0, 1)))(LOGITS.astype(np.float64), weights)

    weights = np.random.default_rng(2).normal(size=(4, 6))
    with jax.enable_x64(True):
        found = gradients(lambda logits, weights, **options: cross_entropy(logits, TARGETS, weights, **options))
        for ours, expected in zip(found, gradients(by_formula), strict=True):
            np.testing.assert_allclose(ours, expected, rtol=0.0, atol=1e-12)


@pytest.mark.thorough
def test_the_gradient_needs_no_scatter_and_has_the_dtype_of_the_logits():
    logits = jnp.asarray(LOGITS, jnp.bfloat16)
    program = sum_and_gradient.lower(logits, TARGETS, MASK, label_smoothing=0.2)
    assert "scatter" not in program.as_text()
    _, gradient = program.compile()(logits, TARGETS, MASK)
    assert gradient.dtype == jnp.bfloat16
    _, exact = sum_and_gradient(np.asarray(logits, np.float32), TARGETS, MASK, label_smoothing=0.2)
    np.testing.assert_array_equal(gradient, exact.astype(jnp.bfloat16))


def test_gradient_of_the_nll_is_that_of_the_plain_cross_entropy():
    gradient = jax.jit(jax.grad(lambda z: cross_entropy(z, TARGETS, MASK, label_smoothing=0.2).nll))(LOGITS)
    np.testing.assert_allclose(gradient, sum_and_gradient(LOGITS, TARGETS, MASK)[1], atol=1e-6)


def test_gradient_of_a_weight_is_the_loss_of_its_position_and_0_where_it_masks():
    targets, weights = np.where(MASK, TARGETS, -100), MASK.astype(np.float32)
    gradient = jax.jit(jax.grad(lambda m: cross_entropy(LOGITS, targets, m).objective))(weights)
    p = np.exp(LOGITS) / np.exp(LOGITS).sum(axis=-1, keepdims=True)
    losses = -np.log(np.take_along_axis(p, TARGETS[..., None], axis=-1)[..., 0])
    np.testing.assert_allclose(gradient, np.where(MASK, losses, 0.0), rtol=1e-4)


def test_label_smoothing_and_z_loss_do_not_change_the_count():
    assert float(compiled_loss(LOGITS, TARGETS, MASK, label_smoothing=0.1, z_loss=0.1).count) == MASK.sum()


@pytest.mark.parametrize("target", [-1, -100, 11, 1000])
def test_a_target_outside_the_vocabulary_has_no_loss_unless_it_is_masked(target):
    targets, mask = TOKEN_TARGETS.copy(), np.ones(12, bool)
    targets[3], mask[3] = target, False
    x, w, b = (each.astype(np.float32) for each in (TOKENS, MATRIX, BIAS))
    logits = x @ w + b
    valid = np.where(mask, targets, 0)
    for function, arguments in ((compiled_loss, (logits,)), (compiled_linear_loss, (x, w, b))):
        assert np.isnan(function(*arguments, targets)[0])
        masked, expected = (function(*arguments, each, mask)[0] for each in (targets, valid))
        assert np.isfinite(masked)
        assert masked == expected


@pytest.mark.parametrize(
    ("logits", "targets", "loss_mask"),
    [((4, 6, 11), (4, 5), None), ((4, 6, 11), (4, 6, 1), None), ((4, 6, 11), (4, 6), (6,)), ((), (), None)],
    ids=["targets", "an_axis_more", "mask", "no_vocabulary"],
)
def test_shapes_that_do_not_fit_are_named(logits, targets, loss_mask):
    arrays = [np.zeros(logits, np.float32), np.zeros(targets, np.int32)]
    got = f"logits {logits}, targets {targets}"
    if loss_mask is not None:
        arrays.append(np.ones(loss_mask, bool))
        got += f", loss_mask {loss_mask}"
    message = f"expected logits [..., V], targets and loss_mask [...], got {got}"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        cross_entropy(*arrays)


@pytest.mark.parametrize("label_smoothing", [-0.1, 1.0, 1.5, float("nan")])
def test_label_smoothing_outside_its_interval_is_named(label_smoothing):
    message = re.escape(f"label_smoothing must be in [0, 1), got {label_smoothing}")
    with pytest.raises(ValueError, match=message):
        cross_entropy(LOGITS, TARGETS, label_smoothing=label_smoothing)
    with pytest.raises(ValueError, match=message):
        linear_cross_entropy(*narrow(TOKENS, MATRIX, BIAS), TOKEN_TARGETS, label_smoothing=label_smoothing)


def test_targets_that_are_not_int_and_scores_that_are_not_float_are_refused():
    x, w, b = narrow(TOKENS, MATRIX, BIAS)
    with pytest.raises(ValueError, match="targets must be int, got float32"):
        cross_entropy(LOGITS, TARGETS.astype(np.float32))
    with pytest.raises(ValueError, match="targets must be int, got bool"):
        linear_cross_entropy(x, w, b, TOKEN_TARGETS > 3)
    with pytest.raises(ValueError, match="expected float arrays, got logits int32"):
        cross_entropy(LOGITS.astype(np.int32), TARGETS)
    with pytest.raises(ValueError, match="expected float arrays, got x int32, w float32"):
        linear_cross_entropy(x.astype(np.int32), w, None, TOKEN_TARGETS)
