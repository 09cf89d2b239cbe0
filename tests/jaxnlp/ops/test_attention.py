import functools
import itertools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from jax.test_util import check_grads

from jaxnlp.ops.attention import MAX_QUERY_BLOCKS, QUERY_BLOCK, attend, attention_weights
from jaxnlp.ops.dropout import keep_mask
from jaxnlp.typing import BATCH_AXIS

BATCH, QUERIES, KEYS, HEADS, WIDTH = 3, 5, 7, 2, 4
BY_HAND, BY_AUTODIFF = IMPLEMENTATIONS = ("vjp", "xla")
SEVERAL_BLOCKS = 2 * QUERY_BLOCK + 5
LARGE_BLOCKS = MAX_QUERY_BLOCKS * QUERY_BLOCK + 3

STATIC = ("causal", "scale", "dropout_rate", "implementation")
compiled_attend = jax.jit(attend, static_argnames=STATIC)


@functools.partial(jax.jit, static_argnames=STATIC)
def values_and_gradients(q, k, v, upstream, **settings):
    y, vjp = jax.vjp(lambda q, k, v: attend(q, k, v, **settings), q, k, v)
    return y, vjp(upstream)


def random_inputs(
    *, queries=QUERIES, keys=KEYS, batch=BATCH, heads=HEADS, key_heads=None, width=WIDTH, dtype=np.float32
):
    generator = np.random.default_rng(0)
    key_shape = (batch, keys, key_heads or heads, width)
    return [generator.normal(size=shape).astype(dtype) for shape in ((batch, queries, heads, width), *2 * [key_shape])]


def random_upstream(like):
    return np.random.default_rng(2).normal(size=like.shape).astype(like.dtype)


def random_mask(shape=(BATCH, HEADS, QUERIES, KEYS)):
    mask = np.random.default_rng(1).random(shape) < 0.6
    mask[..., 0] = True  # every query sees something
    return mask


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


def relative_error(found, expected):
    found, expected = (np.asarray(x, np.float64) for x in (found, expected))
    assert found.shape == expected.shape
    return np.abs(found - expected).max() / np.abs(expected).max()


def case(name, *, mask=None, causal=False, scale=None, dropout_rate=0.0, optimized=False, **sizes):
    """`mask` has a letter for each whole axis and 1 for those of one element."""
    settings = {"causal": causal, "scale": scale, "dropout_rate": dropout_rate}
    return pytest.param(sizes, mask, settings, id=name, marks=[pytest.mark.optimized] if optimized else [])


def arguments_of(sizes, mask, settings):
    """Inputs in float64 and keywords, to be called where float64 is enabled; some rows see nothing."""
    inputs = random_inputs(**sizes, dtype=np.float64)
    keywords = dict(settings)
    if mask is not None:
        whole = dict(zip("BHTS", (*inputs[0].shape[::2], *(x.shape[1] for x in inputs[:2])), strict=True))
        shape = [1 if axis == "1" else whole[axis] for axis in mask]
        keywords["attention_mask"] = np.random.default_rng(1).random(shape) < 0.6
        assert keywords["attention_mask"].any()
    if settings["dropout_rate"] > 0.0:
        keywords["dropout_key"] = jax.random.key(7)
    return inputs, keywords


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


