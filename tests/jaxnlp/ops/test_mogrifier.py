"""The mogrifier, beside a loop in NumPy and finite differences."""

import functools
import re

import jax
import numpy as np
import pytest
from jax.test_util import check_grads

from jaxnlp.ops.checks import UnavailableError
from jaxnlp.ops.mogrifier import mogrify
from jaxnlp.ops.recurrent_layers import GRU, LSTM, recurrent
from tests.jaxnlp.ops.recurrent_helpers import BATCH, LENGTHS, POSITIONS, STATE, WIDTH, random_layer

RANK = 2


def random_gates(rounds, rank=None, dtype=np.float32):
    draw = np.random.default_rng(3)
    ends = [(WIDTH, STATE) if index % 2 else (STATE, WIDTH) for index in range(rounds)]
    shapes = [[(a, b)] if rank is None else [(a, rank), (rank, b)] for a, b in ends]
    return [tuple(draw.normal(size=shape).astype(dtype) for shape in gate) for gate in shapes]


def sigmoid(z):
    return 1.0 / (1.0 + np.exp(-z))


def in_numpy(x, h, gates):
    for number, gate in enumerate(gates, 1):
        matrix = functools.reduce(np.matmul, gate)
        if number % 2:
            x = 2.0 * sigmoid(h @ matrix) * x
        else:
            h = 2.0 * sigmoid(x @ matrix) * h
    return x, h


def lstm_in_numpy(x, state, gates, weights, lengths):
    """One sequence after the other, and one word after the other."""
    w_x, w_h = (weights[name].reshape(-1, 4 * STATE) for name in ("w_x", "w_h"))
    bias, outputs = (weights["b"] + weights["b_h"]).reshape(-1), np.zeros((BATCH, POSITIONS, STATE))
    after = [np.array(array) for array in state]
    for row, length in enumerate(lengths):
        h, c = (array[row] for array in state)
        for position in range(length):
            word, gated = in_numpy(x[row, position], h, gates)
            i, f, g, o = np.split(word @ w_x + gated @ w_h + bias, 4)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = outputs[row, position] = sigmoid(o) * np.tanh(c)
        after[0][row], after[1][row] = h, c
    return outputs, after


@pytest.fixture(scope="module")
def layer():
    """A layer's inputs, states and weights, in float64."""
    return random_layer("lstm", np.float64)[1:]


@pytest.mark.parametrize("rank", [None, RANK])
@pytest.mark.parametrize("rounds", [1, 2, 5])
def test_rounds_are_those_of_the_loop(rounds, rank, layer):
    x, (h, _), _ = layer
    gates = random_gates(rounds, rank, np.float64)
    with jax.enable_x64(True):
        found = mogrify(x[:, 0], h, gates)
    for ours, theirs in zip(found, in_numpy(x[:, 0], h, gates), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)


def test_without_rounds_and_with_matrices_of_zeros_nothing_changes(layer):
    x, (h, _), _ = layer
    zeros = [tuple(map(np.zeros_like, gate)) for gate in random_gates(4)]
    for gates in ([], zeros):
        for found, expected in zip(mogrify(np.float32(x[:, 0]), np.float32(h), gates), (x[:, 0], h), strict=True):
            np.testing.assert_array_equal(found, np.float32(expected))


@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["whole", "lengths"])
def test_a_layer_is_the_loop_over_words(lengths, layer):
    x, state, weights = layer
    gates = random_gates(5, RANK, np.float64)
    with jax.enable_x64(True):
        y, after = recurrent(LSTM, x, state, **weights, mogrifier=gates, lengths=lengths)
    expected, last = lstm_in_numpy(x, state, gates, weights, [POSITIONS] * BATCH if lengths is None else lengths)
    np.testing.assert_allclose(y, expected, rtol=1e-10)
    for ours, theirs in zip(after, last, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-10)


