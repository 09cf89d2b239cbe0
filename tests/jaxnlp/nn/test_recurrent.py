import functools
import re

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from jaxnlp.convert.torch_recurrent import from_torch, to_torch
from jaxnlp.nn.dropout import dropout_key
from jaxnlp.nn.recurrent import CELLS, Recurrent, RecurrentCompute, RecurrentDirection, empty_states, uniform_of_width
from jaxnlp.ops.dropout_masks import dropout

pytestmark = pytest.mark.sweep

BATCH, POSITIONS, WIDTH, STATE, LAYERS = 3, 5, 4, 6, 2
LENGTHS = np.array([5, 2, 1])
X = np.random.default_rng(0).normal(size=(BATCH, POSITIONS, WIDTH)).astype(np.float32)


@functools.partial(jax.jit, static_argnums=(0, 1))
def initial_params(module, width=WIDTH):
    return module.init(jax.random.key(0), jnp.zeros((1, 1, width)), deterministic=True)["params"]


def random_params(module):
    """As large as initial ones, without the time that compiling those takes."""
    shapes = jax.eval_shape(lambda: initial_params(module))
    generator = np.random.default_rng(3)
    return jax.tree.map(
        lambda leaf: np.float32(generator.uniform(-1.0, 1.0, leaf.shape) * leaf.shape[-1] ** -0.5), shapes
    )


@functools.partial(jax.jit, static_argnums=0)
def apply(module, params, x, states=None, lengths=None, dropout_key=None):
    rngs = None if dropout_key is None else {"dropout": jax.random.key(dropout_key)}
    deterministic = dropout_key is None
    return module.apply({"params": params}, x, states, deterministic=deterministic, lengths=lengths, rngs=rngs)


def random_states(module, batch=BATCH):
    generator = np.random.default_rng(1)
    empty = empty_states(module.cell, module.widths, batch, bidirectional=module.bidirectional)
    return jax.tree.map(lambda a: generator.normal(size=a.shape).astype(np.float32), empty)


def assert_near(found, expected, atol=1e-6):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=atol), found, expected)


@pytest.mark.thorough
@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["whole", "lengths"])
@pytest.mark.parametrize("cell", CELLS)
def test_a_stack_of_both_directions_equals_pytorchs_in_values_and_gradients(cell, lengths):
    torch.manual_seed(0)
    kind, nonlinearity = cell.partition("_")[::2]
    arguments = {"nonlinearity": nonlinearity} if nonlinearity else {}
    shape = {"num_layers": LAYERS, "bidirectional": True}
    layer = getattr(torch.nn, kind.upper())(WIDTH, STATE, batch_first=True, **shape, **arguments)
    module = Recurrent(cell, (STATE,) * LAYERS, bidirectional=True)
    generator, count = np.random.default_rng(2), CELLS[cell].states
    state, d_state = generator.normal(size=(2, count, 2 * LAYERS, BATCH, STATE)).astype(np.float32)
    dy = generator.normal(size=(BATCH, POSITIONS, 2 * STATE)).astype(np.float32)

    leaves = [torch.tensor(a, requires_grad=True) for a in (X, *state)]
    inputs = leaves[0]
    if lengths is not None:
        inputs = torch.nn.utils.rnn.pack_padded_sequence(inputs, torch.tensor(lengths), batch_first=True)
    y, final = layer(inputs, tuple(leaves[1:]) if count == 2 else leaves[1])
    if lengths is not None:
        y, _ = torch.nn.utils.rnn.pad_packed_sequence(y, batch_first=True, total_length=POSITIONS)
    final = final if count == 2 else (final,)
    torch.autograd.backward([y, *final], [torch.tensor(a) for a in (dy, *d_state)])

    def ours_of(theirs):  # [states][L * directions, B, K] -> [L][directions][states] of [B, K]
        return tuple(
            tuple(tuple(a[2 * number + direction] for a in theirs) for direction in (0, 1)) for number in range(LAYERS)
        )

    @jax.jit
    def run(params, x, states):
        return module.apply({"params": params}, x, states, deterministic=True, lengths=lengths)

    params = from_torch({name: array.numpy() for name, array in layer.state_dict().items()}, cell=cell, **shape)
    found, pull = jax.vjp(run, params, X, ours_of(state))
    assert_near(found, (y.detach().numpy(), ours_of([a.detach().numpy() for a in final])), atol=1e-5)
    d_params, dx, d_states = pull((dy, ours_of(d_state)))
    assert_near((dx, d_states), (leaves[0].grad.numpy(), ours_of([a.grad.numpy() for a in leaves[1:]])), atol=1e-5)
    gradients = to_torch(d_params, cell=cell, **shape)
    for name, weight in layer.named_parameters():
        if cell != "gru":  # the one bias has the gradient of either
            name = name.replace("bias_hh", "bias_ih")
        np.testing.assert_allclose(gradients[name], weight.grad, rtol=1e-5, atol=1e-5, err_msg=name)


