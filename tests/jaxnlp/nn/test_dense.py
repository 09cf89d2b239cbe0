import functools

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import torch
from jax.nn.initializers import normal

from jaxnlp.nn.compute import Compute
from jaxnlp.nn.dense import TRANSPOSED, Dense

ROWS, WIDTH, FEATURES = 5, 6, 9
X = np.random.default_rng(0).normal(size=(ROWS, WIDTH)).astype(np.float32)
UPSTREAM = np.random.default_rng(2).normal(size=(ROWS, FEATURES)).astype(np.float32)


def random_params(*, use_bias=True):
    generator = np.random.default_rng(1)
    params = {"kernel": generator.normal(size=(WIDTH, FEATURES))}
    return jax.tree.map(np.float32, params | ({"bias": generator.normal(size=FEATURES)} if use_bias else {}))


@functools.partial(jax.jit, static_argnums=0)
def apply(module, params, x):
    return module.apply({"params": params}, x)


@functools.partial(jax.jit, static_argnums=0)
def value_and_gradients(module, params, x, upstream):
    y, vjp = jax.vjp(lambda params, x: module.apply({"params": params}, x), params, x)
    return y, *vjp(upstream)


@functools.partial(jax.jit, static_argnums=0)
def initial_params(module, x):
    return module.init(jax.random.key(0), x)["params"]


@pytest.mark.parametrize("use_bias", [False, True])
def test_values_and_gradients_equal_those_of_pytorch(use_bias):
    params = random_params(use_bias=use_bias)
    x, kernel = (torch.tensor(array, requires_grad=True) for array in (X, params["kernel"]))
    bias = torch.tensor(params["bias"], requires_grad=True) if use_bias else None
    expected = torch.nn.functional.linear(x, kernel.T, bias)
    expected.backward(torch.tensor(UPSTREAM))

    y, params_gradient, x_gradient = value_and_gradients(Dense(FEATURES, use_bias), params, X, UPSTREAM)
    np.testing.assert_allclose(y, expected.detach(), atol=1e-6)
    np.testing.assert_allclose(x_gradient, x.grad, atol=2e-6)
    leaves = {"kernel": kernel} | ({"bias": bias} if use_bias else {})
    assert params_gradient.keys() == leaves.keys()
    for name, leaf in leaves.items():
        np.testing.assert_allclose(params_gradient[name], leaf.grad, atol=2e-6)


def test_rounded_operands_leave_everything_else_in_float32():
    params = random_params()
    y, params_gradient, x_gradient = value_and_gradients(
        Dense(FEATURES, compute=Compute(matmul_dtype="bfloat16")), params, X, UPSTREAM
    )
    x, kernel, upstream = (
        array.astype(ml_dtypes.bfloat16).astype(np.float64) for array in (X, params["kernel"], UPSTREAM)
    )
    for found, expected in (
        (y, x @ kernel + params["bias"]),
        (x_gradient, upstream @ kernel.T),
        (params_gradient["kernel"], x.T @ upstream),
        (params_gradient["bias"], UPSTREAM.sum(axis=0)),
    ):
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, expected, atol=2e-6)
    assert np.abs(y - apply(Dense(FEATURES), params, X)).max() > 1e-3


@pytest.mark.thorough
@pytest.mark.parametrize("matmul_dtype", [None, "bfloat16"])
def test_bfloat16_keeps_float32_parameters_and_gradients(matmul_dtype):
    module, params = Dense(FEATURES, compute=Compute(dtype="bfloat16", matmul_dtype=matmul_dtype)), random_params()
    assert {leaf.dtype for leaf in jax.tree.leaves(initial_params(module, X))} == {jnp.dtype("float32")}
    y, params_gradient, x_gradient = value_and_gradients(module, params, X, jnp.asarray(UPSTREAM, jnp.bfloat16))
    assert y.dtype == jnp.bfloat16
    assert {x.dtype for x in (x_gradient, *jax.tree.leaves(params_gradient))} == {jnp.dtype("float32")}
    exact = value_and_gradients(Dense(FEATURES), params, X, UPSTREAM)
    for found, expected in zip(jax.tree.leaves((y, params_gradient, x_gradient)), jax.tree.leaves(exact), strict=True):
        assert 0.0 < np.linalg.norm(np.float32(found) - expected) < 1e-2 * np.linalg.norm(expected)


@pytest.mark.parametrize("use_bias", [False, True])
def test_parameters_are_a_kernel_and_where_asked_for_a_bias(use_bias):
    params = initial_params(Dense(200, use_bias, kernel_init=normal(0.3)), np.zeros((1, 100), np.float32))
    assert jax.tree.map(np.shape, params) == {"kernel": (100, 200)} | ({"bias": (200,)} if use_bias else {})
    kernel = np.asarray(params["kernel"])
    assert abs(kernel.std() / 0.3 - 1.0) < 5.0 / np.sqrt(2 * kernel.size)
    assert abs(kernel.mean()) < 5.0 * 0.3 / np.sqrt(kernel.size)
    np.testing.assert_array_equal(params.get("bias", 0.0), 0.0)


def test_initial_weights_have_the_spread_of_gpt2_by_default():
    kernel = np.asarray(initial_params(Dense(200), np.zeros((1, 100), np.float32))["kernel"])
    assert abs(kernel.std() / 0.02 - 1.0) < 5.0 / np.sqrt(2 * kernel.size)


def test_rows_do_not_see_each_other():
    changed = X.copy()
    changed[2] += 1.0
    module, params = Dense(FEATURES, compute=Compute(matmul_dtype="bfloat16")), random_params()
    before, after = (np.asarray(apply(module, params, x)) for x in (X, changed))
    np.testing.assert_array_equal(np.delete(before, 2, axis=0), np.delete(after, 2, axis=0))
    assert np.abs(before[2] - after[2]).max() > 1e-3


@pytest.mark.parametrize("rows", [0, 1])
def test_no_row_or_one_is_enough(rows):
    params = random_params()
    y = apply(Dense(FEATURES, compute=Compute(matmul_dtype="bfloat16")), params, X[:rows])
    np.testing.assert_allclose(y, X[:rows] @ params["kernel"] + params["bias"], atol=0.05, strict=True)


def test_several_axes_of_features_are_one_axis_in_values_and_initial_weights():
    several, one = Dense((3, 3)), Dense(9)
    params, flat = initial_params(several, X), initial_params(one, X)
    assert jax.tree.map(np.shape, params) == {"kernel": (WIDTH, 3, 3), "bias": (3, 3)}
    np.testing.assert_array_equal(params["kernel"].reshape(WIDTH, 9), flat["kernel"])
    params = random_params()
    split = {"kernel": params["kernel"].reshape(WIDTH, 3, 3), "bias": params["bias"].reshape(3, 3)}
    np.testing.assert_array_equal(apply(several, split, X), apply(one, params, X))


@pytest.mark.parametrize("joined", [True, False])
def test_a_transposed_kernel_is_the_same_layer(joined):
    layer = Dense((3, 3), joined=joined)
    params = jax.tree.map(lambda x: np.float32(x) + X[0, 0], initial_params(layer, X))
    transposed = {TRANSPOSED: params["kernel"].reshape(WIDTH, 9).T, "bias": params["bias"]}
    np.testing.assert_allclose(apply(layer, transposed, X), apply(layer, params, X), rtol=1e-5, atol=1e-6, strict=True)
