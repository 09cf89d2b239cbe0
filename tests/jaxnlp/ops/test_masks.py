import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy

from jaxnlp.ops import masks
from jaxnlp.ops.attention import dot_product_attention

pytestmark = pytest.mark.sweep

causal = jax.jit(masks.causal, static_argnums=(0, 1))
local = jax.jit(masks.local, static_argnums=(0, 1), static_argnames=("before", "after"))

SHAPES = [(5, 5, 0), (3, 7, 0), (7, 3, 0), (2, 6, 4), (1, 6, 5), (4, 1, 0), (1, 1, 0), (3, 4, 9)]


def written_out(may_attend, queries, keys):
    """[1, 1, T, S]: what a function of the positions of query and key says."""
    mask = np.zeros((1, 1, queries, keys), bool)
    for t, s in np.ndindex(queries, keys):
        mask[0, 0, t, s] = may_attend(t, s)
    return mask


def assert_equals(found, expected):
    assert found.dtype == bool
    np.testing.assert_array_equal(found, expected, strict=True)


@pytest.mark.thorough
@pytest.mark.parametrize(("queries", "keys", "first_query"), SHAPES)
def test_each_query_sees_the_keys_at_its_position_and_before(queries, keys, first_query):
    expected = written_out(lambda t, s: s <= first_query + t, queries, keys)
    assert_equals(causal(queries, keys, first_query=first_query), expected)


def test_masks_of_parts_of_a_sequence_stack_up_to_the_mask_of_the_whole():
    parts = [causal(3, 9, first_query=first) for first in (0, 3, 6)]
    np.testing.assert_array_equal(np.concatenate(parts, axis=2)[0, 0], np.tri(9, dtype=bool))


def test_padding_hides_positions_after_each_length():
    lengths = np.array([2, 0, 5, 4, 9])
    expected = [[[[key < length for key in range(5)]]] for length in lengths]
    assert_equals(jax.jit(masks.padding, static_argnums=1)(lengths, 5), np.array(expected))


@pytest.mark.parametrize(("queries", "keys", "first_query"), SHAPES)
@pytest.mark.parametrize(("before", "after"), [(0, 0), (2, 0), (0, 1), (1, 2), (100, 0), (100, 100)])
def test_local_shows_a_window_around_each_position(queries, keys, first_query, before, after):
    expected = written_out(lambda t, s: first_query + t - before <= s <= first_query + t + after, queries, keys)
    assert_equals(local(queries, keys, before=before, after=after, first_query=first_query), expected)


def test_local_sees_nothing_after_its_own_position_by_default():
    past = np.asarray(masks.causal(6, 8))
    around = np.asarray(local(6, 8, before=2, after=8))
    assert_equals(local(6, 8, before=2), around & past)
    np.testing.assert_array_equal(local(6, 8, before=6), past)


def test_local_windows_of_parts_of_a_sequence_stack_up_to_those_of_the_whole():
    parts = [local(3, 9, before=2, after=1, first_query=first) for first in (0, 3, 6)]
    np.testing.assert_array_equal(np.concatenate(parts, axis=2), masks.local(9, 9, before=2, after=1))


def segments_by_loops(query_segments, key_segments):
    mask = np.zeros((len(query_segments), 1, query_segments.shape[1], key_segments.shape[1]), bool)
    for b, _, t, s in np.ndindex(mask.shape):
        mask[b, 0, t, s] = query_segments[b, t] == key_segments[b, s] and query_segments[b, t] != 0
    return mask


def test_positions_see_their_own_segment_alone_and_padding_nothing():
    packed = np.array([[1, 1, 2, 2, 2, 0], [3, 1, 1, 0, 3, 0], [0, 0, 0, 0, 0, 0]])
    found = np.asarray(jax.jit(masks.segments)(packed))
    assert_equals(found, segments_by_loops(packed, packed))
    np.testing.assert_array_equal(found, found.swapaxes(2, 3))


