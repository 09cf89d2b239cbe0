import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from optax.contrib import MuonDimensionNumbers
from optax.contrib._muon import orthogonalize_via_newton_schulz

from jaxnlp.models import Parameter
from jaxnlp.saving.serialization import ConfigError
from train.optimizer import Muon, muon, muon_or_adam
from train.optimizer.chain import make_optimizer
from train.optimizer.muon import ADAM_SIZE, COEFFICIENTS, as_matrices, scale_by_muon
from train.optimizer.parameters import describe

orthogonalized = jax.jit(muon.orthogonalized)
SHAPES = [(6, 6), (5, 12), (12, 5), (1, 7), (3, 4, 9), (2, 9, 4)]


def random(shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def all_are(parameter):
    return functools.partial(describe, lambda path: parameter)


ONE_MATRIX = all_are(Parameter("DF", matrix=True))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_singular_values_become_about_one_and_singular_vectors_stay(shape):
    x = random(shape)
    found = np.asarray(orthogonalized(x), np.float64)
    u, s, vt = np.linalg.svd(x.astype(np.float64), full_matrices=False)
    inside = np.einsum("...mi,...mn,...jn->...ij", u, found, vt)
    diagonal = np.einsum("...ii->...i", inside)
    assert diagonal.shape == s.shape
    assert (diagonal > 0.6).all()
    assert (diagonal < 1.3).all()
    np.testing.assert_allclose(inside - diagonal[..., None] * np.eye(s.shape[-1]), 0.0, atol=0.05)


@pytest.mark.sweep(2)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_iteration_equals_that_of_optax_up_to_rounding(shape):
    x = random(shape)
    stacked = x.reshape(-1, *shape[-2:])
    iterate = functools.partial(orthogonalize_via_newton_schulz, dimension_numbers=MuonDimensionNumbers(1, 2))
    expected = jax.jit(iterate)(stacked, np.array(COEFFICIENTS, np.float32))
    np.testing.assert_allclose(orthogonalized(x), np.asarray(expected).reshape(shape), atol=0.05)


def test_the_size_of_a_gradient_does_not_matter():
    x = random((4, 8))
    for factor in (2.0**13, 2.0**-3):
        np.testing.assert_allclose(orthogonalized(x * np.float32(factor)), orthogonalized(x), atol=0.05)


@pytest.mark.thorough
@pytest.mark.parametrize("shape", [(256, 64), (1024, 256), (1, 256, 64)], ids=str)
def test_shapes_of_models_compile_whole(shape):
    found = np.asarray(orthogonalized(random(shape)), np.float64)
    values = np.linalg.svd(found, compute_uv=False)
    assert (values > 0.6).all()
    assert (values < 1.3).all()


def test_a_zero_gradient_has_a_zero_direction():
    np.testing.assert_array_equal(orthogonalized(np.zeros((3, 5), np.float32)), 0.0)


def test_each_matrix_of_a_stack_is_made_orthogonal_separately():
    x = random((3, 4, 9))
    np.testing.assert_allclose(orthogonalized(x), np.stack([orthogonalized(each) for each in x]), atol=0.01)


def test_a_small_direction_moves_as_far_as_a_large_one():
    gradient = np.diag(np.array([1.0, 0.03], np.float32))
    found = np.abs(np.asarray(orthogonalized(gradient)))
    assert 0.6 < found[1, 1] / found[0, 0] < 1.7


@pytest.mark.parametrize("shape", [(32, 32), (16, 64), (64, 16)])
def test_updates_have_about_the_size_of_adams(shape):
    transform = scale_by_muon(0.0, ONE_MATRIX)
    updates, _ = jax.jit(transform.update)({"kernel": random(shape)}, transform.init({"kernel": random(shape)}))
    # All singular values at 1 would give exactly this.
    assert 0.7 * ADAM_SIZE < np.sqrt(np.square(updates["kernel"]).mean()) < 1.2 * ADAM_SIZE


def test_the_direction_is_of_the_running_mean_one_step_ahead():
    gradients = [random((4, 6), seed) for seed in range(3)]
    transform = scale_by_muon(0.9, ONE_MATRIX)
    state, update = transform.init({"kernel": gradients[0]}), jax.jit(transform.update)
    momentum = np.zeros((4, 6))
    for gradient in gradients:
        updates, state = update({"kernel": gradient}, state)
        momentum = 0.9 * momentum + 0.1 * gradient
        ahead = 0.9 * momentum + 0.1 * gradient
        expected = ADAM_SIZE * 6**0.5 * orthogonalized(ahead.astype(np.float32))
        np.testing.assert_allclose(updates["kernel"], expected, atol=0.01)
        np.testing.assert_allclose(state.momentum["kernel"], momentum, rtol=1e-5)


@pytest.mark.sweep(1)
def test_matrices_of_one_shape_have_the_updates_that_each_has_alone():
    """They are one stack, those of the other axes or shape another."""
    keys = jax.random.split(jax.random.key(0), 4)
    shapes = {"a": (4, 6), "b": (4, 6), "c": (6, 4), "d": (4, 6)}
    table = {name: Parameter("FD" if name == "d" else "DF") for name in shapes}
    gradients = {name: jax.random.normal(key, shape) for key, (name, shape) in zip(keys, shapes.items(), strict=True)}

    def updates(names):
        muon = scale_by_muon(0.9, lambda params: {name: table[name] for name in params})
        part = {name: gradients[name] for name in names}
        return muon.update(part, muon.init(part))[0]

    together = updates(shapes)
    for name in shapes:
        np.testing.assert_array_equal(together[name], updates([name])[name])


@pytest.mark.parametrize(
    ("axes", "shape", "matrix"),
    [
        ("LD3HK", (2, 8, 3, 2, 4), (2, 8, 24)),
        ("D3HK", (8, 3, 2, 4), (8, 24)),
        ("LDF", (2, 4, 8), (2, 4, 8)),
        ("FD", (8, 4), (8, 4)),
    ],
)
def test_a_kernel_with_several_output_axes_has_the_update_of_its_matrix(axes, shape, matrix):
    gradient = random(shape)
    updates = []
    for letters, value in ((axes, gradient), ("LDF"[3 - len(matrix) :], gradient.reshape(matrix))):
        transform = scale_by_muon(0.9, all_are(Parameter(letters, matrix=True)))
        found, _ = jax.jit(transform.update)({"kernel": value}, transform.init({"kernel": value}))
        assert found["kernel"].shape == value.shape
        updates.append(np.asarray(found["kernel"]).reshape(matrix))
    np.testing.assert_array_equal(*updates)


@pytest.mark.parametrize(("axes", "shape"), [("D", (4,)), ("LD", (2, 4)), ("DLF", (4, 2, 8))])
def test_parameters_that_are_not_matrices_are_refused(axes, shape):
    with pytest.raises(ConfigError, match=f"Muon needs matrices .* got '{axes}'"):
        as_matrices(axes, shape)


PARAMS = {
    "tokens": {"embedding": (7, 4)},
    "positions": (7, 4),
    "conv": {"kernel": (3, 3, 2, 4)},
    "blocks": {"up": {"kernel": (2, 4, 8), "bias": (2, 8)}, "norm": {"scale": (2, 4)}},
    "heads": {"transform": {"kernel": (4, 4)}},
    "decoder": {"head": {"kernel": (4, 7)}},
    "classifier": {"kernel": (4, 7)},
}
TABLE = {
    ("tokens", "embedding"): Parameter("VD", "below"),
    ("positions",): Parameter("TD", "below"),
    ("conv", "kernel"): Parameter("33CD", "below"),
    ("blocks", "up", "kernel"): Parameter("LDF", matrix=True),
    ("blocks", "up", "bias"): Parameter("LF"),
    ("blocks", "norm", "scale"): Parameter("LD"),
    ("heads", "transform", "kernel"): Parameter("DD", matrix=True),
    ("decoder", "head", "kernel"): Parameter("DV", matrix=True, head=True),
    ("classifier", "kernel"): Parameter("DC", matrix=True, head=True),
}
MUON = {("blocks", "up", "kernel"), ("heads", "transform", "kernel")}


def random_params():
    return jax.tree.map(random, PARAMS, is_leaf=lambda x: isinstance(x, tuple))


def flat(tree):
    return {tuple(part.key for part in path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def test_muon_is_for_matrices_that_are_not_heads_whatever_their_names():
    labels = muon_or_adam(random_params(), functools.partial(describe, TABLE.__getitem__))
    assert {path for path, label in flat(labels).items() if label == "muon"} == MUON


@pytest.mark.thorough
def test_the_other_parameters_have_adam():
    params = random_params()
    gradients = jax.tree.map(lambda x: x + 1.0, params)
    config = Muon(learning_rate=0.1, weight_decay=0.01, max_grad_norm=None)
    updates = {}
    for name in ("muon", "adamw"):
        named = dataclasses.replace(config.as_kind(name))
        optimizer = make_optimizer(named, total_steps=10, parameter=TABLE.__getitem__)
        # Not jitted: programs of other optimizers round differently.
        found, _ = optimizer.update(gradients, jax.jit(optimizer.init)(params), params, progress=jnp.array(1))
        updates[name] = flat(found)
    rate = float(config.rate(jnp.array(1.0), total_steps=10))
    for path, update in updates["muon"].items():
        if path in MUON:
            transform = scale_by_muon(0.95, all_are(TABLE[path]))
            gradient = {"kernel": flat(gradients)[path]}
            direction, _ = jax.jit(transform.update)(gradient, transform.init(gradient))
            expected = -rate * (direction["kernel"] + 0.01 * flat(params)[path])
            np.testing.assert_allclose(update, expected, atol=2e-4)
        else:
            np.testing.assert_array_equal(update, updates["adamw"][path])
