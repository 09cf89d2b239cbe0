import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from jaxnlp.ops.devices import compile_for
from jaxnlp.ops.recurrent_layers import LSTM, recurrent
from tests.jaxnlp.ops.recurrent_helpers import BATCH, CELLS, LENGTHS, POSITIONS, STATE, WIDTH, random_layer

pytestmark = pytest.mark.sweep

NAMES = {"w_x": "weight_ih_l0", "w_h": "weight_hh_l0", "b": "bias_ih_l0", "b_h": "bias_hh_l0"}

compiled = jax.jit(recurrent, static_argnums=0, static_argnames="reverse")


def theirs(name):
    """PyTorch's layer of both directions, in float64."""
    torch.manual_seed(0)
    kind, nonlinearity = name.partition("_")[::2]
    arguments = {"nonlinearity": nonlinearity} if nonlinearity else {}
    layer = getattr(torch.nn, kind.upper())(WIDTH, STATE, batch_first=True, bidirectional=True, **arguments)
    return layer.double()


def from_theirs(layer, *, reverse, gradient=False):
    """Our weights of theirs, or of their gradients: gates on an axis of their own."""
    found = {}
    for ours, name in NAMES.items():
        weight = getattr(layer, name + ("_reverse" if reverse else ""))
        array = (weight.grad if gradient else weight.detach()).numpy()
        gates = array.reshape(-1, STATE, *array.shape[1:])
        found[ours] = np.moveaxis(gates, 2, 0) if gates.ndim == 3 else gates
    return found


def random_arrays(states, positions=POSITIONS):
    """Inputs, states of both directions, and upstream gradients of outputs and final states."""
    generator = np.random.default_rng(1)
    x = generator.normal(size=(BATCH, positions, WIDTH))
    state, d_state = generator.normal(size=(2, states, 2, BATCH, STATE))
    return x, state, generator.normal(size=(BATCH, positions, 2 * STATE)), d_state


@pytest.mark.sweep(1)
@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["whole", "lengths"])
@pytest.mark.parametrize("name", CELLS)
def test_both_directions_equal_pytorchs_in_values_and_gradients(name, lengths):
    layer, cell = theirs(name), CELLS[name]
    x, state, dy, d_state = random_arrays(cell.states)
    leaves = [torch.tensor(a, requires_grad=True) for a in (x, *state)]
    inputs = leaves[0]
    if lengths is not None:
        inputs = torch.nn.utils.rnn.pack_padded_sequence(inputs, torch.tensor(lengths), batch_first=True)
    y, final = layer(inputs, tuple(leaves[1:]) if cell is LSTM else leaves[1])
    if lengths is not None:
        y, _ = torch.nn.utils.rnn.pad_packed_sequence(y, batch_first=True, total_length=POSITIONS)
    final = final if cell is LSTM else (final,)
    torch.autograd.backward([y, *final], [torch.tensor(a) for a in (dy, *d_state)])

    dx = 0.0
    with jax.enable_x64(True):
        for direction in (0, 1):
            here = slice(direction * STATE, (direction + 1) * STATE)

            @jax.jit
            def values_and_gradients(x, state, weights, upstream, reverse=bool(direction)):
                run = functools.partial(recurrent, cell, reverse=reverse, lengths=lengths)
                found, pull = jax.vjp(lambda x, s, w: run(x, s, **w), x, state, weights)
                return found, pull(upstream)

            states, weights = tuple(state[:, direction]), from_theirs(layer, reverse=bool(direction))
            upstream = (dy[..., here], tuple(d_state[:, direction]))
            (outputs, finals), gradients = values_and_gradients(x, states, weights, upstream)
            np.testing.assert_allclose(outputs, y.detach().numpy()[..., here], atol=1e-12)
            for found, expected in zip(finals, final, strict=True):
                np.testing.assert_allclose(found, expected[direction].detach().numpy(), atol=1e-12)
            d_x, d_states, d_weights = gradients
            dx += np.asarray(d_x)
            for found, leaf in zip(d_states, leaves[1:], strict=True):
                np.testing.assert_allclose(found, leaf.grad.numpy()[direction], atol=1e-12)
            for key, expected in from_theirs(layer, reverse=bool(direction), gradient=True).items():
                np.testing.assert_allclose(d_weights[key], expected, atol=1e-12, err_msg=key)
    np.testing.assert_allclose(dx, leaves[0].grad.numpy(), atol=1e-12)


