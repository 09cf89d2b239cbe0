import functools
import itertools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from jaxnlp.ops.dropout_masks import dropout, embedding_dropout, keep_mask, locked_dropout
from jaxnlp.typing import BATCH_AXIS

pytestmark = pytest.mark.sweep

SIGMAS = 5.0

compiled_dropout = jax.jit(dropout, static_argnums=1)


@functools.partial(jax.jit, static_argnums=(1, 2, 4, 5))
def compiled_mask(key, shape, rate, first_row=0, whole=None, offset=None):
    return keep_mask(key, shape, rate, first_row=first_row, whole=whole, offset=offset)


def random_input(*shape):
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def correlation(a, b):
    """Of two Boolean samples, in units of its standard deviation when they are independent."""
    a, b = (np.asarray(x, np.float64).ravel() for x in (a, b))
    return np.corrcoef(a, b)[0, 1] * np.sqrt(a.size)


@pytest.mark.parametrize("rate", [0.001, 0.1, 0.5, 0.999])
@pytest.mark.parametrize("shape", [(300, 700), (4, 3, 100, 175), (200_000,)])
def test_share_dropped_is_the_rate(rate, shape):
    for seed in (0, 1, 2):
        dropped = 1.0 - np.asarray(compiled_mask(jax.random.key(seed), shape, rate)).mean()
        assert abs(dropped - rate) < SIGMAS * np.sqrt(rate * (1.0 - rate) / np.prod(shape))


@pytest.mark.parametrize("rate", [0.1, 0.5])
@pytest.mark.parametrize("axis", [0, 1, 2], ids=["rows", "middle", "last"])
def test_neighbours_are_independent(rate, axis):
    kept = np.moveaxis(np.asarray(compiled_mask(jax.random.key(4), (64, 64, 64), rate)), axis, 0)
    for distance in (1, 2, 3, 8, 16, 32):
        assert abs(correlation(kept[:-distance], kept[distance:])) < SIGMAS


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
def test_keys_are_independent(impl):
    base = jax.random.key(0, impl=impl)
    keys = [jax.random.key(seed, impl=impl) for seed in (0, 1, 2, 2**31)]
    keys += [jax.random.fold_in(base, number) for number in range(4)]
    kept = [compiled_mask(key, (100, 1000), 0.3) for key in keys]
    for a, b in itertools.combinations(kept, 2):
        assert abs(correlation(a, b)) < SIGMAS


def test_layers_are_independent_within_a_step_and_between_steps():
    # As scanned layers draw them: a key for each step, of which each layer gets its share.
    @jax.jit
    def masks():
        steps = jax.vmap(jax.random.fold_in, (None, 0))(jax.random.key(0), np.arange(3))
        keys = jax.vmap(lambda key: jax.random.split(key, 4))(steps).reshape(-1)
        return jax.vmap(lambda key: keep_mask(key, (40, 1000), 0.3))(keys)

    kept = np.asarray(masks())
    for a, b in itertools.combinations(kept, 2):
        assert abs(correlation(a, b)) < SIGMAS
        assert abs(correlation(a[1:], b[:-1])) < SIGMAS
        assert abs(correlation(a[:, :-1], b[:, 1:])) < SIGMAS


def test_rows_far_apart_and_at_the_end_of_their_numbers_are_independent():
    key = jax.random.key(6)
    kept = [compiled_mask(key, (4, 25_000), 0.3, np.uint32(first)) for first in (0, 4, 2**16, 2**31, 2**32 - 4)]
    for a, b in itertools.combinations(np.concatenate(kept), 2):
        assert abs(correlation(a, b)) < SIGMAS


def test_each_element_is_dropped_at_the_rate_over_successive_keys():
    @jax.jit
    @jax.vmap
    def mask(number):
        return keep_mask(jax.random.fold_in(jax.random.key(1), number), (2, 3), 0.25)

    kept = np.asarray(mask(np.arange(20_000)))
    assert np.abs(kept.mean(axis=0) - 0.75).max() < SIGMAS * np.sqrt(0.25 * 0.75 / len(kept))
    assert abs(correlation(kept[:-1], kept[1:])) < SIGMAS


@pytest.mark.thorough
def test_no_two_rows_of_a_large_batch_share_their_mask():
    # With 32 bits of seed a row, 50,000 rows hold two alike with probability 1/4, and those of ten keys with 0.94.
    for seed in range(10):
        kept = np.packbits(compiled_mask(jax.random.key(seed), (50_000, 64), 0.5), axis=1)
        assert len(np.unique(kept.view(np.uint64))) == len(kept)


