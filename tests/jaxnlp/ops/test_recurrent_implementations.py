"""Which implementation computes a recurrent layer, and what cuDNN gets."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import rnn

from jaxnlp.ops import recurrent_layers as module
from jaxnlp.ops.checks import UnavailableError
from jaxnlp.ops.recurrent_layers import LSTM, recurrent
from tests.jaxnlp.ops.recurrent_helpers import BATCH, LENGTHS, POSITIONS, random_layer

pytestmark = pytest.mark.sweep


@pytest.fixture
def cudnn_of_jax(monkeypatch):
    """The call of cuDNN replaced by JAX's own reference for it, which unpacks the same array of weights."""
    precisions = []

    def reference(x, h, c, weights, lengths, width, state, layers, dropout, bidirectional, precision):
        precisions.append(precision)
        assert {a.dtype for a in (x, h, c, weights)} == {np.dtype(np.float32)}
        unpacked = rnn.unpack_lstm_weights(weights, width, state, layers, bidirectional)
        return rnn.lstm_ref(x, h, c, *unpacked, lengths, width, state, layers, dropout, bidirectional)

    monkeypatch.setattr(rnn, "lstm", reference)
    monkeypatch.setattr(module, "_why_not_cudnn", lambda *_: None)
    return precisions


@pytest.mark.sweep(1)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("lengths", [None, LENGTHS, np.array([5, 0, 2])], ids=["whole", "lengths", "none of one"])
def test_weights_are_packed_as_cudnn_has_them(cudnn_of_jax, lengths, reverse):
    cell, x, state, weights = random_layer("lstm")
    run = functools.partial(recurrent, cell, x, state, lengths=lengths, reverse=reverse, **weights)
    expected = jax.jit(lambda: run(implementation="scan"))()
    found = jax.jit(lambda: run(implementation="cudnn"))()
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), found, expected)
    assert cudnn_of_jax == [jax.lax.Precision.HIGH]  # TF32


def test_cudnn_computes_in_float32_where_the_default_precision_is_the_highest(cudnn_of_jax):
    cell, x, state, weights = random_layer("lstm")
    with jax.default_matmul_precision("highest"):
        jax.eval_shape(lambda: recurrent(cell, x, state, implementation="cudnn", **weights))
    assert cudnn_of_jax == [jax.lax.Precision.HIGHEST]


@pytest.mark.thorough
@pytest.mark.usefixtures("cudnn_of_jax")
def test_cudnn_takes_bfloat16_and_returns_its_gradients():
    cell, x, state, weights = random_layer("lstm")
    x, state = jax.tree.map(lambda a: a.astype(jnp.bfloat16), (x, state))

    def values_and_gradients(x, state, weights, implementation):
        run = functools.partial(recurrent, cell, matmul_dtype="bfloat16", implementation=implementation)
        found, pull = jax.vjp(lambda x, s, w: run(x, s, **w), x, state, weights)
        return found, pull(jax.tree.map(jnp.ones_like, found))

    compiled = jax.jit(values_and_gradients, static_argnums=3)
    found, expected = (compiled(x, state, weights, implementation) for implementation in ("cudnn", "scan"))
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert ours.dtype == theirs.dtype
        ours, theirs = (np.asarray(a, np.float32) for a in (ours, theirs))
        np.testing.assert_allclose(ours, theirs, rtol=0.0, atol=0.03 * np.abs(theirs).max())


def test_cudnn_is_refused_where_it_cannot_be_had():
    cell, x, state, weights = random_layer("lstm")
    with pytest.raises(
        ValueError, match="'cudnn' needs an Nvidia GPU, and the program is for the platform cpu; use 'auto'"
    ):
        recurrent(cell, x, state, implementation="cudnn", **weights)
    with pytest.raises(ValueError, match="must be auto, scan or cudnn, got 'fast'"):
        recurrent(cell, x, state, implementation="fast", **weights)


@pytest.fixture
def cudnn_calls(monkeypatch):
    """A GPU that can do what cuDNN asks for: the shapes of inputs that cuDNN would have got, computed by the scan."""
    calls = []

    def recorder(x, state, w_x, w_h, b, b_h, lengths, reverse):
        calls.append(x.shape)
        weights = {"w_x": w_x, "w_h": w_h, "b": b, "b_h": b_h}
        return recurrent(LSTM, x, state, lengths=lengths, reverse=reverse, implementation="scan", **weights)

    monkeypatch.setattr(module, "cuda_capability", lambda: (9, 0))
    monkeypatch.setattr(module, "gpu_count", lambda: 1)
    monkeypatch.setattr(module, "_cudnn_lstm", recorder)
    return calls