@pytest.mark.sweep(1)
@pytest.mark.parametrize("name", CELLS)
def test_scan_equals_the_unrolled_loop(name):
    cell, x, state, weights = random_layer(name)
    y, final = jax.jit(lambda *a: recurrent(cell, a[0], a[1], **a[2]))(x, state, weights)
    for position in range(POSITIONS):
        u = np.einsum("bd,dgk->bgk", x[:, position], weights["w_x"]) + weights["b"]
        v = np.einsum("bj,jgk->bgk", np.asarray(state[0]), weights["w_h"]) + weights["b_h"]
        u, v = (products.reshape(BATCH, cell.gates * STATE) for products in (u, v))
        state = cell.step(u + v, state) if cell.additive else cell.step(u, v, state)
        np.testing.assert_allclose(y[:, position], state[0], rtol=2e-5, atol=2e-6)
    for found, expected in zip(final, state, strict=True):
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-6)


@pytest.mark.sweep(1)
@pytest.mark.parametrize("name", CELLS)
def test_a_sequence_read_in_two_parts_gives_what_it_gives_at_once(name):
    cell, x, state, weights = random_layer(name)
    whole, final = compiled(cell, x, state, **weights)
    first, between = compiled(cell, x[:, :2], state, **weights)
    second, end = compiled(cell, x[:, 2:], between, **weights)
    np.testing.assert_allclose(np.concatenate([first, second], axis=1), whole, rtol=1e-5, atol=1e-6)
    for found, expected in zip(end, final, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.sweep(1)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", CELLS)
def test_padding_may_hold_anything_and_gets_nothing(name, reverse):
    cell, x, state, weights = random_layer(name)
    padded = x.copy()
    padded[np.arange(POSITIONS)[None, :] >= LENGTHS[:, None]] = np.nan

    def loss(x, weights):
        y, final = recurrent(cell, x, state, lengths=LENGTHS, reverse=reverse, **weights)
        return sum(jnp.square(a).sum() for a in (y, *final)), y

    value_and_gradients = jax.jit(jax.value_and_grad(loss, argnums=(0, 1), has_aux=True))
    (expected, _), gradients = value_and_gradients(x, weights)
    (found, y), padded_gradients = value_and_gradients(padded, weights)
    assert float(found) == float(expected)
    jax.tree.map(np.testing.assert_array_equal, padded_gradients, gradients)
    hidden = np.arange(POSITIONS)[None, :] >= LENGTHS[:, None]
    assert hidden.any()
    assert not np.asarray(y)[hidden].any()
    assert not np.asarray(padded_gradients[0])[hidden].any()


@pytest.mark.parametrize("reverse", [False, True])
def test_an_empty_sequence_keeps_its_state(reverse):
    cell, x, state, weights = random_layer("lstm")
    _, final = compiled(cell, x, state, lengths=np.zeros(BATCH, np.int32), reverse=reverse, **weights)
    for found, expected in zip(final, state, strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", CELLS)
def test_gradients_equal_finite_differences(name):
    with jax.enable_x64(True):
        cell, *arguments = random_layer(name, np.float64)

        def loss(arguments):
            x, state, weights = arguments
            y, final = recurrent(cell, x, state, lengths=LENGTHS, **weights)
            return sum(jnp.sin(a).sum() for a in (y, *final))

        value_and_gradient = jax.jit(jax.value_and_grad(loss))
        gradient = jax.device_get(value_and_gradient(arguments)[1])
        generator = np.random.default_rng(3)
        for _ in range(3):
            direction = jax.tree.map(lambda a: generator.normal(size=a.shape), arguments)
            moved = [jax.tree.map(lambda a, d, s=s: a + s * 1e-6 * d, arguments, direction) for s in (1, -1)]
            above, below = (float(value_and_gradient(place)[0]) for place in moved)
            expected = (above - below) / 2e-6
            found = sum(jax.tree.leaves(jax.tree.map(lambda g, d: (g * d).sum(), gradient, direction)))
            np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.thorough
def test_rounded_operands_give_values_and_gradients_near_the_exact_ones():
    cell, x, state, weights = random_layer("lstm")

    def loss(weights, dtype):
        return jnp.square(recurrent(cell, x, state, matmul_dtype=dtype, **weights)[0]).sum()

    gradients = jax.jit(jax.value_and_grad(loss), static_argnums=1)
    exact, rounded = (gradients(weights, dtype) for dtype in (None, "bfloat16"))
    assert rounded[0] != exact[0]
    np.testing.assert_allclose(rounded[0], exact[0], rtol=2e-2)
    for key in weights:
        np.testing.assert_allclose(rounded[1][key], exact[1][key], atol=0.05 * np.abs(exact[1][key]).max())


def test_short_types_keep_their_dtype_and_gradients():
    cell, x, state, weights = random_layer("gru")
    short = jax.tree.map(lambda a: a.astype(jnp.bfloat16), (x, state, weights))

    @jax.jit
    def values_and_gradients(x, state, weights):
        found, pull = jax.vjp(lambda x, s, w: recurrent(cell, x, s, **w), x, state, weights)
        return found, pull(jax.tree.map(jnp.ones_like, found))

    (y, final), gradients = values_and_gradients(*short)
    assert y.dtype == final[0].dtype == jnp.bfloat16
    assert all(g.dtype == jnp.bfloat16 and np.isfinite(np.asarray(g)).all() for g in jax.tree.leaves(gradients))


@pytest.mark.thorough
def test_vmap_and_remat_change_no_numbers():
    cell, x, state, weights = random_layer("lstm")
    plain = jax.jit(jax.grad(lambda w: recurrent(cell, x, state, **w)[0].sum()))(weights)
    remat = jax.jit(jax.grad(jax.checkpoint(lambda w: recurrent(cell, x, state, **w)[0].sum())))(weights)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), remat, plain)
    each = jax.jit(jax.vmap(lambda x, h, c: recurrent(cell, x[None], (h[None], c[None]), **weights)[0][0]))(x, *state)
    np.testing.assert_allclose(each, compiled(cell, x, state, **weights)[0], rtol=1e-5, atol=1e-6)


