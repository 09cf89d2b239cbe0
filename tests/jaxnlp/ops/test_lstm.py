import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from jax.test_util import check_grads

from jaxnlp.ops.lstm import lstm_cell

BATCH, POSITIONS, WIDTH, STATE = 3, 5, 4, 6

compiled_cell = jax.jit(lstm_cell)


@jax.jit
def cell_and_gradients(z, c, upstream):
    outputs, vjp = jax.vjp(lstm_cell, z, c)
    return outputs, vjp(upstream)


def random_gates(dtype=np.float32):
    """Gates, cell state, and the gradients of a loss with respect to both results."""
    generator = np.random.default_rng(0)
    z = 2.0 * generator.normal(size=(BATCH, 4 * STATE))
    c, dh, dc = generator.normal(size=(3, BATCH, STATE))
    return z.astype(dtype), c.astype(dtype), (dh.astype(dtype), dc.astype(dtype))


def random_layer(positions=POSITIONS, dtype=np.float32):
    """Inputs, states and weights of a layer."""
    generator = np.random.default_rng(1)
    x = generator.normal(size=(BATCH, positions, WIDTH)).astype(dtype)
    state = tuple(generator.normal(size=(2, BATCH, STATE)).astype(dtype))
    shapes = {"w_x": (WIDTH, 4 * STATE), "w_h": (STATE, 4 * STATE), "b": (4 * STATE,)}
    weights = {name: (0.5 * generator.normal(size=shape)).astype(dtype) for name, shape in shapes.items()}
    return x, state, weights


def written_out(z, c):
    i, f, g, o = jnp.split(z, 4, axis=-1)
    i, f, o = (1.0 / (1.0 + jnp.exp(-gate)) for gate in (i, f, o))
    new_c = f * c + i * jnp.tanh(g)
    return o * jnp.tanh(new_c), new_c


@jax.jit
def by_autodiff(z, c, upstream):
    outputs, vjp = jax.vjp(written_out, z, c)
    return outputs, vjp(upstream)


def relative_error(found, expected):
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype == np.float64
    return np.abs(found - expected).max() / np.abs(expected).max()


def test_cell_and_gradients_equal_those_of_pytorch():
    z, c, upstream = random_gates()
    cell = torch.nn.LSTMCell(4 * STATE, STATE)
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter.zero_()
        cell.weight_ih.copy_(torch.eye(4 * STATE))  # its input is then z
    leaves = [torch.tensor(a, requires_grad=True) for a in (z, c)]
    theirs = cell(leaves[0], (torch.zeros(BATCH, STATE), leaves[1]))
    torch.autograd.backward(theirs, [torch.tensor(a) for a in upstream])
    ours, gradients = cell_and_gradients(z, c, upstream)
    for found, expected in zip(ours, theirs, strict=True):
        assert (found.shape, found.dtype) == ((BATCH, STATE), np.float32)
        np.testing.assert_allclose(found, expected.detach(), atol=1e-6)
    for gradient, leaf in zip(gradients, leaves, strict=True):
        np.testing.assert_allclose(gradient, leaf.grad, atol=1e-6)


def test_step_with_weights_equals_the_cell_of_pytorch():
    x, (h, c), weights = random_layer()
    cell = torch.nn.LSTMCell(WIDTH, STATE)
    with torch.no_grad():
        cell.weight_ih.copy_(torch.tensor(weights["w_x"].T))
        cell.weight_hh.copy_(torch.tensor(weights["w_h"].T))
        cell.bias_ih.copy_(torch.tensor(weights["b"]))
        cell.bias_hh.zero_()
        expected = cell(torch.tensor(x[:, 0]), (torch.tensor(h), torch.tensor(c)))
    found = compiled_cell(x[:, 0] @ weights["w_x"] + h @ weights["w_h"] + weights["b"], c)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


@pytest.mark.parametrize("reached", ["output", "cell state", "both"])
def test_gradient_by_hand_equals_autodiff(reached):
    with jax.enable_x64(True):
        z, c, (dh, dc) = random_gates(np.float64)
        upstream = (0.0 * dh if reached == "cell state" else dh, 0.0 * dc if reached == "output" else dc)
        found, gradients = cell_and_gradients(z, c, upstream)
        expected = by_autodiff(z, c, upstream)
        for ours, theirs in zip((*found, *gradients), jax.tree.leaves(expected), strict=True):
            assert relative_error(ours, theirs) < 1e-10


def test_gradients_of_first_and_second_order_equal_finite_differences():
    with jax.enable_x64(True):
        z, c, _ = random_gates(np.float64)
        check_grads(compiled_cell, (z, c), order=2, modes=["rev"], atol=1e-7, rtol=1e-7)