@pytest.mark.sweep(1)
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("cell", CELLS)
def test_shapes_of_outputs_states_and_parameters(cell, bidirectional):
    module = Recurrent(cell, (7, STATE), bidirectional=bidirectional)
    params = random_params(module)
    y, states = apply(module, params, X)
    directions, gates = 1 + bidirectional, CELLS[cell].gates
    assert y.shape == (BATCH, POSITIONS, directions * STATE)
    one = (((BATCH, 7),) * CELLS[cell].states,) * directions, (((BATCH, STATE),) * CELLS[cell].states,) * directions
    assert jax.tree.map(np.shape, states) == one
    assert jax.tree.map(np.shape, empty_states(cell, (7, STATE), BATCH, bidirectional=bidirectional)) == one
    names = ("forward", "backward")[:directions]
    expected = {}
    for number, (below, width) in enumerate(((WIDTH, 7), (directions * 7, STATE))):
        shapes = {
            "kernel": (below, gates, width),
            "recurrent_kernel": (width, gates, width),
            "bias": (gates, width),
        }
        if cell == "gru":
            shapes["recurrent_bias"] = (3, width)
        expected |= {f"layer_{number}_{name}": shapes for name in names}
    assert jax.tree.map(np.shape, params) == expected


@pytest.mark.sweep(1)
@pytest.mark.parametrize("cell", CELLS)
def test_initial_parameters_are_uniform_up_to_one_over_the_root_of_the_width(cell):
    params = jax.device_get(initial_params(Recurrent(cell, (64,)), 32))["layer_0_forward"]
    bound = 64**-0.5
    for name, array in params.items():
        assert np.abs(array).max() <= bound, name
        assert np.abs(array).max() > 0.9 * bound, name
        deviation = bound / np.sqrt(3.0)
        assert abs(np.mean(array)) < 5.0 * deviation / np.sqrt(array.size), name
        # The variance of a uniform variable's square is 4 / 45 of its bound's fourth power.
        assert abs(np.mean(array**2) - deviation**2) < 5.0 * np.sqrt(4 / 45 / array.size) * bound**2, name


@pytest.mark.thorough
def test_a_forget_bias_is_added_to_the_initial_bias_of_the_forget_gate_only():
    plain, biased = (initial_params(Recurrent("lstm", (STATE,), forget_bias=b))["layer_0_forward"] for b in (0.0, 2.0))
    expected = np.zeros((4, STATE))
    expected[1] = 2.0
    np.testing.assert_allclose(np.asarray(biased["bias"]) - plain["bias"], expected, atol=1e-6)
    for name in ("kernel", "recurrent_kernel"):
        np.testing.assert_array_equal(biased[name], plain[name])


@pytest.mark.sweep(1)
@pytest.mark.parametrize("cell", CELLS)
def test_initial_values_are_those_of_gates_side_by_side(cell):
    """Random numbers depend on the order of the elements, not on how many axes they have."""
    direction = RecurrentDirection(cell, STATE)
    state = tuple(jnp.zeros((1, STATE)) for _ in range(CELLS[cell].states))
    init = jax.jit(functools.partial(direction.init, deterministic=True))
    params = jax.device_get(init(jax.random.key(0), X[:1], state)["params"])
    initial = uniform_of_width(STATE)

    class SideBySide(nn.Module):
        @nn.compact
        def __call__(self):
            for name in ("kernel", "recurrent_kernel", "bias", "recurrent_bias")[: len(params)]:  # jit sorts them
                array = params[name]
                rows = (array.shape[0],) if array.ndim == 3 else ()
                self.param(name, initial, (*rows, CELLS[cell].gates * STATE))

    expected = jax.jit(SideBySide().init)(jax.random.key(0))["params"]
    for name, array in params.items():
        np.testing.assert_array_equal(array.reshape(expected[name].shape), expected[name])