@pytest.mark.parametrize(
    ("sizes", "mask", "settings"),
    [
        case("one_query", queries=1, mask="BHTS"),
        case("one_key", keys=1, mask="BHTS"),
        case("one_of_each", queries=1, keys=1),
        case("more_keys", scale=-1.7),
        case("more_queries", queries=7, keys=4),
        case("mask", mask="BHTS"),
        case("mask_of_all_examples", mask="11TS", dropout_rate=0.3),
        case("mask_of_all_queries", mask="B11S", scale=0.3),
        case("mask_of_all_keys", mask="B1T1"),
        case("mask_of_all_examples_and_queries", mask="1H1S"),
        case("causal", causal=True),
        case("causal_and_more_keys", causal=True, keys=9),
        case("causal_and_more_queries", causal=True, queries=9, keys=4),
        case("causal_and_mask", causal=True, mask="BHTS", dropout_rate=0.4, optimized=True),
        case("causal_and_mask_of_all_keys", causal=True, mask="B1T1"),
        case("dropout", dropout_rate=0.4),
        case("grouped_keys", heads=6, key_heads=2, causal=True, mask="BHTS", optimized=True),
        case("one_key_head", heads=4, key_heads=1, dropout_rate=0.2),
        case("blocks", causal=True, queries=SEVERAL_BLOCKS, keys=SEVERAL_BLOCKS, scale=0.3, optimized=True),
        case("whole_blocks", causal=True, queries=2 * QUERY_BLOCK, keys=2 * QUERY_BLOCK),
        case("blocks_and_more_keys", causal=True, queries=SEVERAL_BLOCKS, keys=SEVERAL_BLOCKS + 90, mask="BHTS"),
        case("blocks_and_more_queries", causal=True, queries=SEVERAL_BLOCKS, keys=50, mask="11TS", dropout_rate=0.1),
        case("blocks_and_padding", causal=True, queries=QUERY_BLOCK + 1, keys=QUERY_BLOCK + 1, mask="B11S"),
        case("blocks_and_one_key", causal=True, queries=SEVERAL_BLOCKS, keys=1, mask="B1T1"),
        case("blocks_and_one_key_head", causal=True, queries=100, keys=100, key_heads=1, dropout_rate=0.3),
        case("most_blocks", causal=True, queries=LARGE_BLOCKS, keys=LARGE_BLOCKS, batch=1, heads=1, dropout_rate=0.2),
    ],
)
def test_hand_derived_gradient_equals_autodiff(sizes, mask, settings):
    with jax.enable_x64(True):
        inputs, keywords = arguments_of(sizes, mask, settings)
        upstream = random_upstream(inputs[0])
        found, expected = (
            jax.tree.leaves(values_and_gradients(*inputs, upstream, **keywords, implementation=implementation))
            for implementation in IMPLEMENTATIONS
        )
    for ours, autodiff, like in zip(found, expected, [inputs[0], *inputs], strict=True):
        assert (ours.shape, ours.dtype) == (like.shape, np.float64)
        # The scores of a single key have no gradient but that of rounding.
        np.testing.assert_allclose(ours, autodiff, rtol=0.0, atol=1e-10 * max(np.abs(autodiff).max(), 1e-4))


@pytest.mark.parametrize(
    ("sizes", "mask", "settings"),
    [
        case("mask", mask="BHTS", scale=0.7),
        case("causal", causal=True),
        case("grouped_keys_and_dropout", causal=True, heads=4, dropout_rate=0.4, key_heads=2, mask="B11S"),
        case("blocks", causal=True, queries=QUERY_BLOCK + 6, keys=QUERY_BLOCK + 9, batch=1, dropout_rate=0.2),
    ],
)
def test_gradient_equals_finite_differences(sizes, mask, settings):
    with jax.enable_x64(True):
        inputs, keywords = arguments_of(sizes, mask, settings)
        function = jax.jit(functools.partial(attend, **keywords, implementation=BY_HAND))
        check_grads(function, inputs, order=1, modes=["rev"], atol=1e-7, rtol=1e-7)