def test_segments_of_queries_and_keys_may_differ():
    queries, keys = np.array([[1, 2, 0], [1, 1, 4]]), np.array([[2, 2, 1, 0, 3], [0, 4, 1, 1, 0]])
    assert_equals(jax.jit(masks.segments)(queries, keys), segments_by_loops(queries, keys))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("shape", [(7,), (2, 1, 3, 5)], ids=str)
def test_additive_masks_of_zero_and_minus_infinity_become_boolean(dtype, shape):
    expected = np.random.default_rng(0).random(shape) < 0.5
    additive = np.where(expected, 0.0, -np.inf).astype(jnp.dtype(dtype))
    assert additive.dtype == jnp.dtype(dtype)
    assert_equals(jax.jit(masks.from_additive)(additive), expected)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_additive_masks_of_the_lowest_number_become_boolean_and_so_does_berts(dtype):
    lowest = jnp.finfo(dtype).min
    assert_equals(masks.from_additive(np.array([0.0, lowest, -1e4], jnp.dtype(dtype))), np.array([1, 0, 0], bool))


@pytest.mark.parametrize("bias", [-0.5, 1e4, -999.0, np.nan])
def test_a_bias_on_the_scores_is_no_additive_mask(bias):
    with pytest.raises(
        ValueError, match=re.escape(f"0 and numbers of at most -1,000, got {bias}; pass a bias on the scores")
    ):
        masks.from_additive(np.array([0.0, -np.inf, bias], np.float32))


def test_an_int_mask_is_no_additive_mask():
    with pytest.raises(ValueError, match="int32"):
        masks.from_additive(jnp.asarray([0, 1]))


def test_additive_masks_in_float64_become_boolean():
    with jax.enable_x64(True):
        found = masks.from_additive(np.array([0.0, -np.inf, np.finfo(np.float64).min, -1e30]))
        assert_equals(found, np.array([True, False, False, False]))


def test_additive_and_boolean_masks_give_the_same_attention():
    q, k, v = np.random.default_rng(0).normal(size=(3, 2, 5, 2, 4)).astype(np.float32)
    additive = np.where(np.tri(5, dtype=bool), np.float32(0.0), np.float32(-np.inf))[None, None]
    weights = scipy.special.softmax(np.einsum("bthk,bshk->bhts", q, k) / 2.0 + additive, axis=-1)
    found = jax.jit(dot_product_attention)(q, k, v, attention_mask=masks.from_additive(additive))
    np.testing.assert_allclose(found, np.einsum("bhts,bshk->bthk", weights, v), atol=1e-6)


def test_combinations_see_what_each_of_their_masks_shows():
    lengths, packed = np.array([6, 3]), np.array([[1, 1, 1, 2, 2, 2], [1, 2, 2, 2, 3, 3]])
    parts = jax.jit(
        lambda: {
            "causal": masks.causal(6, 6),
            "padding": masks.padding(lengths, 6),
            "local": masks.local(6, 6, before=1, after=1),
            "segments": masks.segments(packed),
        }
    )()
    parts = jax.device_get(parts)
    found = functools.reduce(lambda a, b: a & b, parts.values())
    expected = np.zeros((2, 1, 6, 6), bool)
    for b, _, t, s in np.ndindex(expected.shape):
        expected[b, 0, t, s] = s <= t and s < lengths[b] and abs(s - t) <= 1 and packed[b, t] == packed[b, s]
    assert_equals(found, expected)
    for left_out in parts:
        others = functools.reduce(lambda a, b: a & b, [mask for name, mask in parts.items() if name != left_out])
        assert (np.broadcast_to(others, found.shape) != found).any(), left_out


def test_not_later_goes_by_positions_wherever_they_stand():
    queries, keys = np.array([3, 0, 7]), np.array([1, 4, 7, 0, 3])
    expected = written_out(lambda t, s: keys[s] <= queries[t], len(queries), len(keys))
    assert_equals(masks.not_later(queries, keys), expected)
    assert_equals(jax.jit(masks.not_later)(queries, keys), expected)