def test_from_right_to_left_it_is_the_layer_of_the_reversed_words(layer):
    x, state, weights = layer
    gates = random_gates(2, dtype=np.float64)
    with jax.enable_x64(True):
        y, _ = recurrent(LSTM, x, state, **weights, mogrifier=gates, reverse=True)
    expected, _ = lstm_in_numpy(x[:, ::-1], state, gates, weights, [POSITIONS] * BATCH)
    np.testing.assert_allclose(y, expected[:, ::-1], rtol=1e-10)


@pytest.mark.thorough
@pytest.mark.parametrize("rank", [None, RANK])
def test_gradients_equal_finite_differences(rank, layer):
    x, state, weights = layer
    gates = random_gates(3, rank, np.float64)

    @jax.jit
    def run(x, state, weights, gates):
        return recurrent(LSTM, x, state, **weights, mogrifier=gates, lengths=LENGTHS)

    with jax.enable_x64(True):
        check_grads(run, (x, state, weights, gates), order=1, modes=["rev"], atol=1e-6, rtol=1e-6)


def test_padding_of_any_value_changes_nothing(layer):
    x, state, weights = jax.tree.map(np.float32, layer)
    strange = np.where(np.arange(POSITIONS)[None, :, None] < LENGTHS[:, None, None], x, np.nan)
    found, expected = (
        recurrent(LSTM, inputs, state, **weights, mogrifier=random_gates(2), lengths=LENGTHS) for inputs in (strange, x)
    )
    jax.tree.map(np.testing.assert_array_equal, found, expected)


@pytest.mark.thorough
def test_rounded_products_are_near_the_exact_ones_and_types_are_those_of_the_inputs(layer):
    x, state, weights = jax.tree.map(np.float32, layer)
    gates = random_gates(4, RANK)
    exact, rounded = (
        recurrent(LSTM, x, state, **weights, mogrifier=gates, matmul_dtype=dtype) for dtype in (None, "bfloat16")
    )
    short = recurrent(
        LSTM, x.astype("bfloat16"), tuple(s.astype("bfloat16") for s in state), **weights, mogrifier=gates
    )
    for found, dtype in ((rounded, "float32"), (short, "bfloat16")):
        for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(exact), strict=True):
            assert ours.dtype == dtype
            assert (np.float32(ours) != theirs).any()
            np.testing.assert_allclose(np.float32(ours), theirs, atol=0.1)


GATES = "expected gates [K, D] in odd rounds and [D, K] in even ones, or their factors, got x (3, 4), h (3, 6), "


@pytest.mark.parametrize(
    ("gates", "message"),
    [
        ([[(6, 5)]], f"{GATES}gate_1_0 (6, 5)"),
        ([[(6, 4)], [(6, 4)]], f"{GATES}gate_2_0 (6, 4)"),
        ([[(6, 2), (3, 4)]], f"{GATES}gate_1_0 (6, 2), gate_1_1 (3, 4)"),
        ([[]], GATES.removesuffix(", ")),
    ],
)
def test_gates_that_do_not_fit_are_named(gates, message, layer):
    x, (h, _), _ = layer
    given = [tuple(np.zeros(shape, np.float32) for shape in gate) for gate in gates]
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        mogrify(np.float32(x[:, 0]), np.float32(h), given)


def test_other_arguments_that_do_not_fit_are_refused(layer):
    x, state, weights = jax.tree.map(np.float32, layer)
    with pytest.raises(ValueError, match=re.escape("expected x [B, D] and h [B, K], got x (3, 5, 4), h (3, 6)")):
        mogrify(x, state[0], [])
    with pytest.raises(ValueError, match="expected float arrays, got x float32, h float32, gate_1_0 int32"):
        mogrify(x[:, 0], state[0], [(np.zeros((STATE, WIDTH), np.int32),)])
    with pytest.raises(UnavailableError, match="implementation='cudnn' has no mogrifier; use 'auto' or 'scan'"):
        recurrent(LSTM, x, state, **weights, mogrifier=random_gates(1), implementation="cudnn")
    _, x, state, weights = random_layer("gru")
    with pytest.raises(ValueError, match="a mogrifier applies only to an LSTM"):
        recurrent(GRU, x, state, **weights, mogrifier=random_gates(1))