@pytest.mark.parametrize(("mode", "dropout_rate"), [("fwd", 0.4), ("rev", 0.0)])
def test_autodiff_gives_forward_mode_and_second_derivatives(mode, dropout_rate):
    with jax.enable_x64(True):
        inputs = random_inputs(batch=1, dtype=np.float64)
        settings = {"causal": True, "dropout_rate": dropout_rate, "dropout_key": jax.random.key(7)}
        function = jax.jit(functools.partial(attend, **settings, implementation=BY_AUTODIFF))
        check_grads(function, inputs, order=2, modes=[mode], atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize(
    "derivative",
    [lambda function, q: jax.jacfwd(function)(q), lambda function, q: jax.linearize(function, q)[1](q)],
    ids=["jacfwd", "linearize"],
)
def test_forward_mode_of_the_gradient_by_hand_is_refused_in_the_words_of_the_docstring(derivative):
    q, k, v = random_inputs()
    with pytest.raises(TypeError, match=re.escape("can't apply forward-mode autodiff (jvp)")):
        derivative(lambda q: attend(q, k, v, implementation=BY_HAND), q)


def test_causal_narrows_a_mask_that_is_given_with_it():
    q, k, v = random_inputs()
    mask = random_mask()
    both = mask & np.tri(QUERIES, KEYS, dtype=bool)
    assert (both != mask).any()
    found = compiled_attend(q, k, v, attention_mask=mask, causal=True)
    np.testing.assert_allclose(found, attend_by_loops(q, k, v, both, WIDTH**-0.5), atol=1e-6)


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
    expected = np.where(mask.swapaxes(1, 2), compiled_attend(q, k, v), 0.0)
    np.testing.assert_allclose(compiled_attend(q, k, v, attention_mask=mask), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("implementation", "heads", "key_heads"), [(BY_HAND, 6, 2), (BY_HAND, 4, 1), (BY_AUTODIFF, 6, 3)]
)
def test_fewer_key_heads_equal_repeated_ones(implementation, heads, key_heads):
    group = heads // key_heads
    q, k, v = random_inputs(heads=heads, key_heads=key_heads)
    upstream, settings = random_upstream(q), {"causal": True, "implementation": implementation}
    repeated = [x[:, :, [head // group for head in range(heads)]] for x in (k, v)]
    y, (dq, dk, dv) = values_and_gradients(q, k, v, upstream, **settings)
    whole_y, (whole_dq, *whole) = values_and_gradients(q, *repeated, upstream, **settings)
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
    np.testing.assert_array_equal(y[1, 2], 0.0)
    assert np.abs(y[1, 1]).min() > 0.0
    for gradient in gradients:
        np.testing.assert_array_equal(gradient, 0.0)


@pytest.mark.parametrize(
    ("implementation", "dtype", "causal"),
    [(BY_HAND, "float32", False), (BY_HAND, "bfloat16", True), (BY_AUTODIFF, "float32", True)],
)
def test_nothing_but_fully_masked_rows_gives_zeros_and_zero_gradients(implementation, dtype, causal):
    q, k, v = (jnp.asarray(x, dtype) for x in random_inputs())
    mask = np.zeros((BATCH, 1, 1, KEYS), bool)
    for x in jax.tree.leaves(
        values_and_gradients(q, k, v, q + 1, attention_mask=mask, causal=causal, implementation=implementation)
    ):
        np.testing.assert_array_equal(x.astype(np.float32), 0.0)


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
    halves = [jnp.asarray(x, jnp.bfloat16) for x in random_inputs(queries=length, keys=length, width=16)]
    halves.append(jnp.asarray(random_upstream(np.zeros(halves[0].shape, np.float32)), jnp.bfloat16))
    settings = settings | {"dropout_key": jax.random.key(0), "implementation": implementation}
    found = values_and_gradients(*halves, **settings)
    exact = values_and_gradients(*(x.astype(jnp.float32) for x in halves), **settings)
    for ours, expected in zip(jax.tree.leaves(found), jax.tree.leaves(exact), strict=True):
        assert ours.dtype == jnp.bfloat16
        difference = np.float32(ours) - expected
        assert 0.0 < np.linalg.norm(difference) < 6e-3 * np.linalg.norm(expected)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_factors_of_scale_and_dropout_are_not_rounded_to_bfloat16(implementation):
    # Both are 1 + 2^-8, which bfloat16 rounds to 1: a result that used the rounded one would be 0.4 % too small.
    factor = 1.0 + 2.0**-8
    halves = [jnp.asarray(x, jnp.bfloat16) for x in random_inputs(queries=40, keys=40, heads=4, width=16)]
    upstream = jnp.asarray(random_upstream(np.zeros(halves[0].shape, np.float32)), jnp.bfloat16)
    settings = {
        "scale": factor,
        "dropout_rate": 1.0 - 1.0 / factor,
        "dropout_key": jax.random.key(0),
        "implementation": implementation,
    }
    found = values_and_gradients(*halves, upstream, **settings)
    exact = values_and_gradients(*(x.astype(jnp.float32) for x in (*halves, upstream)), **settings)
    for ours, expected in zip(jax.tree.leaves(found), jax.tree.leaves(exact), strict=True):
        ratio = np.vdot(np.float64(ours), expected) / np.vdot(np.float64(expected), expected)
        assert abs(ratio - 1.0) < 1e-3


@pytest.mark.optimized
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_bfloat16_softmax_is_taken_in_float32(implementation):
    # The normaliser of 257 equal scores is 257, which bfloat16 rounds to 256; 1 / 257 it can represent.
    zeros = jnp.zeros((1, 257, 1, 1), jnp.bfloat16)
    found = compiled_attend(zeros[:, :1], zeros, zeros.at[0, 0].set(1.0), implementation=implementation)
    np.testing.assert_allclose(np.float64(found[0, 0, 0, 0]), 1 / 257, rtol=1e-4)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_dropout_uses_one_mask_forward_and_backward(implementation):
    inputs, mask, key, rate = random_inputs(), random_mask(), jax.random.key(7), 0.4
    upstream = random_upstream(inputs[0])

    def written_out(q, k, v):
        scores = jnp.einsum("bthk,bshk->bhts", q, k) * WIDTH**-0.5
        weights = jax.nn.softmax(jnp.where(mask, scores, -jnp.inf), axis=-1)
        kept = keep_mask(key, mask.shape, rate, first_row=4)
        return jnp.einsum("bhts,bshk->bthk", jnp.where(kept, weights / (1.0 - rate), 0.0), v)

    @jax.jit
    def by_autodiff(q, k, v):
        y, vjp = jax.vjp(written_out, q, k, v)
        return y, vjp(upstream)

    ours = values_and_gradients(
        *inputs,
        upstream,
        attention_mask=mask,
        dropout_rate=rate,
        dropout_key=key,
        first_row=4,
        implementation=implementation,
    )
    for found, expected in zip(jax.tree.leaves(ours), jax.tree.leaves(by_autodiff(*inputs)), strict=True):
        np.testing.assert_allclose(found, expected, atol=5e-6)


def test_dropout_is_linear_in_the_values_and_its_gradient_is_the_transposed_map():
    q, k, v = random_inputs()
    upstream = random_upstream(q)
    y, (_, _, gradient) = values_and_gradients(
        q, k, v, upstream, dropout_rate=0.4, dropout_key=jax.random.key(3), attention_mask=random_mask()
    )
    assert not np.allclose(y, compiled_attend(q, k, v, attention_mask=random_mask()))
    np.testing.assert_allclose(np.vdot(upstream, y), np.vdot(gradient, v), rtol=1e-5)


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

    whole = jax.tree.leaves(values_and_gradients(*inputs, upstream, **settings))
    for half, other, expected in zip(of_half(2), of_half(0), whole, strict=True):
        np.testing.assert_allclose(half, expected[2:], atol=1e-6)
        assert not np.allclose(other, expected[2:])


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


def test_eager_calls_equal_compiled_ones():
    inputs, settings = random_inputs(), {"causal": True, "dropout_rate": 0.3, "dropout_key": jax.random.key(0)}
    np.testing.assert_allclose(attend(*inputs, **settings), compiled_attend(*inputs, **settings), atol=1e-6)


@pytest.mark.optimized
def test_other_programs_read_the_values_of_a_compiled_call_that_is_differentiated_from_outside():
    inputs = random_inputs()
    y, vjp = jax.vjp(compiled_attend, *inputs)
    upstream = np.cos(compiled_attend(*inputs))
    np.testing.assert_allclose(jax.jit(jnp.cos)(y), upstream, atol=1e-6)
    for gradient, expected in zip(vjp(upstream), values_and_gradients(*inputs, upstream)[1], strict=True):
        np.testing.assert_allclose(jax.jit(jnp.negative)(gradient), -expected, atol=1e-6)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("transformation", ["checkpoint", "vmap_of_grad", "grad_of_vmap", "scan"])
def test_transformations_give_the_gradients_of_each_call(implementation, transformation):
    steps, length = 3, QUERY_BLOCK + 2
    generator = np.random.default_rng(0)
    stacked = [generator.normal(size=(steps, 2, length, HEADS, WIDTH)).astype(np.float32) for _ in range(3)]
    masks = random_mask((steps, 2, 1, length, length))
    keys = jax.random.split(jax.random.key(0), steps)

    def loss(inputs, mask, key):
        settings = {"attention_mask": mask, "causal": True, "dropout_rate": 0.3, "dropout_key": key}
        return jnp.sin(attend(*inputs, **settings, implementation=implementation)).sum()

    def scanned(inputs):
        return jax.lax.scan(lambda total, step: (total + loss(*step), None), jnp.float32(0), (inputs, masks, keys))[0]

    def of_each_call(gradient):
        calls = [gradient([x[step] for x in stacked], masks[step], keys[step]) for step in range(steps)]
        return jax.tree.map(lambda *parts: np.stack(parts), *calls)

    found = {
        "checkpoint": lambda: of_each_call(jax.jit(jax.grad(jax.checkpoint(loss)))),
        "vmap_of_grad": lambda: jax.jit(jax.vmap(jax.grad(loss)))(stacked, masks, keys),
        "grad_of_vmap": lambda: jax.jit(jax.grad(lambda x: jax.vmap(loss)(x, masks, keys).sum()))(stacked),
        "scan": lambda: jax.jit(jax.grad(scanned))(stacked),
    }[transformation]()
    for gradient, expected in zip(found, of_each_call(jax.jit(jax.grad(loss))), strict=True):
        np.testing.assert_allclose(gradient, expected, atol=2e-6)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize(
    ("transformation", "mapped"),
    [
        *itertools.product(["vmap", "vmap_of_grad", "grad_of_vmap"], ["q", "v", "mask", "key"]),
        ("vmap", "k"),  # the gradients are with respect to k
    ],
)
def test_transformations_that_are_not_jitted_give_the_same(implementation, mapped, transformation):
    """Each operation is then a program of its own, and only one input has the mapped axis."""
    steps = 3
    shared = dict(zip("qkv", random_inputs(), strict=True)) | {"mask": random_mask(), "key": jax.random.key(0)}
    stacked = {
        "mask": np.stack([np.roll(shared["mask"], step, axis=0) for step in range(steps)]),
        "key": jax.random.split(jax.random.key(1), steps),
    }.get(mapped)
    if stacked is None:
        stacked = np.stack([np.float32(step + 1.0) * shared[mapped] for step in range(steps)])

    def values(q, k, v, mask, key):
        settings = {"attention_mask": mask, "dropout_rate": 0.3, "dropout_key": key}
        return attend(q, k, v, **settings, implementation=implementation)

    def loss(k, varied):
        return jnp.sin(values(**(shared | {"k": k} | {mapped: varied}))).sum()

    axes = {name: 0 if name == mapped else None for name in shared}
    by_name = {
        "vmap": lambda: jax.vmap(lambda *each: values(*each), in_axes=tuple(axes.values()))(
            *(shared | {mapped: stacked}).values()
        ),
        "vmap_of_grad": lambda: jax.vmap(jax.grad(loss), in_axes=(None, 0))(shared["k"], stacked),
        "grad_of_vmap": lambda: jax.grad(lambda k: jax.vmap(loss, in_axes=(None, 0))(k, stacked).sum())(shared["k"]),
    }
    each = [shared | {mapped: stacked[step]} for step in range(steps)]
    gradient = jax.jit(jax.grad(loss))
    expected = {
        "vmap": lambda: np.stack([jax.jit(values)(**one) for one in each]),
        "vmap_of_grad": lambda: np.stack([gradient(shared["k"], stacked[step]) for step in range(steps)]),
        "grad_of_vmap": lambda: sum(gradient(shared["k"], stacked[step]) for step in range(steps)),
    }
    np.testing.assert_allclose(by_name[transformation](), expected[transformation](), atol=1e-5)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_second_derivatives_that_are_not_jitted_are_those_of_the_jitted_function(implementation):
    q, k, v = (x[:1, :3, :1] for x in random_inputs())

    def loss(q):
        return jnp.sin(attend(q, k, v, implementation=implementation)).sum()

    second = jax.jacrev(jax.grad(loss))
    np.testing.assert_allclose(second(q), jax.jit(second)(q), atol=1e-5)
    if implementation == BY_AUTODIFF:
        np.testing.assert_allclose(jax.jacfwd(jax.grad(loss))(q), jax.jit(second)(q), atol=1e-5)


def kept_for_the_backward_pass(inputs, **settings):
    """Shapes and dtypes of the arrays that are, but for those no larger than an input."""
    _, vjp = jax.eval_shape(lambda *inputs: jax.vjp(functools.partial(attend, **settings), *inputs), *inputs)
    largest = max(x.size for x in inputs)
    return [(x.shape, x.dtype) for x in jax.tree.leaves(vjp) if x.size > largest]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("dropout_rate", [0.0, 0.4])
@pytest.mark.parametrize("masked", [False, True])
def test_backward_pass_finds_one_array_of_weights_and_nothing_else_of_its_size(dtype, dropout_rate, masked):
    length = 32
    inputs = [jnp.asarray(x, dtype) for x in random_inputs(queries=length, keys=length)]
    settings = {
        "attention_mask": random_mask((BATCH, HEADS, length, length)) if masked else None,
        "causal": masked,
        "dropout_rate": dropout_rate,
        "dropout_key": jax.random.key(0),
    }
    kept = kept_for_the_backward_pass(inputs, **settings)
    assert kept == [((BATCH, HEADS, length, length), jnp.dtype(dtype))]
    assert len(kept_for_the_backward_pass(inputs, **settings, implementation=BY_AUTODIFF)) > 1


def test_causal_attention_keeps_no_weights_of_keys_behind_a_blocks_last_query():
    length = 4 * QUERY_BLOCK
    kept = kept_for_the_backward_pass(random_inputs(queries=length, keys=length, batch=1), causal=True)
    assert [shape for shape, _ in kept] == [(1, HEADS, QUERY_BLOCK, QUERY_BLOCK * block) for block in (1, 2, 3, 4)]


def test_number_of_blocks_is_bounded():
    length = 3 * LARGE_BLOCKS
    kept = kept_for_the_backward_pass(random_inputs(queries=length, keys=length, batch=1, heads=1), causal=True)
    shapes = [shape for shape, _ in kept]
    assert len(shapes) == MAX_QUERY_BLOCKS
    assert sum(shape[2] for shape in shapes) == shapes[-1][3] == length


def test_without_a_gpu_auto_is_the_hand_derived_gradient():
    def program(implementation):
        inputs = random_inputs()
        return str(jax.make_jaxpr(functools.partial(attend, causal=True, implementation=implementation))(*inputs))

    assert program("auto") == program(BY_HAND) != program(BY_AUTODIFF)


def test_cudnn_is_refused_without_a_gpu():
    message = "implementation='cudnn' needs an Nvidia GPU, and the default backend is cpu; use 'auto' or 'vjp'"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        attend(*random_inputs(), implementation="cudnn")


@pytest.fixture
def gpu(monkeypatch):
    """A machine that says it has a GPU, and whose fused attention writes down its calls and computes on the CPU."""
    calls, fused = [], jax.nn.dot_product_attention

    def recorded(*arguments, implementation, **keywords):
        calls.append(implementation)
        with jax.numpy_dtype_promotion("standard"):
            return fused(*arguments, **keywords, implementation="xla")

    monkeypatch.setattr("jaxnlp.ops.attention.cuda_capability", lambda: (8, 0))
    monkeypatch.setattr(jax.nn, "dot_product_attention", recorded)
    return calls


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize(
    ("dtype", "width", "dropout_rate", "reason"),
    [
        ("float32", 8, 0.0, "computes in bfloat16 or float16, got float32"),
        ("bfloat16", 12, 0.0, "takes head widths up to 128 that 8 divides, got 12"),
        ("bfloat16", 136, 0.0, "takes head widths up to 128 that 8 divides, got 136"),
        ("bfloat16", 8, 0.5, "draws no dropout that a second run or a second device could repeat"),
    ],
)
def test_cudnn_is_refused_what_it_cannot_do(dtype, width, dropout_rate, reason):
    inputs = [jnp.asarray(x, dtype) for x in random_inputs(width=width)]
    message = f"implementation='cudnn' {reason}; use 'auto' or 'vjp'"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        attend(*inputs, dropout_rate=dropout_rate, dropout_key=jax.random.key(0), implementation="cudnn")


@pytest.mark.usefixtures("gpu")
def test_cudnn_is_refused_on_a_gpu_that_is_too_old(monkeypatch):
    monkeypatch.setattr("jaxnlp.ops.attention.cuda_capability", lambda: (7, 5))
    inputs = [jnp.asarray(x, jnp.bfloat16) for x in random_inputs(width=8)]
    with pytest.raises(ValueError, match=re.escape("needs a GPU of compute capability 8.0, got 7.5")):
        attend(*inputs, implementation="cudnn")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ["cudnn"]),
        ({"implementation": "cudnn"}, ["cudnn"]),
        ({"dropout_rate": 0.5}, ["cudnn"]),
        ({"dropout_rate": 0.5, "dropout_key": 0}, []),
        ({"masked": True}, []),
        ({"masked": True, "implementation": "cudnn"}, ["cudnn"]),
        ({"dtype": "float32"}, []),
        ({"implementation": "vjp"}, []),
        ({"implementation": "xla"}, []),
    ],
    ids=str,
)
def test_auto_takes_cudnn_where_it_can_be_had(gpu, changes, expected):
    settings = {"causal": True} | {name: x for name, x in changes.items() if name not in ("masked", "dtype")}
    if "dropout_key" in settings:
        settings["dropout_key"] = jax.random.key(settings["dropout_key"])
    if "masked" in changes:
        settings["attention_mask"] = random_mask()
    inputs = [jnp.asarray(x, changes.get("dtype", "bfloat16")) for x in random_inputs(width=8)]
    jax.eval_shape(functools.partial(attend, **settings), *inputs)
    assert gpu == expected


@pytest.mark.parametrize(
    ("mask_shape", "causal", "key_heads"),
    [
        (None, True, 4),
        (None, False, 2),
        ((BATCH, 4, QUERIES, KEYS), False, 2),
        ((BATCH, 1, 1, KEYS), True, 2),
        ((BATCH, 1, QUERIES, 1), True, 4),
    ],
    ids=str,
)
def test_cudnn_gets_what_it_needs_to_give_the_same_values(gpu, mask_shape, causal, key_heads):
    inputs = [jnp.asarray(x, jnp.bfloat16) for x in random_inputs(width=8, heads=4, key_heads=key_heads)]
    mask = None if mask_shape is None else np.random.default_rng(1).random(mask_shape) < 0.5
    settings = {"attention_mask": mask, "causal": causal, "scale": 0.6}
    found = jax.jit(functools.partial(attend, **settings, implementation="cudnn"))(*inputs)
    exact = [x.astype(jnp.float32) for x in inputs]
    expected = jax.jit(functools.partial(attend, **settings, implementation=BY_AUTODIFF))(*exact)
    assert gpu == ["cudnn"]
    assert found.dtype == jnp.bfloat16
    np.testing.assert_array_equal(np.any(expected == 0.0), mask is not None)
    np.testing.assert_array_equal(found == 0.0, expected == 0.0)
    np.testing.assert_allclose(np.float32(found), expected, atol=0.02)


@pytest.mark.parametrize("name", ["pallas", "", None])
def test_unknown_implementation_is_named(name):
    message = f"implementation must be auto, vjp, xla or cudnn, got {name!r}"
    with pytest.raises(ValueError, match=re.escape(message)):
        attend(*random_inputs(), implementation=name)


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
        attend(*(np.zeros(shape, np.float32) for shape in (q, k, v)))


@pytest.mark.parametrize("name", ["q", "k", "v"])
def test_integers_are_refused(name):
    inputs = dict(zip("qkv", random_inputs(), strict=True))
    inputs[name] = inputs[name].astype(np.int32)
    with pytest.raises(ValueError, match=f"^expected float arrays, got .*{name} int32"):
        attend(**inputs)


@pytest.mark.parametrize("key", [None, 0])
@pytest.mark.parametrize("rate", [-0.1, 1.0, 1.5, float("nan")])
def test_dropout_rates_outside_their_interval_are_named_also_without_a_key(rate, key):
    message = f"dropout rate must lie in [0, 1), got {rate}"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        attend(*random_inputs(), dropout_rate=rate, dropout_key=None if key is None else jax.random.key(key))


@pytest.mark.parametrize("implementation", ["auto", "vjp"])
def test_a_scale_that_is_traced_is_refused_by_all_but_autodiff(implementation):
    inputs = random_inputs()
    message = f"implementation={implementation!r} takes a scale that is a number, got a traced array; multiply q by it"
    with pytest.raises(TypeError, match=f"^{re.escape(message)}"):
        jax.jit(lambda scale: attend(*inputs, scale=scale, implementation=implementation))(0.3)
    found = jax.jit(lambda scale: attend(*inputs, scale=scale, implementation=BY_AUTODIFF))(0.3)
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
        attend(*random_inputs(), attention_mask=np.ones(shape, bool), implementation=implementation)


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_masks_that_are_not_boolean_are_named(dtype):
    message = f"attention_mask must be bool, got {dtype}; see masks.from_additive"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        attend(*random_inputs(), attention_mask=np.ones((1, 1, QUERIES, KEYS), dtype))


@pytest.mark.parametrize(("key_heads", "causal", "scale"), [(None, False, None), (1, True, 0.3)])
def test_weights_to_look_at_are_those_that_mix(key_heads, causal, scale):
    q, k, v = random_inputs(key_heads=key_heads)
    mask = random_mask()
    mask[0, 1, 2] = False
    weights = attention_weights(q, k, attention_mask=mask, causal=causal, scale=scale)
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
