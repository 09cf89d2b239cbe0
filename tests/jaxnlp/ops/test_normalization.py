import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from jax.test_util import check_grads

from jaxnlp.ops.devices import compile_for
from jaxnlp.ops.normalization import layer_norm, rms_norm, unit_vectors

pytestmark = pytest.mark.sweep

WIDTH = 8

compiled_norm = jax.jit(layer_norm, static_argnames="epsilon")


@functools.partial(jax.jit, static_argnames="epsilon")
def values_and_gradients(x, scale, bias, upstream, **settings):
    y, vjp = jax.vjp(lambda x, scale, bias: layer_norm(x, scale, bias, **settings), x, scale, bias)
    return y, vjp(upstream)


def random_inputs(*leading, dtype=np.float32):
    """x, scale, bias, and the gradient of a loss with respect to the result."""
    generator = np.random.default_rng(0)
    x, upstream = (2.0 * generator.normal(size=(2, *leading, WIDTH)) + 1.0).astype(dtype)
    scale, bias = generator.normal(size=(2, WIDTH)).astype(dtype)
    return x, scale, bias, upstream


def written_out(x, scale, bias, epsilon):
    """Layer normalisation of x [N, D]."""
    mean = x.mean(axis=-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(axis=-1, keepdims=True)
    y = (x - mean) / (variance + epsilon) ** 0.5 * scale[None]
    return y if bias is None else y + bias[None]


@jax.jit
def by_autodiff(x, scale, bias, upstream, epsilon):
    y, vjp = jax.vjp(lambda x, scale, bias: written_out(x, scale, bias, epsilon), x, scale, bias)
    return y, vjp(upstream)


def relative_error(found, expected):
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype == np.float64
    return np.abs(found - expected).max() / np.abs(expected).max()


@pytest.mark.parametrize("leading", [(), (5,), (2, 3, 4)])
@pytest.mark.parametrize("has_bias", [True, False])
def test_values_and_gradients_equal_those_of_pytorch_over_any_leading_axes(leading, has_bias):
    x, scale, bias, upstream = random_inputs(*leading)
    arrays = (x, scale, bias) if has_bias else (x, scale)
    leaves = [torch.tensor(a, requires_grad=True) for a in arrays]
    theirs = torch.nn.functional.layer_norm(leaves[0], (WIDTH,), *leaves[1:])
    theirs.backward(torch.tensor(upstream))
    ours, gradients = values_and_gradients(x, scale, bias if has_bias else None, upstream)
    assert ours.dtype == np.float32
    np.testing.assert_allclose(ours, theirs.detach(), atol=2e-6)
    for gradient, leaf in zip(jax.tree.leaves(gradients), leaves, strict=True):
        np.testing.assert_allclose(gradient, leaf.grad, atol=2e-5)


@pytest.mark.parametrize("epsilon", [1e-5, 0.5])
@pytest.mark.parametrize("has_bias", [True, False])
def test_gradient_by_hand_equals_autodiff(has_bias, epsilon):
    with jax.enable_x64(True):
        x, scale, bias, upstream = random_inputs(5, dtype=np.float64)
        bias = bias if has_bias else None
        found = values_and_gradients(x, scale, bias, upstream, epsilon=epsilon)
        expected = by_autodiff(x, scale, bias, upstream, epsilon)
        assert relative_error(found[0], expected[0]) < 1e-12
        for gradient, theirs in zip(jax.tree.leaves(found[1]), jax.tree.leaves(expected[1]), strict=True):
            assert relative_error(gradient, theirs) < 1e-10


@pytest.mark.sweep(1)
@pytest.mark.parametrize("has_bias", [True, False])
def test_gradients_of_first_and_second_order_equal_finite_differences(has_bias):
    with jax.enable_x64(True):
        arrays = random_inputs(2, dtype=np.float64)[: 2 + has_bias]
        check_grads(compiled_norm, arrays, order=2, modes=["rev"], atol=1e-6, rtol=1e-6)


def test_rows_have_mean_zero_and_variance_one_before_scale_and_bias():
    x, *_ = random_inputs(50)
    y = np.asarray(compiled_norm(x, np.ones(WIDTH, np.float32)), np.float64)
    np.testing.assert_allclose(y.mean(axis=-1), np.zeros(50), atol=1e-6)
    np.testing.assert_allclose(y.var(axis=-1), np.ones(50), atol=1e-4)


def test_rows_do_not_mix():
    x, scale, bias, upstream = random_inputs(4)
    others = np.where(np.arange(4)[:, None] == 1, x, np.float32(50.0))
    found, (gradient, *_) = values_and_gradients(others, scale, bias, upstream)
    expected, (expected_gradient, *_) = values_and_gradients(x, scale, bias, upstream)
    np.testing.assert_array_equal(found[1], expected[1])
    np.testing.assert_array_equal(gradient[1], expected_gradient[1])


def test_shifting_and_stretching_a_row_changes_nothing():
    with jax.enable_x64(True):
        x, scale, bias, _ = random_inputs(4, dtype=np.float64)
        found = compiled_norm(7.0 * x + 3.0, scale, bias, epsilon=1e-14)
        assert relative_error(found, compiled_norm(x, scale, bias, epsilon=1e-14)) < 1e-12


def test_gradient_has_no_part_along_ones_nor_along_the_normalised_row():
    with jax.enable_x64(True):
        x, scale, bias, upstream = random_inputs(4, dtype=np.float64)
        _, (gradient, *_) = values_and_gradients(x, scale, bias, upstream, epsilon=1e-14)
        normalised = compiled_norm(x, np.ones(WIDTH), epsilon=1e-14)
        np.testing.assert_allclose(gradient.sum(axis=-1), np.zeros(4), atol=1e-12)
        np.testing.assert_allclose((gradient * normalised).sum(axis=-1), np.zeros(4), atol=1e-11)
        assert np.abs(gradient).max() > 0.1


def test_large_mean_does_not_drown_a_small_variance():
    # Squares near 1e8, whose float32 neighbours are 8 apart, next to a variance of 1e-2.
    x, scale, bias, upstream = random_inputs(20)
    x = np.float32(1e4) + np.float32(0.1) * x
    found, gradients = values_and_gradients(x, scale, bias, upstream)
    with jax.enable_x64(True):
        exact = [a.astype(np.float64) for a in (x, scale, bias, upstream)]
        expected, expected_gradients = by_autodiff(*exact, 1e-5)
    np.testing.assert_allclose(found, expected, atol=0.03)
    for gradient, theirs in zip(gradients, expected_gradients, strict=True):
        np.testing.assert_allclose(gradient, theirs, atol=0.01 * np.abs(theirs).max())


def test_constant_row_gives_the_bias_and_a_finite_gradient():
    _, scale, bias, upstream = random_inputs(1)
    x = np.full((1, WIDTH), 3.0, np.float32)
    y, (dx, dscale, dbias) = values_and_gradients(x, scale, bias, upstream)
    np.testing.assert_array_equal(y, bias[None])
    g = upstream * scale
    np.testing.assert_allclose(dx, (g - g.mean()) / np.sqrt(1e-5), rtol=1e-4)
    np.testing.assert_array_equal(dscale, np.zeros(WIDTH))
    np.testing.assert_array_equal(dbias, upstream[0])


def test_each_array_keeps_its_dtype_and_statistics_are_taken_in_float32():
    x, scale, bias, upstream = random_inputs(20)
    x, upstream = (jnp.asarray(a + 100.0, jnp.bfloat16) for a in (x, upstream))  # bfloat16 sums would be 4 apart
    y, gradients = values_and_gradients(x, scale, bias, upstream)
    assert [a.dtype for a in (y, *gradients)] == [jnp.bfloat16, jnp.bfloat16, np.float32, np.float32]
    wide = [x.astype(np.float32), scale, bias, upstream.astype(np.float32)]
    expected = jax.tree.leaves(values_and_gradients(*wide))
    for found, theirs in zip((y, *gradients), expected, strict=True):
        np.testing.assert_allclose(found.astype(np.float32), theirs, rtol=2**-8, atol=1e-5)
    short = compiled_norm(x, *(jnp.asarray(a, jnp.bfloat16) for a in (scale, bias)))
    assert short.dtype == jnp.bfloat16
    np.testing.assert_allclose(short.astype(np.float32), expected[0], atol=0.05)


@pytest.mark.thorough
def test_jit_vmap_and_scan_change_nothing():
    x, scale, bias, upstream = random_inputs(4, 5)
    expected, (dx, dscale, dbias) = values_and_gradients(x, scale, bias, upstream)
    np.testing.assert_allclose(layer_norm(x, scale, bias), expected, atol=2e-6)

    @jax.jit
    def mapped(x, scale, bias):
        return jax.vmap(lambda x: layer_norm(x, scale, bias), in_axes=1, out_axes=1)(x)

    @jax.jit
    def scanned(x, scale, bias):
        return jax.lax.scan(lambda _, x: (None, layer_norm(x, scale, bias)), None, x)[1]

    for function in (mapped, scanned):
        y, vjp = jax.vjp(function, x, scale, bias)
        np.testing.assert_allclose(y, expected, atol=2e-6)
        for found, gradient in zip(vjp(upstream), (dx, dscale, dbias), strict=True):
            np.testing.assert_allclose(found, gradient, atol=2e-5)


@pytest.mark.parametrize("has_bias", [True, False])
def test_other_devices_than_cpus_take_reductions_and_give_the_same(has_bias):
    x, scale, bias, upstream = random_inputs(5)
    arguments = (x, scale, bias if has_bias else None, upstream)
    expected = values_and_gradients(*arguments)
    with compile_for("gpu"):
        program = values_and_gradients.lower(*arguments)
    assert "dot_general" not in program.as_text()
    found = program.compile()(*arguments)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), found, expected)


