import functools
import re

import jax
import numpy as np
import pytest
import torch

from jaxnlp.convert.torch_recurrent import from_torch, to_torch
from jaxnlp.nn.recurrent import CELLS, Recurrent
from tests.random_parameters import random_parameters

BATCH, POSITIONS, WIDTH, STATE, LAYERS = 3, 4, 5, 6, 2
X = np.random.default_rng(0).normal(size=(BATCH, POSITIONS, WIDTH)).astype(np.float32)
SHAPE = {"num_layers": LAYERS, "bidirectional": True}


def theirs(cell, **more):
    torch.manual_seed(0)
    kind, nonlinearity = cell.partition("_")[::2]
    arguments = {"nonlinearity": nonlinearity} if nonlinearity else {}
    return getattr(torch.nn, kind.upper())(WIDTH, STATE, batch_first=True, **SHAPE, **arguments, **more)


def weights_of(layer):
    return {name: weight.numpy() for name, weight in layer.state_dict().items()}


def ours(cell):
    module = Recurrent(cell, (STATE,) * LAYERS, bidirectional=True)
    return module, random_parameters(module, X, deterministic=True)


@pytest.mark.parametrize("cell", CELLS)
def test_pytorchs_weights_make_the_same_function_here(cell):
    module, params = ours(cell)
    layer = theirs(cell)
    found = from_torch(weights_of(layer), cell=cell, **SHAPE)
    assert jax.tree.map(np.shape, found) == jax.tree.map(np.shape, params)
    y, _ = jax.jit(lambda params: module.apply({"params": params}, X, deterministic=True))(found)
    np.testing.assert_allclose(y, layer(torch.tensor(X))[0].detach(), atol=1e-5)


@pytest.mark.parametrize("cell", CELLS)
def test_our_weights_make_the_same_function_in_pytorch(cell):
    module, params = ours(cell)
    layer = theirs(cell)
    weights = to_torch(params, cell=cell, **SHAPE)
    layer.load_state_dict({name: torch.tensor(array) for name, array in weights.items()})
    y, _ = jax.jit(lambda params: module.apply({"params": params}, X, deterministic=True))(params)
    np.testing.assert_allclose(y, layer(torch.tensor(X))[0].detach(), atol=1e-5)


@pytest.mark.parametrize("cell", CELLS)
def test_the_way_to_pytorch_and_back_changes_nothing(cell):
    _, params = ours(cell)
    found = from_torch(to_torch(params, cell=cell, prefix="a.", **SHAPE), cell=cell, prefix="a.", **SHAPE)
    assert jax.tree.structure(found) == jax.tree.structure(params)
    jax.tree.map(np.testing.assert_array_equal, found, params)


@pytest.mark.parametrize("cell", CELLS)
def test_the_way_from_pytorch_and_back_splits_the_biases_otherwise_but_for_a_gru(cell):
    expected = weights_of(theirs(cell))
    found = to_torch(from_torch(expected, cell=cell, **SHAPE), cell=cell, **SHAPE)
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        if cell != "gru" and name.startswith("bias_"):
            other = expected[name.replace("bias_ih", "bias_hh")]
            array = np.zeros_like(array) if name.startswith("bias_hh") else array + other
        np.testing.assert_array_equal(found[name], array)


def test_arrays_are_copies_that_lie_in_order_in_memory():
    given = weights_of(theirs("lstm"))
    params = from_torch(given, cell="lstm", **SHAPE)
    back = to_torch(params, cell="lstm", **SHAPE)
    for array in (*jax.tree.leaves(params), *back.values()):
        assert array.flags.c_contiguous
        assert array.dtype == np.float32
        assert not any(np.shares_memory(array, other) for other in given.values())