@pytest.mark.thorough
def test_no_row_of_a_large_batch_is_another_one_reordered_or_shifted():
    # With 32 bits of seed a row, xored with or added to each column's number, five or ten pairs of rows would be.
    kept = np.asarray(compiled_mask(jax.random.key(0), (50_000, 64 + 16), 0.5))
    columns = np.arange(64)
    for reordered in ([columns ^ number for number in range(16)], [columns + number for number in range(17)]):
        seen = np.concatenate([np.packbits(kept.take(order, axis=1), axis=1).view(np.uint64) for order in reordered])
        assert len(np.unique(seen)) == seen.size


def test_no_row_of_one_seed_is_that_of_another_reordered():
    # Seeds are small numbers, as rows are: xored with each other, they agree thousands of times.
    columns, seen = np.arange(64), []
    for seed in range(64):
        kept = np.asarray(compiled_mask(jax.random.key(seed), (64, 64), 0.5))
        seen += [np.packbits(kept.take(columns ^ number, axis=1), axis=1).view(np.uint64) for number in range(64)]
    assert len(np.unique(np.concatenate(seen))) == 64**3


def test_row_depends_on_key_and_row_number_only():
    key = jax.random.key(9)
    whole = np.asarray(compiled_mask(key, (8, 3, 5), 0.5))
    for first_row, rows in ((0, 2), (6, 2), (3, 5)):
        part = compiled_mask(key, (rows, 3, 5), 0.5, first_row)
        np.testing.assert_array_equal(part, whole[first_row : first_row + rows])


@pytest.mark.parametrize(
    ("first_row", "stops", "offset"),
    [
        (0, (6, 3, 20, 30), (0, 0, 0)),
        (0, (6, 3, 12, 30), (0, 5, 0)),
        (2, (4, 2, 9, 30), (1, 8, 29)),
        (5, (6, 3, 20, 17), (2, 0, 3)),
        (1, (6, 3, 20, 1), None),
    ],
    ids=str,
)
def test_window_of_a_mask_is_what_the_whole_mask_has_there(first_row, stops, offset):
    key, whole = jax.random.key(9), (6, 3, 20, 30)
    starts = (first_row, *(offset or (0, 0, 0)))
    window = tuple(slice(start, stop) for start, stop in zip(starts, stops, strict=True))
    expected = np.asarray(compiled_mask(key, whole, 0.5))[window]
    found = compiled_mask(key, expected.shape, 0.5, first_row, whole, offset)
    np.testing.assert_array_equal(found, expected)


def test_whole_array_may_hold_more_rows_than_are_numbered():
    # Only the axes after the rows decide the place of an element in a row.
    key = jax.random.key(9)
    some, more = (compiled_mask(key, (2, 4), 0.5, 0, (rows, 10), (3,)) for rows in (1, 100))
    np.testing.assert_array_equal(some, more)


@pytest.mark.thorough
def test_jit_changes_nothing():
    key, x = jax.random.key(2), random_input(6, 5, 4)
    np.testing.assert_array_equal(compiled_dropout(x, 0.3, key), dropout(x, 0.3, key))


def test_mapped_keys_and_rows_draw_what_each_call_draws():
    keys, rows, x = jax.random.split(jax.random.key(2), 3), np.array([0, 7, 2]), random_input(3, 6, 4)
    found = jax.jit(jax.vmap(lambda x, key, row: dropout(x, 0.3, key, first_row=row)))(x, keys, rows)
    for part, key, row, mapped in zip(x, keys, rows, np.asarray(found), strict=True):
        np.testing.assert_array_equal(mapped, compiled_dropout(part, 0.3, key, first_row=row))


def mesh_of(devices):
    return jax.sharding.Mesh(np.array(devices), (BATCH_AXIS,))


@pytest.mark.parametrize("spec", [(BATCH_AXIS,), (None, BATCH_AXIS)], ids=["rows", "columns"])
def test_eight_devices_draw_what_one_draws(devices, spec):
    key, (x, upstream) = jax.random.key(2), random_input(2, 16, 24)

    @jax.jit
    def value_and_gradient(x, upstream):
        y, vjp = jax.vjp(lambda x: dropout(x, 0.3, key, first_row=5), x)
        return y, *vjp(upstream)

    sharding = jax.NamedSharding(mesh_of(devices), jax.P(*spec))
    found = value_and_gradient(*(jax.device_put(array, sharding) for array in (x, upstream)))
    for array, expected in zip(found, value_and_gradient(x, upstream), strict=True):
        assert len({shard.device for shard in array.addressable_shards}) == len(devices)
        assert array.addressable_shards[0].data.size == x.size // len(devices)
        np.testing.assert_array_equal(array, expected)


