import functools
import itertools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnlp.ops.gradient_surgery import project_conflicts

PROJECT = jax.jit(project_conflicts)


def results_of_all_orders(gradients):
    """What algorithm 1 of Yu et al. 2020 may give, one for each choice of an order for each task."""
    ways = []
    for task, gradient in enumerate(gradients):
        others, ends = [n for n in range(len(gradients)) if n != task], []
        for order in itertools.permutations(others):
            projected = np.array(gradient, np.float64)
            for other in order:
                dot = projected @ gradients[other]
                if dot < 0:
                    projected = projected - dot / (gradients[other] @ gradients[other]) * gradients[other]
            ends.append(projected)
        ways.append(ends)
    return np.array([np.sum(choice, axis=0) for choice in itertools.product(*ways)])


def test_two_gradients_that_conflict_are_projected_on_each_others_normals():
    # (1, 0) without its part along (-1, 1) is (1/2, 1/2); (-1, 1) without its part along (1, 0) is (0, 1).
    one, other = {"a": np.array([1.0]), "b": np.zeros((1, 1))}, {"a": np.array([-1.0]), "b": np.ones((1, 1))}
    found = PROJECT(jax.tree.map(np.float32, [one, other]), jax.random.key(0))
    chex.assert_trees_all_close(found, {"a": np.array([0.5]), "b": np.array([[1.5]])}, rtol=1e-6)


def test_gradients_that_agree_are_added():
    generator = np.random.default_rng(0)
    gradients = [{"a": generator.uniform(size=5), "b": generator.uniform(size=(2, 3))} for _ in range(3)]
    gradients = jax.tree.map(np.float32, gradients)
    found = PROJECT(gradients, jax.random.key(0))
    chex.assert_trees_all_close(found, jax.tree.map(lambda *g: np.sum(g, axis=0), *gradients), rtol=1e-6)


def test_one_gradient_stays():
    gradient = {"a": jnp.array([1.0, -3.0])}
    chex.assert_trees_all_equal(PROJECT([gradient], jax.random.key(0)), gradient)


@pytest.mark.parametrize("seed", range(20))
def test_the_sum_of_two_conflicts_with_neither(seed):
    gradients = [x.astype(np.float32) for x in np.random.default_rng(seed).normal(size=(2, 3))]
    found = np.asarray(PROJECT(gradients, jax.random.key(seed)))
    for gradient in gradients:
        assert found @ gradient > -1e-6 * np.linalg.norm(found) * np.linalg.norm(gradient)


@pytest.mark.sweep(1)
@pytest.mark.parametrize("tasks", [3, 4])
def test_many_gradients_give_what_some_order_gives(tasks):
    conflicts = 0
    for seed in range(20):
        gradients = [x.astype(np.float32) for x in np.random.default_rng(seed).normal(size=(tasks, 3))]
        found = np.array(PROJECT(gradients, jax.random.key(seed)))
        expected = results_of_all_orders(np.array(gradients, np.float64))
        np.testing.assert_allclose(np.abs(expected - found).max(axis=1).min(), 0.0, atol=1e-5)
        np.testing.assert_array_equal(found, PROJECT(gradients, jax.random.key(seed)))
        conflicts += np.ptp(expected, axis=0).max() > 1e-2
    assert conflicts > 5


def test_each_order_is_as_likely_for_each_task_whatever_it_is_for_the_others():
    gradients = np.array([[1.0, 0.1], [-0.6, 0.7], [-0.3, -0.9]], np.float32)
    expected, draws = results_of_all_orders(gradients.astype(np.float64)), 4_000
    assert all(np.abs(a - b).max() > 1e-2 for a, b in itertools.combinations(expected, 2))
    keys = jax.random.split(jax.random.key(0), draws)
    found = np.asarray(jax.jit(jax.vmap(functools.partial(project_conflicts, list(gradients))))(keys))
    distances = np.abs(found[:, None] - expected[None]).max(axis=2)
    assert distances.min(axis=1).max() < 1e-5
    counts = np.bincount(distances.argmin(axis=1), minlength=8)
    assert (np.abs(counts / draws - 1 / 8) < 5 * np.sqrt(1 / 8 * 7 / 8 / draws)).all()


@pytest.mark.parametrize("small", [0.0, 1e-30])
def test_a_gradient_that_is_nothing_changes_nothing(small):
    gradients = [jnp.array([1.0, 0.0]), small * jnp.array([-1.0, -1.0]), jnp.array([-1.0, 1.0])]
    found = PROJECT(gradients, jax.random.key(0))
    np.testing.assert_allclose(found, [0.5, 1.5], rtol=1e-6)


def test_opposite_gradients_cancel():
    gradient = jnp.array([3.0, -4.0])
    np.testing.assert_allclose(PROJECT([gradient, -2.0 * gradient], jax.random.key(0)), 0.0, atol=1e-6)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("task", [0, 1])
def test_what_is_not_finite_stays_so(bad, task):
    gradients = [np.array([1.0, 0.0], np.float32), np.array([-1.0, 1.0], np.float32)]
    gradients[task][1] = bad
    assert not np.isfinite(PROJECT(gradients, jax.random.key(0))).all()


def test_dot_products_of_rounded_gradients_are_not_rounded():
    # In bfloat16 the sum of 1,000 ones stays at 256, and the sign of the dot product would be another.
    one, many = np.ones(1_001, jnp.bfloat16), np.ones(1_001, jnp.bfloat16)
    many[0] = -600
    found = PROJECT([one, many], jax.random.key(0))
    assert found.dtype == jnp.bfloat16
    np.testing.assert_array_equal(found, one + many)


def test_gradients_of_other_shapes_with_as_many_elements_are_refused():
    with pytest.raises(AssertionError, match="shape"):
        project_conflicts([{"w": jnp.ones((2, 3))}, {"w": jnp.ones((3, 2))}], jax.random.key(0))