def test_the_initial_distribution_has_the_width_as_its_argument():
    array = uniform_of_width(4)(jax.random.key(0), (1000,), jnp.float32)
    assert 0.49 < np.abs(array).max() <= 0.5


@pytest.mark.sweep(1)
@pytest.mark.parametrize("cell", CELLS)
def test_directions_are_layers_that_read_each_sequence_forwards_and_backwards(cell):
    module = Recurrent(cell, (STATE,), bidirectional=True)
    params, states = random_params(module), random_states(module)
    y, finals = jax.device_get(apply(module, params, X, states, LENGTHS))
    for row, length in enumerate(LENGTHS):
        for number, direction in enumerate(("forward", "backward")):
            x = X[row : row + 1, :length]
            x = x if direction == "forward" else x[:, ::-1]
            alone = RecurrentDirection(cell, STATE)
            state = tuple(a[row : row + 1] for a in states[0][number])
            expected, final = apply(alone, params[f"layer_0_{direction}"], x, state)
            expected = np.asarray(expected) if direction == "forward" else np.asarray(expected)[:, ::-1]
            here = slice(number * STATE, (number + 1) * STATE)
            assert_near(y[row : row + 1, :length, here], expected)
            assert_near(tuple(a[row : row + 1] for a in finals[0][number]), final)
        assert not np.asarray(y[row, length:]).any()


@pytest.mark.sweep(1)
@pytest.mark.parametrize("cell", CELLS)
def test_states_carry_a_sequence_from_one_part_to_the_next(cell):
    module = Recurrent(cell, (7, STATE))
    params, states = random_params(module), random_states(module)
    whole, final = apply(module, params, X, states)
    first, between = apply(module, params, X[:, :2], states)
    second, end = apply(module, params, X[:, 2:], between)
    assert_near((np.concatenate([first, second], axis=1), end), (whole, final))


@pytest.mark.sweep(1)
@pytest.mark.parametrize("cell", CELLS)
def test_no_states_are_zeros(cell):
    module = Recurrent(cell, (STATE,) * LAYERS, bidirectional=True)
    params = random_params(module)
    empty = empty_states(cell, module.widths, BATCH, bidirectional=True)
    assert not any(np.asarray(array).any() for array in jax.tree.leaves(empty))
    jax.tree.map(np.testing.assert_array_equal, apply(module, params, X), apply(module, params, X, empty))


RATE = 0.3
WIDE = 40


def dropped_matrix(module, dropout_key, *, rows=WIDE):
    """The recurrent matrix as a layer of ReLU sees it: what the states e_1, e_2, ... give at one step."""
    shapes = {"kernel": (WIDTH, 1, WIDE), "bias": (1, WIDE), "recurrent_kernel": (WIDE, 1, WIDE)}
    values = {name: np.full(shape, name == "recurrent_kernel", np.float32) for name, shape in shapes.items()}
    states = ((np.eye(WIDE, dtype=np.float32)[np.arange(rows) % WIDE],),)
    params = {"layer_0_forward": values}
    y, _ = apply(module, params, np.zeros((rows, 1, WIDTH), np.float32), (states,), dropout_key=dropout_key)
    return np.asarray(y[:, 0])


def test_weight_dropout_drops_its_share_and_scales_the_rest():
    matrix = dropped_matrix(Recurrent("rnn_relu", (WIDE,), weight_dropout_rate=RATE), 1)
    np.testing.assert_allclose(matrix[matrix != 0.0], 1.0 / (1.0 - RATE), rtol=1e-6)
    assert abs((matrix == 0.0).mean() - RATE) < 5.0 * np.sqrt(RATE * (1.0 - RATE) / matrix.size)


def test_weight_dropout_is_the_same_for_a_key_and_for_all_rows_and_differs_between_keys():
    module = Recurrent("rnn_relu", (WIDE,), weight_dropout_rate=RATE)
    matrix = dropped_matrix(module, 1)
    np.testing.assert_array_equal(dropped_matrix(module, 1, rows=2 * WIDE), np.concatenate([matrix, matrix]))
    other = dropped_matrix(module, 2)
    assert abs(np.corrcoef(matrix.ravel(), other.ravel())[0, 1]) < 5.0 / np.sqrt(matrix.size)


