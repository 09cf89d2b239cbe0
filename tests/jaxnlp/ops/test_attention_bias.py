"""A bias on the scores of attention, and queries that begin at a later position than the keys."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from jax.test_util import check_grads

from jaxnlp.ops.attention import QUERY_BLOCK, dot_product_attention
from tests.jaxnlp.ops.attention_helpers import (
    BATCH,
    BY_HAND,
    HEADS,
    IMPLEMENTATIONS,
    KEYS,
    QUERIES,
    SEVERAL_BLOCKS,
    STATIC,
    WIDTH,
    compiled_attend,
    compiled_weights,
    random_inputs,
    random_mask,
    random_upstream,
)

pytestmark = pytest.mark.sweep


@functools.partial(jax.jit, static_argnames=(*STATIC, "first_query"))
def values_and_gradients(q, k, v, bias, upstream, **settings):
    """As the helper of that name, with the gradient of the bias last."""
    y, vjp = jax.vjp(lambda q, k, v, bias: dot_product_attention(q, k, v, bias=bias, **settings), q, k, v, bias)
    return y, vjp(upstream)


def random_bias(shape=(BATCH, HEADS, QUERIES, KEYS), dtype=np.float32):
    return np.random.default_rng(4).normal(size=shape).astype(dtype)


@pytest.mark.parametrize("shape", [(BATCH, HEADS, QUERIES, KEYS), (1, HEADS, QUERIES, KEYS), (BATCH, 1, 1, KEYS)])
def test_values_and_gradients_equal_those_of_pytorch(shape):
    inputs, bias = random_inputs(), random_bias(shape)
    upstream = random_upstream(inputs[0])
    leaves = [torch.tensor(x, requires_grad=True) for x in (*inputs, bias)]
    q, k, v = (x.transpose(1, 2) for x in leaves[:3])
    theirs = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=leaves[3]).transpose(1, 2)
    theirs.backward(torch.tensor(upstream))

    ours, gradients = values_and_gradients(*inputs, bias, upstream)
    np.testing.assert_allclose(ours, theirs.detach(), atol=2e-6)
    for gradient, leaf in zip(gradients, leaves, strict=True):
        np.testing.assert_allclose(gradient, leaf.grad, atol=5e-6)


@pytest.mark.sweep(1)
@pytest.mark.parametrize(
    ("letters", "settings", "sizes"),
    [
        ("BHTS", {}, {}),
        ("1HTS", {"dropout_rate": 0.3}, {}),
        ("B11S", {"causal": True, "masked": True}, {}),
        ("1H1S", {"masked": True}, {}),
        ("B1T1", {"causal": True}, {}),
        ("1111", {}, {}),
        ("1HTS", {"scale": 0.3, "first_query": 3}, {"causal": True, "heads": 4, "key_heads": 2}),
        ("BHTS", {"causal": True}, {"queries": SEVERAL_BLOCKS, "keys": SEVERAL_BLOCKS, "batch": 1}),
        ("1H1S", {"causal": True, "dropout_rate": 0.2}, {"queries": SEVERAL_BLOCKS, "keys": SEVERAL_BLOCKS + 9}),
        ("11T1", {"causal": True, "first_query": 7}, {"queries": SEVERAL_BLOCKS, "keys": SEVERAL_BLOCKS, "batch": 1}),
    ],
    ids=str,
)
def test_hand_derived_gradient_equals_autodiff(letters, settings, sizes):
    settings, sizes = dict(settings), dict(sizes)
    settings["causal"] = sizes.pop("causal", settings.get("causal", False))
    with jax.enable_x64(True):
        q, k, v = random_inputs(**sizes, dtype=np.float64)
        whole = dict(zip("BHTS", (q.shape[0], q.shape[2], q.shape[1], k.shape[1]), strict=True))
        bias = random_bias([1 if letter == "1" else whole[letter] for letter in letters], np.float64)
        if settings.pop("masked", False):
            settings["attention_mask"] = np.random.default_rng(1).random(tuple(whole.values())) < 0.6
        if "dropout_rate" in settings:
            settings["dropout_key"] = jax.random.key(7)
        upstream = random_upstream(q)
        found, expected = (
            jax.tree.leaves(values_and_gradients(q, k, v, bias, upstream, **settings, implementation=implementation))
            for implementation in IMPLEMENTATIONS
        )
    for ours, autodiff, like in zip(found, expected, [q, q, k, v, bias], strict=True):
        assert (ours.shape, ours.dtype) == (like.shape, np.float64)
        # A bias that is the same for all keys has no gradient except that of rounding.
        np.testing.assert_allclose(ours, autodiff, rtol=0.0, atol=1e-10 * max(np.abs(autodiff).max(), 1e-4))


def test_gradient_equals_finite_differences():
    with jax.enable_x64(True):
        inputs = (*random_inputs(dtype=np.float64), random_bias((1, HEADS, QUERIES, KEYS), np.float64))
        settings = {"attention_mask": random_mask(), "causal": True, "first_query": 1, "implementation": BY_HAND}
        function = jax.jit(lambda q, k, v, bias: dot_product_attention(q, k, v, bias=bias, **settings))
        check_grads(function, inputs, order=1, modes=["rev"], atol=1e-7, rtol=1e-7)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_a_very_negative_bias_hides_keys_as_a_mask_does(implementation):
    inputs, mask = random_inputs(), random_mask()
    upstream = random_upstream(inputs[0])
    hidden, shown = np.where(mask, np.float32(0.0), np.float32(-1e9)), np.zeros_like(mask, np.float32)
    found = values_and_gradients(*inputs, hidden, upstream, implementation=implementation)
    expected = values_and_gradients(*inputs, shown, upstream, attention_mask=mask, implementation=implementation)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), found, expected)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_fully_masked_rows_stay_zero_and_give_the_bias_no_gradient(implementation):
    q, k, v = random_inputs()
    mask = random_mask()
    mask[1, :, 2] = False
    bias = np.float32(1e4) * random_bias()
    y, gradients = jax.device_get(
        values_and_gradients(q, k, v, bias, np.ones_like(q), attention_mask=mask, implementation=implementation)
    )
    np.testing.assert_array_equal(y[1, 2], 0.0)
    np.testing.assert_array_equal(gradients[3][~mask], 0.0)
    assert all(np.isfinite(gradient).all() for gradient in gradients)


@pytest.mark.thorough
def test_the_gradient_of_a_bfloat16_bias_is_bfloat16_and_summed_in_float32():
    halves = [x.astype(jnp.bfloat16) for x in (*random_inputs(queries=40), random_bias((1, HEADS, 1, KEYS)))]
    upstream = random_upstream(np.zeros(halves[0].shape, np.float32)).astype(jnp.bfloat16)
    gradient = np.asarray(values_and_gradients(*halves, upstream)[1][3])
    exact = np.asarray(values_and_gradients(*(x.astype(np.float32) for x in (*halves, upstream)))[1][3])
    assert gradient.dtype == jnp.bfloat16
    assert np.linalg.norm(gradient.astype(np.float32) - exact) < 1e-2 * np.linalg.norm(exact)


def test_no_bias_equals_a_bias_of_zero_and_is_another_program():
    inputs = random_inputs()
    zero = jnp.zeros((1, 1, 1, 1))
    np.testing.assert_array_equal(compiled_attend(*inputs, bias=zero), compiled_attend(*inputs))
    programs = [
        str(jax.make_jaxpr(functools.partial(dot_product_attention, bias=bias))(*inputs)) for bias in (None, zero)
    ]
    assert len(programs[0]) < len(programs[1])


@pytest.mark.sweep(1)
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("length", "first"), [(KEYS, 3), (SEVERAL_BLOCKS, 70)])
def test_queries_after_cached_keys_see_what_they_see_in_the_whole_sequence(length, first, masked, implementation):
    q, k, v = random_inputs(queries=length, keys=length, batch=2)
    bias = random_bias((1, HEADS, length, length))
    mask = random_mask((2, 1, 1, length)) if masked else None
    upstream = random_upstream(q)
    upstream[:, :first] = 0.0
    settings = {"attention_mask": mask, "causal": True, "implementation": implementation}
    y, whole = jax.device_get(values_and_gradients(q, k, v, bias, upstream, **settings))
    later = (q[:, first:], k, v, bias[:, :, first:], upstream[:, first:])
    for first_query in (first, np.int64(first), jnp.asarray(first)):
        found, gradients = jax.jit(
            lambda *arrays, first_query=first_query: values_and_gradients.__wrapped__(
                *arrays, first_query=first_query, **settings
            )
        )(*later)
        np.testing.assert_allclose(found, y[:, first:], atol=2e-6)
        expected = (whole[0][:, first:], whole[1], whole[2], whole[3][:, :, first:])
        for gradient, wanted in zip(gradients, expected, strict=True):
            np.testing.assert_allclose(gradient, wanted, atol=5e-6)


def test_one_program_serves_every_traced_first_query():
    q, k, v = random_inputs(queries=1)
    whole = np.broadcast_to(q, (BATCH, KEYS, HEADS, WIDTH))
    expected = np.asarray(compiled_attend(whole, k, v, causal=True))
    step = jax.jit(lambda first_query: dot_product_attention(q, k, v, causal=True, first_query=first_query))
    for position in range(KEYS):
        np.testing.assert_allclose(np.asarray(step(position))[:, 0], expected[:, position], atol=1e-6)
    assert step._cache_size() == 1


@pytest.mark.thorough
def test_a_first_query_that_is_mapped_gives_what_each_call_gives():
    q, k, v = random_inputs(queries=2)

    def loss(k, first_query):
        return jnp.sin(dot_product_attention(q, k, v, causal=True, first_query=first_query)).sum()

    firsts = np.arange(3)
    found = jax.jit(jax.vmap(jax.grad(loss), in_axes=(None, 0)))(k, firsts)
    gradient = jax.jit(jax.grad(loss))
    np.testing.assert_allclose(found, np.stack([gradient(k, first) for first in firsts]), atol=1e-6)


def test_a_first_query_that_tracing_knows_leaves_later_keys_out_of_the_products():
    length = 2 * QUERY_BLOCK
    inputs = random_inputs(queries=length, keys=2 * length, batch=1)

    def kept(first_query):
        def program(*inputs):
            return jax.vjp(functools.partial(dot_product_attention, causal=True, first_query=first_query), *inputs)

        _, vjp = jax.eval_shape(program, *inputs)
        return [x.shape for x in jax.tree.leaves(vjp) if x.size > inputs[1].size]

    assert kept(10) == [(1, HEADS, QUERY_BLOCK, QUERY_BLOCK * block + 10) for block in (1, 2)]
    assert kept(jnp.asarray(10)) == [(1, HEADS, length, 2 * length)]


def test_without_causal_the_first_query_changes_nothing():
    inputs = random_inputs()
    np.testing.assert_array_equal(compiled_attend(*inputs, first_query=3), compiled_attend(*inputs))


def test_weights_to_look_at_have_bias_and_first_query():
    q, k, v = random_inputs()
    settings = {"bias": random_bias(), "attention_mask": random_mask(), "causal": True, "first_query": 2}
    weights = np.asarray(compiled_weights(q, k, **settings))
    np.testing.assert_array_equal(weights > 0.0, random_mask() & np.tri(QUERIES, KEYS, 2, dtype=bool))
    mixed = np.einsum("bhts,bshk->bthk", weights, v)
    np.testing.assert_allclose(mixed, compiled_attend(q, k, v, **settings), atol=1e-6)


@pytest.mark.parametrize("shape", [(2, HEADS, QUERIES, KEYS), (BATCH, 1, 1, KEYS - 1), (QUERIES, KEYS)], ids=str)
def test_a_bias_that_does_not_fit_is_named(shape):
    message = f"expected a bias that broadcasts to {(BATCH, HEADS, QUERIES, KEYS)}, got {shape}"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        dot_product_attention(*random_inputs(), bias=np.ones(shape, np.float32))


@pytest.mark.parametrize("dtype", [bool, np.int32])
def test_a_bias_that_is_not_float_is_refused(dtype):
    with pytest.raises(ValueError, match=r"^expected float arrays, got bias (bool|int32)$"):
        dot_product_attention(*random_inputs(), bias=np.ones((1, 1, QUERIES, KEYS), dtype))


@pytest.mark.parametrize(
    ("first_query", "message"),
    [
        (-1, "first_query must be at least 0, got -1"),
        (0.5, "first_query must be one int, got float32 of shape ()"),
        (np.arange(BATCH), "first_query must be one int, got int32 of shape (3,)"),
    ],
    ids=str,
)
def test_a_first_query_that_is_no_position_is_refused(first_query, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        dot_product_attention(*random_inputs(), causal=True, first_query=first_query)