def test_eight_devices_that_hold_a_shard_each_draw_what_one_draws(devices):
    key, x = jax.random.key(2), random_input(16, 24)

    @jax.jit
    @jax.shard_map(mesh=mesh_of(devices), in_specs=jax.P(BATCH_AXIS), out_specs=jax.P(BATCH_AXIS))
    def sharded(part):
        return dropout(part, 0.3, key, first_row=jax.lax.axis_index(BATCH_AXIS) * len(part))

    found = sharded(x)
    assert len({shard.device for shard in found.addressable_shards}) == len(devices)
    np.testing.assert_array_equal(found, compiled_dropout(x, 0.3, key))


def test_shards_of_a_batch_draw_what_the_whole_batch_draws():
    key, x = jax.random.key(2), random_input(8, 5, 4)

    def shard(part):
        return dropout(part, 0.3, key, first_row=jax.lax.axis_index(BATCH_AXIS) * len(part))

    shards = jax.jit(jax.vmap(shard, axis_name=BATCH_AXIS))(x.reshape(4, 2, 5, 4))
    np.testing.assert_array_equal(np.asarray(shards).reshape(x.shape), compiled_dropout(x, 0.3, key))


def test_elements_are_zeroed_or_scaled_as_the_mask_says():
    key, x = jax.random.key(3), random_input(20, 30)
    kept = np.asarray(compiled_mask(key, x.shape, 0.25))
    assert 0 < kept.sum() < kept.size
    np.testing.assert_allclose(compiled_dropout(x, 0.25, key), np.where(kept, x / 0.75, 0.0), rtol=1e-6)


def test_gradient_uses_the_mask_of_the_forward_pass():
    key, (x, upstream) = jax.random.key(3), random_input(2, 20, 30)
    kept = np.asarray(compiled_mask(key, x.shape, 0.25, 4))
    gradient = jax.jit(lambda x: jax.vjp(lambda x: dropout(x, 0.25, key, first_row=4), x)[1](upstream)[0])(x)
    np.testing.assert_allclose(gradient, np.where(kept, upstream / 0.75, 0.0), rtol=1e-6)


def test_gradients_of_first_and_second_order_equal_finite_differences():
    with jax.enable_x64(True):
        x = np.random.default_rng(0).normal(size=(3, 7))
        function = jax.jit(lambda x: jnp.sin(dropout(x, 0.4, jax.random.key(1))))
        check_grads(function, (x,), order=2, modes=["rev"], atol=1e-6, rtol=1e-6)


def test_mean_over_keys_is_the_input():
    keys = jax.random.split(jax.random.key(0), 10_000)
    x, rate = np.array([[-2.0, 0.5], [1.0, 30.0]], np.float32), 0.3
    mean = np.asarray(jax.jit(jax.vmap(lambda key: dropout(x, rate, key)))(keys), np.float64).mean(axis=0)
    assert (np.abs(mean - x) < SIGMAS * np.abs(x) * np.sqrt(rate / (1.0 - rate) / len(keys))).all()


def test_rate_zero_changes_nothing():
    x = random_input(3, 4)
    np.testing.assert_array_equal(dropout(x, 0.0, jax.random.key(0)), x)
    assert np.asarray(compiled_mask(jax.random.key(0), (10, 1000), 0.0)).all()


def test_bfloat16_stays_bfloat16_with_the_mask_of_float32():
    key, ones = jax.random.key(1), np.ones((50, 40), np.float32)
    y = compiled_dropout(ones.astype(jnp.bfloat16), 0.5, key)
    assert y.dtype == jnp.bfloat16
    np.testing.assert_array_equal(np.asarray(y, np.float32), compiled_dropout(ones, 0.5, key))


def test_dropped_elements_are_zero_even_where_the_input_is_infinite():
    key, x = jax.random.key(1), np.full((4, 50), np.inf, np.float32)
    kept = np.asarray(compiled_mask(key, x.shape, 0.5))
    np.testing.assert_array_equal(compiled_dropout(x, 0.5, key), np.where(kept, np.inf, 0.0))


@pytest.mark.parametrize("rate", [-0.1, 1.0, 1.5, float("nan")])
def test_rate_outside_its_interval_is_named(rate):
    key, x = jax.random.key(0), random_input(2, 3)
    for function in (lambda: keep_mask(key, x.shape, rate), lambda: dropout(x, rate, key)):
        with pytest.raises(ValueError, match=re.escape(f"dropout rate must be in [0, 1), got {rate}")):
            function()


def test_locked_and_embedding_dropout_refuse_arrays_whose_second_axis_means_something_else():
    key = jax.random.key(0)
    with pytest.raises(ValueError, match=r"expected x \[B, T, D\]"):
        locked_dropout(jnp.ones((2, 3)), 0.5, key)
    with pytest.raises(ValueError, match=r"expected table \[V, D\]"):
        embedding_dropout(jnp.ones((2, 3, 4)), 0.5, key)