@pytest.mark.parametrize(
    ("shapes", "got"),
    [
        (((2, WIDTH), (WIDTH + 1,)), "x (2, 8), scale (9,)"),
        (((2, WIDTH), (1, WIDTH)), "x (2, 8), scale (1, 8)"),
        (((2, WIDTH), (WIDTH,), (1,)), "x (2, 8), scale (8,), bias (1,)"),
        (((), (WIDTH,)), "x (), scale (8,)"),
    ],
    ids=["width", "scale_of_two_axes", "bias", "no_axis"],
)
def test_shapes_that_do_not_fit_are_named(shapes, got):
    message = f"expected x [..., D], scale [D] and bias [D] or None, got {got}"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        layer_norm(*(np.zeros(shape, np.float32) for shape in shapes))


def test_integers_are_refused():
    with pytest.raises(ValueError, match="expected float arrays, got x int32, scale float32"):
        layer_norm(np.zeros((2, WIDTH), np.int32), np.ones(WIDTH, np.float32))


@pytest.mark.parametrize("leading", [(), (5,), (2, 3)])
def test_root_mean_squares_and_gradients_equal_those_of_pytorch(leading):
    x, scale, _, upstream = random_inputs(*leading)
    leaves = [torch.tensor(array, requires_grad=True) for array in (x, scale)]
    expected = torch.nn.functional.rms_norm(leaves[0], (WIDTH,), leaves[1], eps=1e-3)
    expected.backward(torch.tensor(upstream))

    @jax.jit
    def ours(x, scale):
        y, vjp = jax.vjp(lambda x, scale: rms_norm(x, scale, epsilon=1e-3), x, scale)
        return y, *vjp(upstream)

    for found, wanted in zip(ours(x, scale), (expected.detach(), *(leaf.grad for leaf in leaves)), strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-5)