def test_what_stands_outside_the_prefix_is_left_alone():
    weights = weights_of(theirs("gru"))
    whole = {f"encoder.{name}": array for name, array in weights.items()} | {"head.weight": np.zeros(3)}
    found = from_torch(whole, cell="gru", prefix="encoder.", **SHAPE)
    jax.tree.map(np.testing.assert_array_equal, found, from_torch(weights, cell="gru", **SHAPE))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bias_hh_l1": None, "weight_ih_l0_reverse": None}, "missing: weight_ih_l0_reverse, bias_hh_l1"),
        ({"weight_ih_l2": np.zeros((24, 12)), "b": np.zeros(3)}, "unknown: b, weight_ih_l2"),
        (
            {"bias_hh_l1": None, "b": np.zeros(3)},
            "the weights of lstm layers with this shape; missing: bias_hh_l1; unknown: b",
        ),
        ({"weight_hr_l0": np.zeros((3, 6))}, "projections of the state (proj_size) are not supported: weight_hr_l0"),
        (
            {"weight_ih_l1": np.zeros((24, 6)), "bias_ih_l0": np.zeros(6)},
            "fit lstm layers of width 6: bias_ih_l0 (6,), expected (24,); weight_ih_l1 (24, 6), expected (24, 12)",
        ),
        ({"weight_hh_l0": np.zeros((24, 7))}, "width 7: weight_ih_l0 (24, 5), expected (28, 5); weight_hh_l0 (24, 7)"),
        ({"weight_hh_l0": np.float32(1.0)}, "weight_hh_l0 (), expected (4, 1)"),
        ({"bias_ih_l0": np.zeros(24, np.int8)}, "expected float arrays, got weight_ih_l0 float32, "),
    ],
)
def test_tensors_that_do_not_fit_are_named(changes, message):
    changed = {name: array for name, array in (weights_of(theirs("lstm")) | changes).items() if array is not None}
    with pytest.raises(ValueError, match=re.escape(message)):
        from_torch(changed, cell="lstm", **SHAPE)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kernel": None}, "missing: layer_1_backward/kernel"),
        ({"scale": np.zeros(3)}, "unknown: layer_1_backward/scale"),
        ({"kernel": np.zeros((12, 24))}, "width 6: layer_1_backward/kernel (12, 24), expected (12, 4, 6)"),
    ],
)
def test_parameters_that_do_not_fit_are_named(changes, message):
    _, params = ours("lstm")
    last = params["layer_1_backward"] | changes
    params["layer_1_backward"] = {part: array for part, array in last.items() if array is not None}
    with pytest.raises(ValueError, match=re.escape(message)):
        to_torch(params, cell="lstm", **SHAPE)


@pytest.mark.sweep(1)
@pytest.mark.parametrize("cell", CELLS)
def test_layers_without_biases_have_biases_of_zero(cell):
    layer = theirs(cell, bias=False)
    params = from_torch(weights_of(layer), cell=cell, **SHAPE)
    module, whole = ours(cell)
    assert jax.tree.map(np.shape, params) == jax.tree.map(np.shape, whole)
    found, _ = jax.jit(functools.partial(module.apply, deterministic=True))({"params": params}, X)
    np.testing.assert_allclose(found, layer(torch.as_tensor(X))[0].detach(), atol=1e-6)


def test_some_biases_alone_are_refused():
    weights = weights_of(theirs("lstm"))
    with pytest.raises(ValueError, match="missing: bias_hh_l1"):
        from_torch({name: array for name, array in weights.items() if name != "bias_hh_l1"}, cell="lstm", **SHAPE)


def test_parameters_with_gradients_are_read_and_types_unknown_to_numpy_named():
    layer = theirs("lstm")
    found = from_torch(dict(layer.named_parameters()), cell="lstm", **SHAPE)
    jax.tree.map(np.testing.assert_array_equal, found, from_torch(weights_of(layer), cell="lstm", **SHAPE))
    with pytest.raises(ValueError, match=r"weight_ih_l0 cannot be converted to NumPy .* give it in float32"):
        from_torch(layer.to(torch.bfloat16).state_dict(), cell="lstm", **SHAPE)


def test_impossible_arguments_are_refused():
    with pytest.raises(ValueError, match="cell must be one of rnn_tanh, rnn_relu, gru, lstm, got 'LSTM'"):
        from_torch({}, cell="LSTM", num_layers=1)
    with pytest.raises(ValueError, match="num_layers must be at least 1, got 0"):
        to_torch({}, cell="lstm", num_layers=0)
