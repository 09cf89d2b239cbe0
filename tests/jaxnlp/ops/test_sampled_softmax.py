import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnlp.ops.losses import linear_cross_entropy
from jaxnlp.ops.sampled_softmax import sampled_cross_entropy

GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(size=(12, 5))
W = GENERATOR.normal(size=(5, 11))
B = GENERATOR.normal(size=11)
TARGETS = GENERATOR.integers(0, 11, size=12).astype(np.int32)
WEIGHTS = GENERATOR.random(12) * (GENERATOR.random(12) < 0.7)
ORDER = GENERATOR.permutation(11).astype(np.int32)
KEY = jax.random.key(1)


@functools.partial(jax.jit, static_argnames=("samples", "matmul_dtype"))
def value_and_gradients(x, w, b, targets, loss_mask, **settings):
    def loss(x, w, b, loss_mask):
        return sampled_cross_entropy(x, w, b, targets, loss_mask, **settings)[0]

    weighted = loss_mask is not None and loss_mask.dtype != bool
    return jax.value_and_grad(loss, argnums=(0, 1, 2, 3) if weighted else (0, 1, 2))(x, w, b, loss_mask)


def settings(frequent=4, samples=6, key=KEY):
    return {
        "frequent": jnp.asarray(ORDER[:frequent]),
        "rare": jnp.asarray(ORDER[frequent:]),
        "samples": samples,
        "key": key,
    }


def by_definition(x, w, b, targets, weights, *, frequent, rare, samples, key):
    """The module's formula, word by word, for autodiff."""
    with jax.ensure_compile_time_eval():  # the loops need numbers, also under jit
        drawn = np.asarray(rare)[np.asarray(jax.random.randint(key, (samples,), 0, len(rare)))]
    z = x @ w if b is None else x @ w + b[None]
    total = 0.0
    for row, y, weight in zip(z, targets, weights, strict=True):
        sure = [y, *(v for v in np.asarray(frequent) if v != y)]
        sampled = [v for v in drawn if v != y]
        terms = [row[np.array(sure)], row[np.array(sampled)] + np.log(len(rare) / samples)]
        total += weight * (jax.nn.logsumexp(jnp.concatenate(terms)) - row[y])
    return total


def assert_near(found, expected, tolerance):
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        theirs = np.asarray(theirs)
        np.testing.assert_allclose(ours, theirs, rtol=0.0, atol=tolerance * np.abs(theirs).max(initial=1e-3))


@pytest.mark.sweep(1)
@pytest.mark.parametrize("bias", [B, None])
def test_value_and_gradients_are_those_of_the_formula(bias):
    given = settings()
    with jax.enable_x64(True):
        expected = jax.jit(
            jax.value_and_grad(lambda x, w, b, m: by_definition(x, w, b, TARGETS, m, **given), argnums=(0, 1, 2, 3))
        )(X, W, bias, WEIGHTS)
        value, gradients = expected
        expected = value, (*gradients[:3], np.where(WEIGHTS == 0.0, 0.0, gradients[3]))  # a weight of 0 masks
        found = value_and_gradients(X, W, bias, TARGETS, WEIGHTS, **settings())
        assert_near(found, expected, 1e-12)


@pytest.mark.thorough
def test_it_is_exact_where_one_word_is_left_to_draw():
    with jax.enable_x64(True):

        def exact(x, w, b, weights):
            return linear_cross_entropy(x, w, b, TARGETS, weights)[0]

        expected = jax.jit(jax.value_and_grad(exact, argnums=(0, 1, 2, 3)))(X, W, B, WEIGHTS)
        assert_near(value_and_gradients(X, W, B, TARGETS, WEIGHTS, **settings(10, 3)), expected, 1e-12)


