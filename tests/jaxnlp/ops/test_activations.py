import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from jax.test_util import check_grads

from jaxnlp.ops.activations import softmax

compiled_softmax = jax.jit(softmax)


@jax.jit
def values_and_gradients(z, upstream):
    a, vjp = jax.vjp(softmax, z)
    return a, vjp(upstream)[0]


@jax.jit
def by_autodiff(z, upstream):
    a, vjp = jax.vjp(lambda z: jnp.exp(z) / jnp.exp(z).sum(axis=-1, keepdims=True), z)
    return a, vjp(upstream)[0]


def random_inputs(*shape, dtype=np.float32):
    """Scores and the gradient of a loss with respect to their weights."""
    generator = np.random.default_rng(0)
    return [(3.0 * generator.normal(size=shape)).astype(dtype) for _ in range(2)]


def relative_error(found, expected):
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype == np.float64
    return np.abs(found - expected).max() / np.abs(expected).max()


@pytest.mark.parametrize("leading", [(), (4,), (2, 3, 4)])
def test_values_and_gradients_equal_those_of_pytorch_over_any_leading_axes(leading):
    z, upstream = random_inputs(*leading, 7)
    leaf = torch.tensor(z, requires_grad=True)
    theirs = torch.softmax(leaf, dim=-1)
    theirs.backward(torch.tensor(upstream))
    ours, gradient = values_and_gradients(z, upstream)
    assert (ours.dtype, gradient.dtype) == (np.float32, np.float32)
    np.testing.assert_allclose(ours, theirs.detach(), atol=1e-6)
    np.testing.assert_allclose(gradient, leaf.grad, atol=2e-6)


def test_gradient_by_hand_equals_autodiff():
    with jax.enable_x64(True):
        z, upstream = random_inputs(5, 7, dtype=np.float64)
        found, gradient = values_and_gradients(z, upstream)
        expected, theirs = by_autodiff(z, upstream)
        assert relative_error(found, expected) < 1e-12
        assert relative_error(gradient, theirs) < 1e-10


def test_jacobian_is_that_of_the_docstring():
    with jax.enable_x64(True):
        z, _ = random_inputs(7, dtype=np.float64)
        a = np.asarray(compiled_softmax(z))
        found = jax.jit(jax.jacrev(softmax))(z)
        assert relative_error(found, np.diag(a) - np.outer(a, a)) < 1e-12


def test_gradients_of_first_and_second_order_equal_finite_differences():
    with jax.enable_x64(True):
        z, _ = random_inputs(3, 4, dtype=np.float64)
        check_grads(compiled_softmax, (z,), order=2, modes=["rev"], atol=1e-7, rtol=1e-7)


def test_rows_sum_to_one_and_their_gradients_to_zero():
    a, gradient = values_and_gradients(*random_inputs(50, 100))
    np.testing.assert_allclose(a.sum(axis=-1), np.ones(50), rtol=1e-6)
    np.testing.assert_allclose(gradient.sum(axis=-1), np.zeros(50), atol=1e-5)


def test_rows_do_not_mix():
    z, upstream = random_inputs(4, 7)
    others = np.where(np.arange(4)[:, None] == 1, z, np.float32(50.0))
    for found, expected in zip(values_and_gradients(others, upstream), values_and_gradients(z, upstream), strict=True):
        np.testing.assert_array_equal(found[1], expected[1])


def test_a_number_added_to_all_scores_changes_nothing():
    z, _ = random_inputs(4, 7)
    whole = np.round(z)  # adding is exact
    np.testing.assert_array_equal(compiled_softmax(whole + np.float32(1024.0)), compiled_softmax(whole))


def test_scores_of_ten_thousand_pick_the_best_and_have_no_gradient():
    z = np.array([[1e4, 0.0, -1e4], [-1e4, -1e4 - 200.0, -2e4]], np.float32)
    a, gradient = values_and_gradients(z, np.array([[1.0, -2.0, 3.0], [4.0, 5.0, 6.0]], np.float32))
    np.testing.assert_array_equal(a, [[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    np.testing.assert_array_equal(gradient, np.zeros((2, 3)))


@pytest.mark.parametrize("level", [0.0, 1e4, -1e4])
def test_constant_row_is_uniform_and_its_gradient_lacks_the_mean(level):
    upstream = np.array([[1.0, -2.0, 3.0, 6.0]], np.float32)
    a, gradient = values_and_gradients(np.full((1, 4), level, np.float32), upstream)
    np.testing.assert_array_equal(a, np.full((1, 4), 0.25))
    np.testing.assert_array_equal(gradient, 0.25 * (upstream - 2.0))


def test_scores_of_minus_infinity_have_neither_weight_nor_gradient():
    z, upstream = random_inputs(3, 7)
    a, gradient = values_and_gradients(np.where(np.arange(7) < 4, z, np.float32(-np.inf)), upstream)
    expected, expected_gradient = values_and_gradients(z[:, :4], upstream[:, :4])
    np.testing.assert_allclose(a, np.pad(expected, [(0, 0), (0, 3)]), atol=1e-6)
    np.testing.assert_allclose(gradient, np.pad(expected_gradient, [(0, 0), (0, 3)]), atol=1e-6)


def test_single_score_has_all_the_weight_and_no_gradient():
    a, gradient = values_and_gradients(*random_inputs(5, 1))
    np.testing.assert_array_equal(a, np.ones((5, 1)))
    np.testing.assert_array_equal(gradient, np.zeros((5, 1)))


def test_bfloat16_stays_bfloat16_and_near_float32():
    z, upstream = (jnp.asarray(x, jnp.bfloat16) for x in random_inputs(5, 7))
    halves = values_and_gradients(z, upstream)
    exact = values_and_gradients(*(x.astype(np.float32) for x in (z, upstream)))
    for found, expected in zip(halves, exact, strict=True):
        assert found.dtype == jnp.bfloat16
        np.testing.assert_allclose(found.astype(np.float32), expected, atol=0.05)


@pytest.mark.thorough
def test_jit_vmap_and_scan_change_nothing():
    z, upstream = random_inputs(4, 5, 7)
    expected, expected_gradient = values_and_gradients(z, upstream)
    np.testing.assert_allclose(softmax(z), expected, atol=1e-6)

    def step(total, inputs):
        a, gradient = values_and_gradients(*inputs)
        return total + a.sum(), (a, gradient)

    _, scanned = jax.lax.scan(step, np.float32(0.0), (z, upstream))
    for a, gradient in (jax.jit(jax.vmap(values_and_gradients, in_axes=1, out_axes=1))(z, upstream), scanned):
        np.testing.assert_allclose(a, expected, atol=1e-6)
        np.testing.assert_allclose(gradient, expected_gradient, atol=2e-6)


def test_integers_are_refused():
    with pytest.raises(ValueError, match="expected float arrays, got z int32"):
        softmax(np.zeros((2, 3), np.int32))
