import functools
import math

import jax
import numpy as np
import pytest

from jaxnlp.ops import scores

BATCH, QUERIES, KEYS, QUERY_WIDTH, KEY_WIDTH, WIDTH = 2, 3, 4, 5, 6, 7

SHAPES = {
    "w": (QUERY_WIDTH, KEY_WIDTH),
    "w_q": (QUERY_WIDTH, WIDTH),
    "w_k": (KEY_WIDTH, WIDTH),
    "b": (WIDTH,),
    "v": (WIDTH,),
}


def dot_by_loop(q, k):
    return sum(q[i] * k[i] for i in range(len(q)))


def scaled_dot_by_loop(q, k):
    return dot_by_loop(q, k) / math.sqrt(len(k))


def multiplicative_by_loop(q, k, w):
    return sum(q[i] * w[i, j] * k[j] for i in range(len(q)) for j in range(len(k)))


def additive_by_loop(q, k, w_q, w_k, v, b=None):
    total = 0.0
    for d in range(len(v)):
        hidden = sum(q[i] * w_q[i, d] for i in range(len(q))) + sum(k[j] * w_k[j, d] for j in range(len(k)))
        total += v[d] * math.tanh(hidden + (0.0 if b is None else b[d]))
    return total


CASES = {
    "dot": (scores.dot, dot_by_loop, ()),
    "scaled_dot": (scores.scaled_dot, scaled_dot_by_loop, ()),
    "multiplicative": (scores.multiplicative, multiplicative_by_loop, ("w",)),
    "additive": (scores.additive, additive_by_loop, ("w_q", "w_k", "v", "b")),
    "additive without b": (scores.additive, additive_by_loop, ("w_q", "w_k", "v")),
}


@functools.partial(jax.jit, static_argnames="score")
def values_and_gradients(score, q, k, parameters, upstream):
    found, vjp = jax.vjp(lambda q, k, parameters: score(q, k, **parameters), q, k, parameters)
    return found, vjp(upstream)


def random_inputs(parameters, dtype=np.float32):
    """q, k, the parameters, and the gradient of a loss with respect to the scores; Q = K where there is no matrix."""
    generator = np.random.default_rng(0)
    query_width = QUERY_WIDTH if parameters else KEY_WIDTH
    shapes = {"q": (BATCH, QUERIES, query_width), "k": (BATCH, KEYS, KEY_WIDTH), "upstream": (BATCH, QUERIES, KEYS)}
    shapes |= {name: SHAPES[name] for name in parameters}
    arrays = {name: generator.normal(size=shape).astype(dtype) for name, shape in shapes.items()}
    q, k, upstream = (arrays.pop(name) for name in ("q", "k", "upstream"))
    return q, k, arrays, upstream


def scores_by_loops(score, q, k, parameters):
    """One query and one key at a time, in float64."""
    q, k, parameters = jax.tree.map(lambda a: a.astype(np.float64), (q, k, parameters))
    found = np.zeros((len(q), q.shape[1], k.shape[1]))
    for b, t, s in np.ndindex(*found.shape):
        found[b, t, s] = score(q[b, t], k[b, s], **parameters)
    return found


@pytest.mark.parametrize("case", CASES)
def test_equals_a_loop_over_queries_and_keys(case):
    score, loop, names = CASES[case]
    q, k, parameters, upstream = random_inputs(names)
    found, _ = values_and_gradients(score, q, k, parameters, upstream)
    assert (found.shape, found.dtype) == ((BATCH, QUERIES, KEYS), np.float32)
    np.testing.assert_allclose(found, scores_by_loops(loop, q, k, parameters), atol=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_gradients_equal_differences_of_the_loop(case, assert_gradients_of):
    score, loop, names = CASES[case]
    q, k, parameters, upstream = random_inputs(names)
    _, gradients = values_and_gradients(score, q, k, parameters, upstream)
    assert_gradients_of(functools.partial(scores_by_loops, loop), (q, k, parameters), gradients, upstream)


@pytest.mark.parametrize("case", CASES)
def test_inputs_of_ten_thousand_give_finite_scores_and_gradients(case):
    score, loop, names = CASES[case]
    q, k, parameters, upstream = random_inputs(names)
    q, k = 1e4 * q, 1e4 * k
    found, gradients = values_and_gradients(score, q, k, parameters, upstream)
    np.testing.assert_allclose(found, scores_by_loops(loop, q, k, parameters), rtol=1e-4, atol=1e-4)
    for gradient in jax.tree.leaves(gradients):
        assert np.isfinite(gradient).all()


@pytest.mark.parametrize("case", CASES)
def test_examples_queries_and_keys_do_not_mix(case):
    score, _, names = CASES[case]
    q, k, parameters, upstream = random_inputs(names)
    found, _ = values_and_gradients(score, q, k, parameters, upstream)
    q, k = q.copy(), k.copy()  # JAX may not have read the first ones yet
    q[:, 1:], k[:, 2:] = 9.0, -9.0
    q[1], k[1] = 3.0, -3.0
    changed, _ = values_and_gradients(score, q, k, parameters, upstream)
    np.testing.assert_array_equal(changed[0, :1, :2], found[0, :1, :2])
    assert not np.allclose(changed, found)


def test_multiplicative_score_with_the_identity_is_the_dot_product():
    q, k, _, upstream = random_inputs(())
    found, _ = values_and_gradients(scores.multiplicative, q, k, {"w": np.eye(KEY_WIDTH, dtype=np.float32)}, upstream)
    np.testing.assert_allclose(found, values_and_gradients(scores.dot, q, k, {}, upstream)[0], atol=1e-6)


def test_a_bias_of_zeros_is_no_bias():
    q, k, parameters, upstream = random_inputs(("w_q", "w_k", "v"))
    found, _ = values_and_gradients(scores.additive, q, k, parameters | {"b": np.zeros(WIDTH, np.float32)}, upstream)
    np.testing.assert_array_equal(found, values_and_gradients(scores.additive, q, k, parameters, upstream)[0])


@pytest.mark.parametrize("case", ["dot", "scaled_dot"])
def test_dot_products_refuse_queries_of_another_width_than_the_keys(case):
    score, _, _ = CASES[case]
    q, k = np.ones((BATCH, QUERIES, QUERY_WIDTH), np.float32), np.ones((BATCH, KEYS, KEY_WIDTH), np.float32)
    with pytest.raises(ValueError, match=rf"{QUERY_WIDTH}.*{KEY_WIDTH}|{KEY_WIDTH}.*{QUERY_WIDTH}"):
        score(q, k)


@pytest.mark.thorough
def test_vmap_changes_nothing():
    for score, _, names in CASES.values():
        q, k, parameters, upstream = random_inputs(names)
        expected, _ = values_and_gradients(score, q, k, parameters, upstream)
        mapped = jax.vmap(lambda q, k, score=score, parameters=parameters: score(q, k, **parameters))
        np.testing.assert_allclose(mapped(q[:, None], k[:, None])[:, 0], expected, atol=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_queries_and_keys_of_other_batches_are_refused(case):
    score, _, names = CASES[case]
    q, k, parameters, _ = random_inputs(names)
    with pytest.raises(AssertionError, match="shape"):
        score(q, k[:1], **parameters)