@pytest.mark.sweep(1)
@pytest.mark.parametrize("frequent", [0, 4])
def test_normaliser_is_right_in_expectation(frequent):
    """Over keys, exp(loss) p(y) is the estimated normaliser over the exact one: its mean is 1, within 5 sigma."""
    keys = jax.random.split(jax.random.key(2), 4_000)
    w, b = W.astype(np.float32), B.astype(np.float32)

    @jax.jit
    def estimates_and_exact(keys, x, target):
        estimate = jax.vmap(lambda key: sampled_cross_entropy(x, w, b, target, **settings(frequent, 6, key))[0])
        return estimate(keys), linear_cross_entropy(x, w, b, target)[0]

    for number in range(3):
        x, target = X[number : number + 1].astype(np.float32), TARGETS[number : number + 1]
        estimates, exact = estimates_and_exact(keys, x, target)
        ratios = np.exp(np.asarray(estimates) - float(exact))
        assert ratios.std() > 0.01
        assert abs(ratios.mean() - 1.0) < 5.0 * ratios.std() / len(keys) ** 0.5


def test_nll_is_the_objective_and_has_its_gradient():
    @jax.jit
    def losses_and_gradients(x):
        losses, pull = jax.vjp(lambda x: sampled_cross_entropy(x, W, B, TARGETS, WEIGHTS, **settings()), x)
        zeros = jax.tree.map(jnp.zeros_like, losses)
        return losses, [pull(zeros._replace(**{name: jnp.ones(())}))[0] for name in ("objective", "nll")]

    losses, (of_objective, of_nll) = losses_and_gradients(X.astype(np.float32))
    assert float(losses.nll) == float(losses.objective)
    np.testing.assert_allclose(losses.count, WEIGHTS.sum(), rtol=1e-6)
    assert np.abs(of_objective).max() > 0.1
    np.testing.assert_array_equal(of_nll, of_objective)


def test_key_decides_what_is_drawn():
    sums = [float(value_and_gradients(X, W, B, TARGETS, None, **settings(key=jax.random.key(k)))[0]) for k in (0, 0, 1)]
    assert sums[0] == sums[1] != sums[2]


@pytest.mark.thorough
def test_masked_tokens_may_hold_anything():
    mask = np.arange(12) < 8
    x, targets = X.copy(), TARGETS.copy()
    x[8:], targets[8:] = np.nan, [-100, 11, 500, -1]
    value, gradients = value_and_gradients(x, W, B, targets, mask, **settings())
    expected = value_and_gradients(X[:8], W, B, TARGETS[:8], None, **settings())
    np.testing.assert_allclose(value, expected[0], rtol=1e-6)
    dx = np.asarray(gradients[0])
    np.testing.assert_allclose(dx[:8], expected[1][0], atol=1e-6)
    np.testing.assert_array_equal(dx[8:], 0.0)
    assert_near(gradients[1:], expected[1][1:], 1e-6)


@pytest.mark.parametrize("outside", [-1, 11])
def test_target_outside_the_vocabulary_makes_the_loss_nan(outside):
    targets = TARGETS.copy()
    targets[3] = outside
    assert np.isnan(value_and_gradients(X, W, B, targets, None, **settings())[0])


@pytest.mark.thorough
def test_short_products_are_near_the_exact_ones():
    x, w, b = (a.astype(np.float32) for a in (X, W, B))
    exact = value_and_gradients(x, w, b, TARGETS, WEIGHTS, **settings())
    short = value_and_gradients(x, w, b, TARGETS, WEIGHTS, **settings(), matmul_dtype="bfloat16")
    assert jax.tree.map(lambda a: a.dtype, short) == jax.tree.map(lambda a: a.dtype, exact)
    assert_near(short, exact, 0.02)
    assert float(short[0]) != float(exact[0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"samples": 0}, "samples must be at least 1, got 0"),
        ({"rare": jnp.arange(3)}, "F \\+ R = V"),
        ({"targets": TARGETS.astype(np.float32)}, "targets must be int, got float32"),
        ({"w": W.astype(int)}, "expected float arrays"),
        ({"loss_mask": np.ones(3)}, "loss_mask \\(3,\\)"),
    ],
)
def test_bad_arguments_are_refused(change, message):
    arguments = {"x": X, "w": W, "b": B, "targets": TARGETS, "loss_mask": None, **settings(), **change}
    with pytest.raises(ValueError, match=message):
        sampled_cross_entropy(**arguments)