@pytest.mark.thorough
def test_a_row_of_zeros_has_finite_root_mean_squares_and_gradients():
    y, gradient = jax.value_and_grad(lambda x: rms_norm(x, jnp.ones(WIDTH)).sum())(jnp.zeros((2, WIDTH)))
    assert y == 0.0
    assert jnp.isfinite(gradient).all()


@pytest.mark.parametrize(
    ("x", "scale", "message"),
    [
        (np.zeros((2, 4), np.float32), np.ones(3, np.float32), "expected x [..., D] and scale [D], got x (2, 4)"),
        (np.zeros((2, 3), np.int32), np.ones(3, np.float32), "expected float arrays, got x int32"),
    ],
)
def test_root_mean_squares_name_inputs_that_do_not_fit(x, scale, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        rms_norm(x, scale)


@pytest.mark.sweep(1)
@pytest.mark.parametrize("scale", [1.0, 1e-6, 1e6])
def test_unit_vectors_have_length_1_and_the_gradient_of_autodiff_of_the_quotient(scale):
    x = np.float32(scale) * random_inputs(2, 3)[0]
    found, vjp = jax.vjp(unit_vectors, x)
    np.testing.assert_allclose(np.linalg.norm(found, axis=-1), 1.0, rtol=1e-6)
    np.testing.assert_allclose(found * np.linalg.norm(x, axis=-1, keepdims=True), x, rtol=1e-5)
    (gradient,) = vjp(jnp.asarray(random_inputs(2, 3)[3]))
    _, rival = jax.vjp(lambda x: x / jnp.linalg.norm(x, axis=-1, keepdims=True), x)
    np.testing.assert_allclose(gradient, rival(jnp.asarray(random_inputs(2, 3)[3]))[0], rtol=1e-3, atol=1e-4 / scale)


@pytest.mark.thorough
def test_a_vector_of_zeros_stays_zero_with_a_gradient_of_zero():
    found, vjp = jax.vjp(unit_vectors, jnp.zeros((2, 3)))
    np.testing.assert_array_equal(found, 0.0)
    np.testing.assert_array_equal(vjp(jnp.ones((2, 3)))[0], 0.0)
    assert unit_vectors(jnp.ones((1, 2), jnp.bfloat16)).dtype == jnp.bfloat16
    with pytest.raises(ValueError, match="float"):
        unit_vectors(jnp.ones((1, 2), jnp.int32))
