import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers

from jaxnlp.nn.compute import Compute
from jaxnlp.nn.feed_forward import FeedForward

BATCH, POSITIONS, WIDTH, HIDDEN = 2, 5, 6, 9
X = np.random.default_rng(0).normal(size=(BATCH, POSITIONS, WIDTH)).astype(np.float32)


def random_params(*, use_bias=True):
    generator = np.random.default_rng(1)
    params = {}
    for name, shape in (("up", (WIDTH, HIDDEN)), ("down", (HIDDEN, WIDTH))):
        params[name] = {"kernel": generator.normal(size=shape)}
        if use_bias:
            params[name]["bias"] = generator.normal(size=shape[1])
    return jax.tree.map(np.float32, params)


@functools.partial(jax.jit, static_argnums=0, static_argnames="deterministic")
def apply(module, params, x, *, deterministic=True, dropout_key=None):
    rngs = None if dropout_key is None else {"dropout": dropout_key}
    return module.apply({"params": params}, x, deterministic=deterministic, rngs=rngs)


class ReLUSquared(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) ** 2


@pytest.mark.parametrize(
    ("use_bias", "activation"),
    [(True, "gelu"), (False, "gelu_tanh"), (True, "relu"), (False, "relu_squared"), (True, "quick_gelu")],
)
def test_values_and_gradients_equal_those_of_pytorch(use_bias, activation):
    params = random_params(use_bias=use_bias)
    theirs = torch.nn.Sequential(
        torch.nn.Linear(WIDTH, HIDDEN, bias=use_bias),
        {
            "gelu": torch.nn.GELU(),
            "gelu_tanh": torch.nn.GELU("tanh"),
            "relu": torch.nn.ReLU(),
            "relu_squared": ReLUSquared(),
            "quick_gelu": transformers.activations.QuickGELUActivation(),
        }[activation],
        torch.nn.Linear(HIDDEN, WIDTH, bias=use_bias),
    )
    for layer, name in ((theirs[0], "up"), (theirs[2], "down")):
        layer.weight.data = torch.tensor(params[name]["kernel"].T)
        if use_bias:
            layer.bias.data = torch.tensor(params[name]["bias"])
    leaf = torch.tensor(X, requires_grad=True)
    expected = theirs(leaf)
    upstream = np.random.default_rng(2).normal(size=X.shape).astype(np.float32)
    expected.backward(torch.tensor(upstream))

    module = FeedForward(HIDDEN, activation=activation, use_bias=use_bias)

    @jax.jit
    def ours(params, x):
        y, vjp = jax.vjp(lambda params, x: apply(module, params, x), params, x)
        return y, *vjp(upstream)

    y, params_gradient, x_gradient = ours(params, X)
    np.testing.assert_allclose(y, expected.detach(), atol=1e-5)
    np.testing.assert_allclose(x_gradient, leaf.grad, atol=2e-5)
    np.testing.assert_allclose(params_gradient["up"]["kernel"].T, theirs[0].weight.grad, atol=2e-5)
    np.testing.assert_allclose(params_gradient["down"]["kernel"].T, theirs[2].weight.grad, atol=2e-5)


def test_positions_do_not_see_each_other():
    changed = X.copy()
    changed[:, 2] += 1.0
    before, after = (np.asarray(apply(FeedForward(HIDDEN), random_params(), x)) for x in (X, changed))
    others = [0, 1, 3, 4]
    np.testing.assert_array_equal(before[:, others], after[:, others])
    assert np.abs(before[:, 2] - after[:, 2]).max() > 1e-3


def test_parameters_have_the_stated_shapes_and_spread():
    module = FeedForward(256, output_stddev=0.003)
    params = jax.jit(lambda key: module.init(key, np.zeros((1, 1, 64), np.float32), deterministic=True))(
        jax.random.key(0)
    )["params"]
    assert jax.tree.map(np.shape, params) == {
        "up": {"kernel": (64, 256), "bias": (256,)},
        "down": {"kernel": (256, 64), "bias": (64,)},
    }
    for name, stddev in (("up", 0.02), ("down", 0.003)):
        kernel = np.asarray(params[name]["kernel"])
        assert abs(kernel.std() / stddev - 1.0) < 5.0 / np.sqrt(2 * kernel.size)
        np.testing.assert_array_equal(params[name]["bias"], 0.0)


def test_outputs_are_dropped_in_training_only():
    params = random_params()
    plain = apply(FeedForward(HIDDEN), params, X)
    module = FeedForward(HIDDEN, dropout_rate=0.5)
    np.testing.assert_array_equal(apply(module, params, X), plain)
    dropped = np.asarray(apply(module, params, X, deterministic=False, dropout_key=jax.random.key(0)))
    zeros = dropped == 0.0
    assert 0.2 < zeros.mean() < 0.8
    np.testing.assert_allclose(dropped, np.where(zeros, 0.0, 2.0 * plain), rtol=1e-5)


def test_bfloat16_computes_in_bfloat16_with_float32_parameters():
    module, x = FeedForward(HIDDEN, compute=Compute(dtype="bfloat16")), jnp.asarray(X, jnp.bfloat16)
    params = jax.eval_shape(lambda key: module.init(key, x, deterministic=True)["params"], jax.random.key(0))
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {jnp.dtype("float32")}
    y = apply(module, random_params(), x)
    assert y.dtype == jnp.bfloat16
    exact = apply(FeedForward(HIDDEN), random_params(), np.asarray(x, np.float32))
    np.testing.assert_allclose(y.astype(np.float32), exact, atol=0.2)


def test_input_of_two_axes_is_refused():
    with pytest.raises(ValueError, match=re.escape("expected x [B, T, D], got x (6, 6)")):
        apply(FeedForward(HIDDEN), random_params(), np.zeros((6, 6), np.float32))


def test_a_gate_multiplies_the_first_layer_and_does_not_change_it():
    params = random_params(use_bias=False)
    gate = {"kernel": np.random.default_rng(3).normal(size=(WIDTH, HIDDEN)).astype(np.float32)}
    found = apply(FeedForward(HIDDEN, activation="relu", gated=True, use_bias=False), params | {"gate": gate}, X)
    hidden = np.maximum(X @ gate["kernel"], 0.0) * (X @ params["up"]["kernel"])
    np.testing.assert_allclose(found, hidden @ params["down"]["kernel"], atol=1e-4)
