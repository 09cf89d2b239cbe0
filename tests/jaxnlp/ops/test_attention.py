import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from jaxnlp.ops.attention import QUERY_BLOCK, attention_weights, dot_product_attention
from jaxnlp.typing import BATCH_AXIS
from tests.jaxnlp.ops.attention_helpers import (
    BATCH,
    BY_AUTODIFF,
    BY_HAND,
    HEADS,
    IMPLEMENTATIONS,
    KEYS,
    QUERIES,
    SEVERAL_BLOCKS,
    WIDTH,
    compiled_attend,
    compiled_weights,
    random_inputs,
    random_mask,
    random_upstream,
    values_and_gradients,
)

pytestmark = pytest.mark.sweep


def attend_by_loops(q, k, v, mask, scale):
    """One query at a time, in float64."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    y = np.zeros(q.shape)
    for b, t, h in np.ndindex(*q.shape[:3]):
        seen = np.flatnonzero(mask[b, h, t])
        if len(seen):
            scores = np.array([q[b, t, h] @ k[b, s, h] * scale for s in seen])
            unnormalised = np.exp(scores - scores.max())
            y[b, t, h] = unnormalised @ v[b, seen, h] / unnormalised.sum()
    return y


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("scale", [None, 0.3])
def test_equals_a_loop_over_queries(implementation, scale):
    q, k, v = random_inputs()
    mask = random_mask()
    found = compiled_attend(q, k, v, attention_mask=mask, scale=scale, implementation=implementation)
    np.testing.assert_allclose(found, attend_by_loops(q, k, v, mask, scale or WIDTH**-0.5), atol=1e-6)


@pytest.mark.parametrize("keys", [SEVERAL_BLOCKS - 40, SEVERAL_BLOCKS, SEVERAL_BLOCKS + 40])
def test_blocks_of_queries_equal_a_loop_over_queries(keys):
    q, k, v = random_inputs(queries=SEVERAL_BLOCKS, keys=keys, batch=1)
    past = np.broadcast_to(np.tri(SEVERAL_BLOCKS, keys, dtype=bool), (1, HEADS, SEVERAL_BLOCKS, keys))
    found = compiled_attend(q, k, v, causal=True, implementation=BY_HAND)
    np.testing.assert_allclose(found, attend_by_loops(q, k, v, past, WIDTH**-0.5), atol=1e-6)


@pytest.mark.optimized
@pytest.mark.parametrize("kind", ["all", "mask", "causal"])
@pytest.mark.parametrize(("queries", "keys"), [(5, 5), (5, 7), (7, 5), (QUERY_BLOCK + 7, QUERY_BLOCK + 30)])
def test_values_and_gradients_equal_those_of_pytorch(kind, queries, keys):
    inputs = random_inputs(queries=queries, keys=keys)
    upstream = random_upstream(inputs[0])
    mask = random_mask((BATCH, HEADS, queries, keys)) if kind == "mask" else None

    ours, gradients = values_and_gradients(*inputs, upstream, attention_mask=mask, causal=kind == "causal")
    leaves = [torch.tensor(x, requires_grad=True) for x in inputs]
    theirs = torch.nn.functional.scaled_dot_product_attention(
        *(x.transpose(1, 2) for x in leaves),
        attn_mask=None if mask is None else torch.tensor(mask),
        is_causal=kind == "causal",
    ).transpose(1, 2)
    theirs.backward(torch.tensor(upstream))

    np.testing.assert_allclose(ours, theirs.detach(), atol=2e-6)
    for gradient, leaf in zip(gradients, leaves, strict=True):
        np.testing.assert_allclose(gradient, leaf.grad, atol=5e-6)


def test_causal_narrows_a_mask_that_is_given_with_it():
    q, k, v = random_inputs()
    mask = random_mask()
    both = mask & np.tri(QUERIES, KEYS, dtype=bool)
    assert (both != mask).any()
    found = compiled_attend(q, k, v, attention_mask=mask, causal=True)
    np.testing.assert_allclose(found, attend_by_loops(q, k, v, both, WIDTH**-0.5), atol=1e-6)


@pytest.mark.thorough
@pytest.mark.parametrize(("length", "changed_position"), [(KEYS, 4), (SEVERAL_BLOCKS, 70)])
def test_later_keys_and_values_do_not_change_earlier_queries_when_causal(length, changed_position):
    q, k, v = random_inputs(queries=length, keys=length)
    changed_k, changed_v = k.copy(), v.copy()
    changed_k[:, changed_position:] += 1.0
    changed_v[:, changed_position:] += 1.0
    before = np.asarray(compiled_attend(q, k, v, causal=True))
    after = np.asarray(compiled_attend(q, changed_k, changed_v, causal=True))
    np.testing.assert_array_equal(before[:, :changed_position], after[:, :changed_position])
    assert np.abs(before[:, changed_position:] - after[:, changed_position:]).max(axis=-1).min() > 1e-4


def test_masked_keys_do_not_change_the_result():
    q, k, v = random_inputs()
    visible = np.array([True, True, False, True, False, False, True])
    mask = np.broadcast_to(visible, (1, 1, QUERIES, KEYS))
    noisy_k, noisy_v = (np.where(visible[:, None, None], x, np.float32(1e6)) for x in (k, v))
    np.testing.assert_array_equal(
        compiled_attend(q, k, v, attention_mask=mask), compiled_attend(q, noisy_k, noisy_v, attention_mask=mask)
    )


def test_order_of_keys_does_not_matter():
    q, k, v = random_inputs()
    order = np.random.default_rng(3).permutation(KEYS)
    np.testing.assert_allclose(compiled_attend(q, k, v), compiled_attend(q, k[:, order], v[:, order]), atol=1e-6)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    "shape",
    [(1, 1, QUERIES, KEYS), (BATCH, 1, QUERIES, KEYS), (1, HEADS, QUERIES, KEYS), (BATCH, 1, 1, KEYS), (1, 1, 1, KEYS)],
    ids=str,
)
def test_mask_of_one_example_head_or_query_serves_all(shape, causal):
    q, k, v = random_inputs()
    mask = random_mask(shape)
    whole = np.broadcast_to(mask, (BATCH, HEADS, QUERIES, KEYS)) & (np.tri(QUERIES, KEYS, dtype=bool) | (not causal))
    found = compiled_attend(q, k, v, attention_mask=mask, causal=causal)
    np.testing.assert_allclose(found, attend_by_loops(q, k, v, whole, WIDTH**-0.5), atol=1e-6)


def test_mask_of_one_key_hides_whole_queries():
    q, k, v = random_inputs()
    mask = np.random.default_rng(1).random((BATCH, 1, QUERIES, 1)) < 0.6
    assert 0 < mask.sum() < mask.size
    expected = np.where(mask.swapaxes(1, 2), np.asarray(compiled_attend(q, k, v)), 0.0)
    np.testing.assert_allclose(compiled_attend(q, k, v, attention_mask=mask), expected, atol=1e-6)


@pytest.mark.sweep(1)
@pytest.mark.parametrize(
    ("implementation", "heads", "key_heads"), [(BY_HAND, 6, 2), (BY_HAND, 4, 1), (BY_AUTODIFF, 6, 3)]
)
def test_fewer_key_heads_equal_repeated_ones(implementation, heads, key_heads):
    group = heads // key_heads
    q, k, v = random_inputs(heads=heads, key_heads=key_heads)
    upstream, settings = random_upstream(q), {"causal": True, "implementation": implementation}
    repeated = [x[:, :, [head // group for head in range(heads)]] for x in (k, v)]
    y, (dq, dk, dv) = values_and_gradients(q, k, v, upstream, **settings)
    whole_y, (whole_dq, *whole) = jax.device_get(values_and_gradients(q, *repeated, upstream, **settings))
    np.testing.assert_array_equal(y, whole_y)
    np.testing.assert_array_equal(dq, whole_dq)
    for gradient, of_each_head in zip((dk, dv), whole, strict=True):
        summed = np.stack([of_each_head[:, :, g * group : (g + 1) * group].sum(axis=2) for g in range(key_heads)], 2)
        np.testing.assert_allclose(gradient, summed, atol=5e-6)


@pytest.mark.optimized
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_fully_masked_row_is_zero_and_its_gradients_too(implementation):
    q, k, v = random_inputs()
    mask = random_mask()
    mask[1, :, 2] = False
    upstream = np.zeros_like(q)
    upstream[1, 2] = 1.0
    y, gradients = values_and_gradients(q, k, v, upstream, attention_mask=mask, implementation=implementation)
    y = np.asarray(y)
    np.testing.assert_array_equal(y[1, 2], 0.0)
    assert np.abs(y[1, 1]).min() > 0.0
    for gradient in gradients:
        np.testing.assert_array_equal(gradient, 0.0)


@pytest.mark.parametrize(
    ("implementation", "dtype", "causal"),
    [(BY_HAND, "float32", False), (BY_HAND, "bfloat16", True), (BY_AUTODIFF, "float32", True)],
)
def test_nothing_but_fully_masked_rows_gives_zeros_and_zero_gradients(implementation, dtype, causal):
    q, k, v = (x.astype(jnp.dtype(dtype)) for x in random_inputs())
    mask = np.zeros((BATCH, 1, 1, KEYS), bool)
    for x in jax.tree.leaves(
        values_and_gradients(
            q, k, v, np.ones_like(q), attention_mask=mask, causal=causal, implementation=implementation
        )
    ):
        np.testing.assert_array_equal(np.asarray(x, np.float32), 0.0)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_large_scores_pick_the_best_key_and_keep_gradients_finite(implementation):
    q, k, v = random_inputs()
    q, mask = np.float32(1e4) * q, random_mask()
    mask[0, 0, 0] = False
    assert np.abs(np.einsum("bthk,bshk->bhts", q, k)).max() > 1e4
    y, gradients = values_and_gradients(q, k, v, np.ones_like(q), attention_mask=mask, implementation=implementation)
    np.testing.assert_allclose(y, attend_by_loops(q, k, v, mask, WIDTH**-0.5), atol=1e-3)
    for gradient in gradients:
        assert np.isfinite(gradient).all()


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_a_single_key_gives_its_value(implementation):
    q, k, v = random_inputs(queries=1, keys=1)
    np.testing.assert_array_equal(compiled_attend(q, k, v, causal=True, implementation=implementation), v)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("sizes", [{"batch": 0}, {"queries": 0}, {"keys": 0}], ids=lambda sizes: next(iter(sizes)))
def test_nothing_to_attend_from_or_to_gives_zeros_of_the_right_shape(sizes, causal):
    inputs = random_inputs(**sizes)
    y, gradients = values_and_gradients(*inputs, np.ones_like(inputs[0]), causal=causal)
    for found, like in zip((y, *gradients), (inputs[0], *inputs), strict=True):
        np.testing.assert_array_equal(found, np.zeros_like(like), strict=True)


@pytest.mark.thorough
@pytest.mark.optimized
@pytest.mark.parametrize(
    ("implementation", "length", "settings"),
    [
        (BY_HAND, 9, {"scale": 0.3}),
        (BY_HAND, SEVERAL_BLOCKS, {"causal": True}),
        (BY_HAND, SEVERAL_BLOCKS, {"dropout_rate": 0.3}),
        (BY_AUTODIFF, 9, {"dropout_rate": 0.3}),
    ],
    ids=["scale", "blocks", "dropout", "xla"],
)
def test_bfloat16_stays_bfloat16_and_near_float32(implementation, length, settings):
    halves = [x.astype(jnp.bfloat16) for x in random_inputs(queries=length, keys=length, width=16)]
    halves.append(random_upstream(np.zeros(halves[0].shape, np.float32)).astype(jnp.bfloat16))
    settings = settings | {"dropout_key": jax.random.key(0), "implementation": implementation}
    found = values_and_gradients(*halves, **settings)
    exact = values_and_gradients(*(x.astype(np.float32) for x in halves), **settings)
    for ours, expected in zip(jax.tree.leaves(found), jax.tree.leaves(exact), strict=True):
        assert ours.dtype == jnp.bfloat16
        difference = np.asarray(ours, np.float32) - np.asarray(expected)
        assert 0.0 < np.linalg.norm(difference) < 6e-3 * np.linalg.norm(expected)


@pytest.mark.thorough
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_factors_of_scale_and_dropout_are_not_rounded_to_bfloat16(implementation):
    # Both are 1 + 2^-8, which bfloat16 rounds to 1: a result that used the rounded one would be 0.4 % too small.
    factor = 1.0 + 2.0**-8
    halves = [x.astype(jnp.bfloat16) for x in random_inputs(queries=40, keys=40, heads=4, width=16)]
    upstream = random_upstream(np.zeros(halves[0].shape, np.float32)).astype(jnp.bfloat16)
    settings = {
        "scale": factor,
        "dropout_rate": 1.0 - 1.0 / factor,
        "dropout_key": jax.random.key(0),
        "implementation": implementation,
    }
    found = values_and_gradients(*halves, upstream, **settings)
    exact = values_and_gradients(*(x.astype(np.float32) for x in (*halves, upstream)), **settings)
    for ours, expected in zip(jax.tree.leaves(found), jax.tree.leaves(exact), strict=True):
        ratio = np.vdot(np.float64(ours), expected) / np.vdot(np.float64(expected), expected)
        assert abs(ratio - 1.0) < 1e-3


@pytest.mark.optimized
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_bfloat16_softmax_is_taken_in_float32(implementation):
    # The normaliser of 257 equal scores is 257, which bfloat16 rounds to 256; 1 / 257 it can represent.
    zeros = np.zeros((1, 257, 1, 1), jnp.bfloat16)
    one = zeros.copy()
    one[0, 0] = 1.0
    found = compiled_attend(zeros[:, :1], zeros, one, implementation=implementation)
    np.testing.assert_allclose(np.asarray(found, np.float64).item(), 1 / 257, rtol=1e-4)


@pytest.mark.thorough
@pytest.mark.parametrize(("implementation", "causal"), [(BY_HAND, True), (BY_AUTODIFF, False)])
def test_dropout_draws_what_the_whole_batch_draws_for_the_same_rows(implementation, causal):
    inputs = random_inputs(batch=4)
    upstream = random_upstream(inputs[0])
    settings = {
        "dropout_rate": 0.5,
        "dropout_key": jax.random.key(5),
        "causal": causal,
        "implementation": implementation,
    }

    def of_half(first_row):
        halves = (x[2:] for x in (*inputs, upstream))
        return jax.tree.leaves(values_and_gradients(*halves, first_row=first_row, **settings))

    whole = jax.device_get(jax.tree.leaves(values_and_gradients(*inputs, upstream, **settings)))
    for half, other, expected in zip(of_half(2), of_half(0), whole, strict=True):
        np.testing.assert_allclose(half, expected[2:], atol=1e-6)
        assert not np.allclose(other, expected[2:])


@pytest.mark.thorough
@pytest.mark.parametrize("shards", ["one_program", "one_each"])
def test_eight_devices_give_what_one_gives(devices, shards):
    inputs = random_inputs(batch=16)
    upstream = random_upstream(inputs[0])
    settings = {"causal": True, "dropout_rate": 0.5, "dropout_key": jax.random.key(5)}
    mesh, of_the_batch = jax.sharding.Mesh(np.array(devices), (BATCH_AXIS,)), jax.P(BATCH_AXIS)

    def of_a_shard(q, k, v, upstream):
        first_row = jax.lax.axis_index(BATCH_AXIS) * len(q)
        return values_and_gradients(q, k, v, upstream, first_row=first_row, **settings)

    if shards == "one_program":
        sharded = jax.device_put([*inputs, upstream], jax.NamedSharding(mesh, of_the_batch))
        found = values_and_gradients(*sharded, **settings)
    else:
        by_shards = jax.shard_map(of_a_shard, mesh=mesh, in_specs=of_the_batch, out_specs=of_the_batch)
        found = jax.jit(by_shards)(*inputs, upstream)
    expected = values_and_gradients(*inputs, upstream, **settings)
    for x, wanted in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert {shard.data.shape[0] for shard in x.addressable_shards} == {2}
        np.testing.assert_allclose(x, wanted, atol=1e-6)


def test_without_a_key_nothing_is_dropped():
    inputs = random_inputs()
    np.testing.assert_array_equal(compiled_attend(*inputs, dropout_rate=0.5), compiled_attend(*inputs))


@pytest.mark.thorough
def test_eager_calls_equal_compiled_ones():
    inputs, settings = random_inputs(), {"causal": True, "dropout_rate": 0.3, "dropout_key": jax.random.key(0)}
    np.testing.assert_allclose(
        dot_product_attention(*inputs, **settings), compiled_attend(*inputs, **settings), atol=1e-6
    )


@pytest.mark.parametrize(
    ("q", "k", "v"),
    [
        ((2, 3, 2, 4), (2, 5, 2, 4), (2, 6, 2, 4)),
        ((2, 3, 2, 4), (3, 5, 2, 4), (3, 5, 2, 4)),
        ((2, 3, 4, 4), (2, 5, 3, 4), (2, 5, 3, 4)),
        ((2, 3, 1, 4), (2, 5, 2, 4), (2, 5, 2, 4)),
        ((2, 3, 2, 4), (2, 5, 2, 8), (2, 5, 2, 8)),
        ((3, 2, 4), (5, 2, 4), (5, 2, 4)),
        ((2, 3, 2, 4), (5, 2, 4), (5, 2, 4)),
        ((2, 3, 2, 4), (2, 5, 0, 4), (2, 5, 0, 4)),
    ],
    ids=["values", "batch", "heads", "more_key_heads", "width", "no_batch", "no_batch_of_keys", "no_key_head"],
)
def test_shapes_that_do_not_fit_are_named(q, k, v):
    message = f"expected q [B, T, H, K] and k, v [B, S, G, K] with H divisible by G, got q {q}, k {k}, v {v}"
    with pytest.raises(ValueError, match=re.escape(message)):
        dot_product_attention(*(np.zeros(shape, np.float32) for shape in (q, k, v)))


@pytest.mark.parametrize("name", ["q", "k", "v"])
def test_integers_are_refused(name):
    inputs = dict(zip("qkv", random_inputs(), strict=True))
    inputs[name] = inputs[name].astype(np.int32)
    with pytest.raises(ValueError, match=f"^expected float arrays, got .*{name} int32"):
        dot_product_attention(**inputs)


@pytest.mark.parametrize("key", [None, 0])
@pytest.mark.parametrize("rate", [-0.1, 1.0, 1.5, float("nan")])
def test_dropout_rates_outside_their_interval_are_named_also_without_a_key(rate, key):
    message = f"dropout rate must be in [0, 1), got {rate}"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        dot_product_attention(
            *random_inputs(), dropout_rate=rate, dropout_key=None if key is None else jax.random.key(key)
        )


@pytest.mark.parametrize("implementation", ["auto", "vjp"])
def test_a_scale_that_is_traced_is_refused_by_all_but_autodiff(implementation):
    inputs = random_inputs()
    message = f"implementation={implementation!r} takes a scale that is a number, got a traced array; multiply q by it"
    with pytest.raises(TypeError, match=f"^{re.escape(message)}"):
        jax.jit(lambda scale: dot_product_attention(*inputs, scale=scale, implementation=implementation))(0.3)
    found = jax.jit(lambda scale: dot_product_attention(*inputs, scale=scale, implementation=BY_AUTODIFF))(0.3)
    np.testing.assert_allclose(found, compiled_attend(*inputs, scale=0.3, implementation=BY_AUTODIFF), atol=1e-6)


@pytest.mark.parametrize(
    "shape",
    [
        (2, HEADS, QUERIES, KEYS),
        (BATCH, 3, QUERIES, KEYS),
        (BATCH, HEADS, KEYS, QUERIES),
        (BATCH, 1, 1, KEYS - 1),
        (QUERIES, KEYS),
        (BATCH, QUERIES, KEYS),
        (1, BATCH, HEADS, QUERIES, KEYS),
        (1, 1, 1),
        (BATCH, HEADS, QUERIES, KEYS, 1),
    ],
    ids=str,
)
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_masks_that_do_not_fit_are_named(implementation, shape):
    message = f"expected an attention_mask that broadcasts to {(BATCH, HEADS, QUERIES, KEYS)}, got {shape}"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        dot_product_attention(*random_inputs(), attention_mask=np.ones(shape, bool), implementation=implementation)


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_masks_that_are_not_boolean_are_named(dtype):
    message = f"attention_mask must be bool, got {dtype}; see masks.from_additive"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        dot_product_attention(*random_inputs(), attention_mask=np.ones((1, 1, QUERIES, KEYS), dtype))


@pytest.mark.parametrize(("key_heads", "causal", "scale"), [(None, False, None), (1, True, 0.3)])
def test_weights_to_look_at_are_those_that_mix(key_heads, causal, scale):
    q, k, v = random_inputs(key_heads=key_heads)
    mask = random_mask()
    mask[0, 1, 2] = False
    weights = np.asarray(compiled_weights(q, k, attention_mask=mask, causal=causal, scale=scale))
    assert weights.shape == (BATCH, HEADS, QUERIES, KEYS)
    visible = mask & np.tri(QUERIES, KEYS, dtype=bool) if causal else mask
    np.testing.assert_array_equal(weights > 0.0, visible)
    np.testing.assert_allclose(weights.sum(axis=-1), visible.any(axis=-1), atol=1e-6)
    mixed = np.einsum("bhts,bshk->bthk", weights, np.broadcast_to(v, (BATCH, KEYS, HEADS, WIDTH)))
    expected = compiled_attend(q, k, v, attention_mask=mask, causal=causal, scale=scale)
    np.testing.assert_allclose(mixed, expected, atol=1e-6)


def test_weights_to_look_at_of_shapes_that_do_not_fit_are_refused():
    q, k, _ = random_inputs()
    with pytest.raises(ValueError, match=re.escape("expected q [B, T, H, K]")):
        attention_weights(q, k[..., :-1])