def test_weight_dropout_draws_the_mask_of_gates_side_by_side():
    module = RecurrentDirection("lstm", STATE, weight_dropout_rate=0.5)
    params = random_params(Recurrent("lstm", (STATE,)))["layer_0_forward"]
    x, zeros = np.zeros((STATE, 1, WIDTH), np.float32), np.zeros((STATE, STATE), np.float32)
    states = (np.eye(STATE, dtype=np.float32), zeros)

    class Key(nn.Module):  # a module at the same path draws the same key
        @nn.compact
        def __call__(self):
            return dropout_key(self)

    key = Key().apply({}, rngs={"dropout": jax.random.key(1)})
    flat = jax.jit(dropout, static_argnums=1)(params["recurrent_kernel"].reshape(STATE, 4 * STATE), 0.5, key)
    found = apply(module, params, x, states, dropout_key=1)
    same = params | {"recurrent_kernel": np.reshape(flat, (STATE, 4, STATE))}
    plain = RecurrentDirection("lstm", STATE)
    assert_near(found, apply(plain, same, x, states))
    without = apply(plain, params, x, states)
    assert np.abs(np.asarray(found[0]) - without[0]).max() > 1e-3


@pytest.mark.sweep(1)
@pytest.mark.parametrize("cell", ["rnn_relu", "lstm"])
def test_weight_dropout_changes_nothing_but_the_recurrent_matrix_at_all_positions(cell):
    """With no recurrent matrix it changes nothing; else one matrix explains all positions and rows."""
    module = Recurrent(cell, (WIDE,), weight_dropout_rate=RATE)
    params, states = random_params(module), random_states(module)
    layer = params["layer_0_forward"]
    without = {"layer_0_forward": layer | {"recurrent_kernel": np.zeros_like(layer["recurrent_kernel"])}}
    assert_near(apply(module, without, X, states, dropout_key=1), apply(module, without, X, states))
    if cell == "rnn_relu":
        factors = dropped_matrix(module, 1)
        same = {"layer_0_forward": layer | {"recurrent_kernel": layer["recurrent_kernel"] * factors[:, None]}}
        found = apply(module, params, X, states, dropout_key=1)
        assert_near(found, apply(module, same, X, states))
        assert (np.asarray(found[0]) != np.asarray(apply(module, params, X, states)[0])).any(axis=(0, 2)).all()


def test_weight_dropout_differs_between_layers_and_directions():
    module = Recurrent("rnn_relu", (WIDE, WIDE), bidirectional=True, weight_dropout_rate=0.5)
    params = random_params(module)
    # The input is zero, so that each output depends only on the state and its recurrent matrix.
    params = jax.tree.map(np.zeros_like, params)
    ones = np.ones((WIDE, 1, WIDE), np.float32)
    params = {name: layer | {"recurrent_kernel": ones} for name, layer in params.items()}
    states = (((np.eye(WIDE, dtype=np.float32),),) * 2,) * 2
    _, finals = apply(module, params, np.zeros((WIDE, 1, WIDTH), np.float32), states, dropout_key=1)
    matrices = [np.asarray(array).ravel() for array in jax.tree.leaves(finals)]
    correlations = np.corrcoef(matrices) - np.eye(4)
    assert np.abs(correlations).max() < 5.0 / np.sqrt(WIDE * WIDE)


def features_that_stay(module, dropout_key, *, rows=50):
    """Outputs of layers that pass on what they get, the first of them ones: what dropout left of them."""
    layers = len(module.widths)
    first = {"kernel": np.zeros((WIDE, 1, WIDE)), "bias": np.ones((1, WIDE))}
    later = {"kernel": np.eye(WIDE)[:, None], "bias": np.zeros((1, WIDE))}
    params = {
        f"layer_{number}_forward": (later if number else first) | {"recurrent_kernel": np.zeros((WIDE, 1, WIDE))}
        for number in range(layers)
    }
    x = np.zeros((rows, POSITIONS, WIDE), np.float32)
    return np.asarray(apply(module, jax.tree.map(np.float32, params), x, dropout_key=dropout_key)[0])