def test_shut_input_and_open_forget_gate_keep_the_cell_state():
    z, c, (dh, dc) = random_gates()
    z[:, :STATE], z[:, STATE : 2 * STATE] = -1e4, 1e4
    (_, new_c), (dz, gradient) = cell_and_gradients(z, c, (np.zeros_like(dh), dc))
    np.testing.assert_array_equal(new_c, c)
    np.testing.assert_array_equal(gradient, dc)
    np.testing.assert_array_equal(dz, np.zeros_like(z))


def test_open_input_and_shut_forget_gate_forget_the_cell_state():
    z, c, (dh, dc) = random_gates()
    z[:, :STATE], z[:, STATE : 2 * STATE] = 1e4, -1e4
    (_, new_c), (_, gradient) = cell_and_gradients(z, c, (dh, dc))
    np.testing.assert_allclose(new_c, np.tanh(z[:, 2 * STATE : 3 * STATE]), atol=1e-6)
    np.testing.assert_array_equal(gradient, np.zeros_like(c))


@pytest.mark.parametrize("size", [1e4, -1e4, np.inf])
def test_saturated_gates_give_finite_results_and_gradients(size):
    z, c, upstream = random_gates()
    with np.errstate(invalid="ignore"):
        saturated = np.where(z > 0, np.float32(size), np.float32(-size))
    (h, new_c), gradients = cell_and_gradients(saturated, c, upstream)
    open_i, open_f, sign_g, open_o = np.split(saturated > 0, 4, axis=1)
    expected_c = np.where(open_f, c, 0.0) + np.where(open_i, np.where(sign_g, 1.0, -1.0), 0.0)
    np.testing.assert_allclose(new_c, expected_c, atol=1e-6)
    np.testing.assert_allclose(h, np.where(open_o, np.tanh(expected_c), 0.0), atol=1e-6)
    np.testing.assert_array_equal(gradients[0], np.zeros_like(z))
    assert np.isfinite(gradients[1]).all()


def test_cell_state_of_ten_thousand_saturates_the_output_only():
    z, _, (dh, dc) = random_gates()
    c = np.full((BATCH, STATE), 1e4, np.float32)
    (h, new_c), (dz, gradient) = cell_and_gradients(z, c, (dh, np.zeros_like(dc)))
    output_gate = 1.0 / (1.0 + np.exp(-z[:, 3 * STATE :]))
    assert np.asarray(new_c).min() > 10.0
    np.testing.assert_allclose(h, output_gate, rtol=1e-6)
    np.testing.assert_array_equal(gradient, np.zeros_like(c))
    np.testing.assert_array_equal(dz[:, : 3 * STATE], np.zeros((BATCH, 3 * STATE)))
    np.testing.assert_allclose(dz[:, 3 * STATE :], dh * output_gate * (1.0 - output_gate), atol=1e-6)


def test_bfloat16_stays_bfloat16_and_near_float32():
    z, c, upstream = jax.tree.map(lambda a: jnp.asarray(a, jnp.bfloat16), random_gates())
    halves = jax.tree.leaves(cell_and_gradients(z, c, upstream))
    exact = cell_and_gradients(*jax.tree.map(lambda a: a.astype(np.float32), (z, c, upstream)))
    for found, expected in zip(halves, jax.tree.leaves(exact), strict=True):
        assert found.dtype == jnp.bfloat16
        np.testing.assert_allclose(found.astype(np.float32), expected, atol=0.05)


@pytest.mark.thorough
def test_jit_and_vmap_change_nothing():
    z, c, upstream = random_gates()
    expected = jax.tree.leaves(cell_and_gradients(z, c, upstream))
    rows = [np.concatenate([a, a]).reshape(2, BATCH, -1) for a in (z, c)]
    mapped = jax.jit(jax.vmap(cell_and_gradients, in_axes=(0, 0, None)))(*rows, upstream)
    for found, theirs in zip(jax.tree.leaves(mapped), expected, strict=True):
        np.testing.assert_allclose(found, np.stack([theirs, theirs]), atol=1e-6)
    for found, theirs in zip(lstm_cell(z, c), expected[:2], strict=True):
        np.testing.assert_allclose(found, theirs, atol=1e-6)


@pytest.mark.parametrize(
    ("z", "c"), [((3, 8), (3, 3)), ((3, 8), (2, 2)), ((8,), (2,))], ids=["width", "batch", "no_batch"]
)
def test_shapes_of_a_cell_that_do_not_fit_are_named(z, c):
    message = f"expected z [B, 4 D] and c [B, D], got z {z}, c {c}"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        lstm_cell(np.zeros(z, np.float32), np.zeros(c, np.float32))


def test_a_cell_of_integers_is_refused():
    with pytest.raises(ValueError, match="expected float arrays, got z int32, c float32"):
        lstm_cell(np.zeros((3, 8), np.int32), np.zeros((3, 2), np.float32))
