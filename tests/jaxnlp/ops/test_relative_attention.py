import re

import jax
import numpy as np
import pytest

from jaxnlp.ops.attention import dot_product_attention
from jaxnlp.ops.relative_attention import attend_relative

BATCH, QUERIES, KEYS, HEADS, WIDTH = 2, 3, 5, 4, 6


def arrays(key_heads=HEADS, dtype=np.float64):
    generator = np.random.default_rng(0)
    shapes = [
        (BATCH, QUERIES, HEADS, WIDTH),
        *[(BATCH, KEYS, key_heads, WIDTH)] * 2,
        *[(QUERIES, KEYS, WIDTH)] * 2,
    ]
    return [generator.normal(size=shape).astype(dtype) for shape in shapes]


def by_loops(q, k, v, key_vectors, value_vectors, visible):
    """The equations, one query at a time; `visible` [B, T, S]."""
    y, weights = np.zeros(q.shape), np.zeros((BATCH, HEADS, QUERIES, KEYS))
    share = HEADS // k.shape[2]
    for b, t, h in np.ndindex(BATCH, QUERIES, HEADS):
        seen = np.flatnonzero(visible[b, t])
        if len(seen):
            scores = (k[b, seen, h // share] + key_vectors[t, seen]) @ q[b, t, h] / WIDTH**0.5
            found = np.exp(scores) / np.exp(scores).sum()
            y[b, t, h] = found @ (v[b, seen, h // share] + value_vectors[t, seen])
            weights[b, h, t, seen] = found
    return y, weights


@pytest.mark.parametrize("key_heads", [HEADS, 2])
@pytest.mark.parametrize("causal", [False, True])
def test_equals_the_equations_with_masks_and_a_first_query(key_heads, causal):
    mask = np.random.default_rng(1).random((BATCH, 1, QUERIES, KEYS)) < 0.7
    mask[0, 0, 1] = False
    past = np.arange(KEYS)[None] <= 1 + np.arange(QUERIES)[:, None]
    with jax.enable_x64(True):
        given = arrays(key_heads)
        found = jax.jit(lambda *x: attend_relative(*x, attention_mask=mask, causal=causal, first_query=1))(*given)
        expected = by_loops(*given, mask[:, 0] & (past | (not causal)))
        for ours, theirs in zip(found, expected, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-12)


def test_without_vectors_it_is_attention_in_values_gradients_and_dropout():
    q, k, v, *_ = arrays(dtype=np.float32)
    nothing = np.zeros((QUERIES, KEYS, WIDTH), np.float32)
    dropped = {"dropout_rate": 0.4, "dropout_key": jax.random.key(2), "first_row": 3}
    upstream = np.random.default_rng(3).normal(size=q.shape).astype(np.float32)

    @jax.jit
    def found_and_expected():
        """Values with their gradients, of both functions; values without dropout."""
        plain, pull = jax.vjp(lambda *x: dot_product_attention(*x, **dropped), q, k, v)
        found, pull_relative = jax.vjp(lambda *x: attend_relative(*x, nothing, nothing, **dropped)[0], q, k, v)
        kept, _ = attend_relative(q, k, v, nothing, nothing)
        return (found, *pull_relative(upstream)), (plain, *pull(upstream)), kept

    found, expected, kept = jax.device_get(found_and_expected())
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
    assert (found[0] != kept).any()


def test_gradients_equal_finite_differences():
    with jax.enable_x64(True):
        given = arrays()
        upstream = np.random.default_rng(4).normal(size=given[0].shape)

        def loss(*given):
            return (attend_relative(*given, causal=True, first_query=2)[0] * upstream).sum()

        value_and_gradients = jax.jit(jax.value_and_grad(loss, argnums=range(5)))
        for number, gradient in enumerate(jax.device_get(value_and_gradients(*given)[1])):
            direction = np.random.default_rng(number).normal(size=gradient.shape)
            ends = []
            for step in (1e-5, -1e-5):
                moved = [*given]
                moved[number] = given[number] + step * direction
                ends.append(float(value_and_gradients(*moved)[0]))
            np.testing.assert_allclose((ends[0] - ends[1]) / 2e-5, (gradient * direction).sum(), rtol=1e-6)


def test_values_and_gradients_in_bfloat16_are_near_those_in_float32():
    def loss(arrays):
        y, _ = attend_relative(*arrays)
        return (y.astype(np.float32) ** 2).sum()

    wide = arrays(dtype=np.float32)
    expected = jax.jit(jax.grad(loss))(wide)
    found = jax.jit(jax.grad(loss))([array.astype(jax.numpy.bfloat16) for array in wide])
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.dtype == jax.numpy.bfloat16
        np.testing.assert_allclose(np.asarray(ours, np.float32), theirs, atol=0.1 * np.abs(np.asarray(theirs)).max())


def test_vectors_of_other_shapes_are_refused():
    *given, key_vectors, value_vectors = arrays(dtype=np.float32)
    message = "key_vectors and value_vectors [T, S, K]"
    with pytest.raises(ValueError, match=re.escape(message)):
        attend_relative(*given, key_vectors[:, :4], value_vectors)
    with pytest.raises(ValueError, match="value_vectors"):
        attend_relative(*given, key_vectors, value_vectors.astype(int))