def test_hidden_dropout_drops_whole_features_of_a_sequence_between_layers():
    y = features_that_stay(Recurrent("rnn_relu", (WIDE, WIDE), hidden_dropout_rate=RATE), 1)
    np.testing.assert_array_equal(y, np.broadcast_to(y[:, :1], y.shape))
    kept = y[:, 0] != 0.0
    np.testing.assert_allclose(y[:, 0][kept], 1.0 / (1.0 - RATE), rtol=1e-6)
    assert abs(kept.mean() - (1.0 - RATE)) < 5.0 * np.sqrt(RATE * (1.0 - RATE) / kept.size)
    assert len({row.tobytes() for row in kept}) == len(kept)


def test_hidden_dropout_differs_between_the_layers():
    y = features_that_stay(Recurrent("rnn_relu", (WIDE,) * 3, hidden_dropout_rate=RATE), 1)[:, 0]
    both, deviation = (1.0 - RATE) ** 2, np.sqrt(0.25 / y.size)
    assert abs((y != 0.0).mean() - both) < 5.0 * deviation


@pytest.mark.thorough
def test_hidden_dropout_does_not_change_inputs_and_outputs():
    one = Recurrent("lstm", (STATE,), hidden_dropout_rate=0.9)
    params = random_params(one)
    jax.tree.map(np.testing.assert_array_equal, apply(one, params, X, dropout_key=1), apply(one, params, X))
    two = Recurrent("lstm", (STATE, STATE), hidden_dropout_rate=0.9)
    y, states = apply(two, random_params(two), X, dropout_key=1)
    assert np.asarray(y).all()
    np.testing.assert_array_equal(states[0][0][0], apply(two, random_params(two), X)[1][0][0][0])


@pytest.mark.thorough
def test_dropout_does_nothing_outside_training():
    plain = Recurrent("gru", (STATE, STATE))
    dropping = Recurrent("gru", (STATE, STATE), hidden_dropout_rate=0.5, weight_dropout_rate=0.5)
    params = random_params(plain)
    jax.tree.map(np.testing.assert_array_equal, apply(dropping, params, X), apply(plain, params, X))
    assert (np.asarray(apply(dropping, params, X, dropout_key=1)[0]) != np.asarray(apply(plain, params, X)[0])).any()


@pytest.mark.thorough
def test_what_makes_no_layers_is_refused():
    for module, message in (
        (Recurrent("lstmm", (3,)), "cell must be one of rnn_tanh, rnn_relu, gru, lstm, got 'lstmm'"),
        (Recurrent("lstm", ()), "widths needs at least one layer, got none"),
        (Recurrent("gru", (3,), forget_bias=1.0), "forget_bias applies only to the cell lstm, got 1.0 for cell gru"),
        (Recurrent("gru", (3,), weight_dropout_rate=1.5), r"dropout rate must be in \[0, 1\), got 1.5"),
    ):
        with pytest.raises(ValueError, match=message):
            initial_params(module)
    module = Recurrent("gru", (3, 3), bidirectional=True)
    states = random_states(module)
    for few in (states[:1], tuple(layer[:1] for layer in states)):
        with pytest.raises(ValueError, match=r"expected states of 2 layers in 2 directions, got \[\d(, 1)?\] dir"):
            apply(module, initial_params(module), X, few)


def test_input_of_two_axes_is_refused():
    module = Recurrent("lstm", (STATE,))
    with pytest.raises(ValueError, match=re.escape("expected x [B, T, D], got x (5, 4)")):
        apply(module, initial_params(module), X[0])
    state = (jnp.zeros((1, STATE)),) * 2
    with pytest.raises(ValueError, match=re.escape("expected x [B, T, D], got x (5, 4)")):
        RecurrentDirection("lstm", STATE).init(jax.random.key(0), X[0], state, deterministic=True)


@pytest.mark.thorough
@pytest.mark.parametrize("cell", CELLS)
def test_short_types_are_those_of_outputs_and_states_and_not_of_parameters(cell):
    exact, short = (
        Recurrent(cell, (STATE, STATE), bidirectional=True, compute=RecurrentCompute(dtype=d))
        for d in ("float32", "bfloat16")
    )
    params = initial_params(short)
    assert all(array.dtype == jnp.float32 for array in jax.tree.leaves(params))
    y, states = apply(short, params, X, lengths=LENGTHS)
    assert all(array.dtype == jnp.bfloat16 for array in jax.tree.leaves((y, states)))
    expected = apply(exact, params, X, lengths=LENGTHS)
    found = jax.tree.map(np.float32, (y, states))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=0.03), found, expected)