def of_shape(name, rows, positions, dtype=np.float32):
    """Inputs of so many rows and positions, of which the layer has enough."""
    cell, x, state, weights = random_layer(name, dtype)
    return (cell, x[:rows, :positions], tuple(array[:rows] for array in state)), weights


@pytest.mark.sweep(1)
@pytest.mark.parametrize(
    ("changes", "taken"),
    [
        ({}, True),
        ({"rows": 1, "positions": 2}, True),
        ({"lengths": LENGTHS}, True),
        ({"matmul_dtype": "bfloat16"}, True),
        ({"dtype": jnp.bfloat16}, True),
        ({"positions": 1}, False),
        ({"positions": 0}, False),
        ({"rows": 0}, False),
        ({"name": "gru"}, False),
        ({"name": "rnn_tanh"}, False),
    ],
    ids=str,
)
def test_auto_takes_cudnn_for_lstms_of_several_positions(cudnn_calls, changes, taken):
    given = {"name": "lstm", "rows": BATCH, "positions": POSITIONS, "dtype": np.float32} | changes
    options = {key: given.pop(key) for key in ("lengths", "matmul_dtype") if key in given}
    arguments, weights = of_shape(**given)
    run = functools.partial(recurrent, *arguments, **options, **weights)
    found = jax.jit(lambda: run())()
    assert cudnn_calls == ([arguments[1].shape] if taken else [])
    expected = jax.jit(lambda: run(implementation="scan"))()
    if not options.get("matmul_dtype"):  # the recorder does not get it
        jax.tree.map(np.testing.assert_array_equal, found, expected)
    assert len(cudnn_calls) == taken


@pytest.mark.parametrize(("divided", "positions"), [(False, 1), (True, POSITIONS)], ids=["one position", "divided"])
def test_cudnn_computes_what_it_is_asked_for_where_auto_prefers_the_scan(monkeypatch, cudnn_calls, divided, positions):
    monkeypatch.setattr(module, "is_divided", lambda: divided)
    arguments, weights = of_shape("lstm", BATCH, positions)
    for implementation, calls in (("auto", []), ("cudnn", [arguments[1].shape])):
        run = functools.partial(recurrent, *arguments, implementation=implementation, **weights)
        jax.eval_shape(lambda run=run: run())
        assert cudnn_calls == calls


def test_cudnn_is_refused_on_a_machine_without_a_gpu(monkeypatch, cudnn_calls):
    monkeypatch.setattr(module, "gpu_count", lambda: 0)
    arguments, weights = of_shape("lstm", BATCH, POSITIONS)
    with pytest.raises(UnavailableError, match=r"'cudnn' asks the GPU for .*, and this machine has none; use 'auto'"):
        recurrent(*arguments, implementation="cudnn", **weights)
    jax.eval_shape(lambda: recurrent(*arguments, **weights))
    assert not cudnn_calls


@pytest.mark.parametrize(
    ("name", "dtype", "matmul_dtype", "message"),
    [
        ("gru", np.float32, None, "supports only LSTMs here"),
        ("rnn_relu", np.float32, None, "supports only LSTMs here"),
        ("lstm", np.float16, None, "computes in TF32 or float32, got float16"),
        ("lstm", np.float32, "float16", "computes in TF32 or float32, got float16, float32"),
    ],
)
def test_cudnn_is_refused_what_it_does_not_compute(cudnn_calls, name, dtype, matmul_dtype, message):
    arguments, weights = of_shape(name, BATCH, POSITIONS, dtype)
    with pytest.raises(UnavailableError, match=f"'cudnn' {message}; use 'auto' or 'scan'"):
        recurrent(*arguments, matmul_dtype=matmul_dtype, implementation="cudnn", **weights)
    assert not cudnn_calls


@pytest.mark.parametrize("which", ["w_x", "w_h", "b", "b_h"])
def test_cudnn_is_refused_arrays_of_which_one_has_another_dtype(cudnn_calls, which):
    (cell, x, state), weights = of_shape("lstm", BATCH, POSITIONS)
    with pytest.raises(UnavailableError, match="computes in TF32 or float32, got float16, float32"):
        recurrent(cell, x, state, implementation="cudnn", **weights | {which: jnp.asarray(weights[which], "float16")})
    assert not cudnn_calls