@pytest.mark.sweep(1)
@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["whole", "lengths"])
@pytest.mark.parametrize("name", CELLS)
def test_widths_padded_for_a_gpu_change_no_value_and_no_gradient(name, lengths):
    cell, *arguments = random_layer(name, np.float64)

    @jax.jit
    def values_and_gradients(x, state, weights):
        found, pull = jax.vjp(lambda x, s, w: recurrent(cell, x, s, lengths=lengths, **w), x, state, weights)
        return found, pull(jax.tree.map(jnp.sin, found))

    with jax.enable_x64(True):
        expected = values_and_gradients(*arguments)
        with compile_for("gpu"):
            program = values_and_gradients.lower(*arguments)
        # A multiple of 8 before the scan: inside it the width would be padded at each position.
        assert f"tensor<{BATCH}x{cell.gates * 8}xf64>" in program.as_text()
        found = program.compile()(*arguments)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12), found, expected)


def products(jaxpr, inside=False):
    """Of each matrix product, through all calls: whether it is inside of a scan, and the shape of its right side."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            yield inside, equation.invars[1].aval.shape
        for held in equation.params.values():
            inner = getattr(held, "jaxpr", held)
            if hasattr(inner, "eqns"):
                yield from products(inner, inside or equation.primitive.name == "scan")


@pytest.mark.parametrize("name", CELLS)
def test_the_product_with_the_inputs_is_before_the_scan(name):
    """Inside it would be done T times, each with a T-th of the rows."""
    cell, x, state, weights = random_layer(name)
    traced = jax.make_jaxpr(lambda x, **weights: recurrent(cell, x, state, **weights))(x, **weights)
    w_x, w_h = ((w.shape[0], cell.gates * STATE) for w in (weights["w_x"], weights["w_h"]))
    assert w_x != w_h
    assert sorted(products(traced.jaxpr)) == [(False, w_x), (True, w_h)]


EXPECTED = "expected x [B, T, D], w_x [D, 4, K], w_h [K, 4, K], b and b_h [4, K], 2 states [B, K]"


@pytest.mark.parametrize(
    ("changes", "expected", "got"),
    [
        ({"x": np.zeros((3, 4), np.float32)}, EXPECTED, "x (3, 4)"),
        ({"w_x": np.zeros((4, 24), np.float32)}, EXPECTED, "w_x (4, 24)"),
        ({"w_x": np.zeros((4, 6, 4), np.float32)}, EXPECTED, "w_x (4, 6, 4)"),
        ({"w_h": np.zeros((6, 3, 8), np.float32)}, EXPECTED, "w_h (6, 3, 8)"),
        ({"b": np.zeros(24, np.float32)}, EXPECTED, "b (24,)"),
        ({"b_h": np.zeros(6, np.float32)}, EXPECTED, "b_h (6,)"),
        ({"state": (np.zeros((3, 6), np.float32),)}, EXPECTED, "state_0 (3, 6)"),
        ({"state": (np.zeros((3, 5), np.float32),) * 2}, EXPECTED, "state_1 (3, 5)"),
        ({"lengths": np.zeros(2, np.int32)}, EXPECTED + ", lengths [B] int", "lengths (2,)"),
        ({"x": np.zeros((3, 5, 4), np.int32)}, "expected float arrays", "x int32"),
    ],
)
def test_what_does_not_fit_is_named(changes, expected, got):
    cell, x, state, weights = random_layer("lstm")
    arguments = {"x": x, "state": state} | weights | changes
    with pytest.raises(ValueError, match=f"{re.escape(expected)}.*{re.escape(got)}"):
        recurrent(cell, **arguments)


@pytest.mark.parametrize("name", CELLS)
def test_later_inputs_and_other_examples_change_no_output(name):
    cell, x, state, weights = random_layer(name)
    changed = x.copy()
    changed[:, 3:] += 1.0
    changed[1] += 1.0
    y, found = (np.asarray(compiled(cell, a, state, **weights)[0]) for a in (x, changed))
    np.testing.assert_array_equal(found[[0, 2], :3], y[[0, 2], :3])
    assert (found[:, 3:] != y[:, 3:]).any(axis=(1, 2)).all()


@pytest.mark.parametrize("shape", [(0, POSITIONS), (BATCH, 0)], ids=["no rows", "no positions"])
def test_nothing_read_gives_no_outputs_and_zero_gradients(shape):
    cell, x, state, weights = random_layer("lstm")
    x, state = x[: shape[0], : shape[1]], tuple(array[: shape[0]] for array in state)

    @jax.jit
    def values_and_gradients(weights):
        (y, final), pull = jax.vjp(lambda w: recurrent(cell, x, state, **w), weights)
        return y, final, pull((jnp.zeros_like(y), tuple(map(jnp.ones_like, final))))[0]

    y, final, gradients = values_and_gradients(weights)
    assert y.shape == (*shape, STATE)
    jax.tree.map(np.testing.assert_array_equal, final, state)
    assert not any(np.asarray(g).any() for g in jax.tree.leaves(gradients))


def test_lengths_that_are_no_whole_numbers_are_refused():
    cell, x, state, weights = random_layer("lstm")
    with pytest.raises(ValueError, match=r"lengths \[B\] int"):
        recurrent(cell, x, state, lengths=LENGTHS.astype(np.float32), **weights)
