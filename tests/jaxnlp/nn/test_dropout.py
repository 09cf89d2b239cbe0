import functools
import re
from pathlib import Path

import flax
import flax.linen as nn
import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

import jaxnlp
from jaxnlp.nn.dropout import Dropout, LayerDropout, LockedDropout, dropout_key
from jaxnlp.nn.shards import first_row_of_shard
from jaxnlp.ops.dropout_masks import keep_mask
from jaxnlp.typing import BATCH_AXIS

X = np.random.default_rng(0).normal(size=(16, 3, 5)).astype(np.float32)
KEY = jax.random.key(1)


class TwoInARow(nn.Module):
    rate: float = 0.5

    @nn.compact
    def __call__(self, x):
        return [Dropout(self.rate)(x, deterministic=False) for _ in range(2)]


@functools.partial(jax.jit, static_argnames=("rate", "deterministic"))
def drop(x, *, rate=0.5, deterministic=False, key=KEY):
    return Dropout(rate).apply({}, x, deterministic=deterministic, rngs=None if key is None else {"dropout": key})


def test_the_whole_batch_begins_at_row_0_also_under_jit():
    assert first_row_of_shard(4) == 0
    assert jax.jit(lambda x: first_row_of_shard(4) + 0 * x)(1) == 0


def test_mapped_shards_begin_where_the_earlier_ones_end(devices):
    def first_row(_):
        return first_row_of_shard(3)

    expected = [0, 3, 6, 9, 12, 15, 18, 21]
    inputs = np.zeros(8)
    np.testing.assert_array_equal(jax.vmap(first_row, axis_name=BATCH_AXIS)(inputs), expected)
    np.testing.assert_array_equal(jax.pmap(first_row, axis_name=BATCH_AXIS, devices=devices)(inputs), expected)
    mesh = jax.sharding.Mesh(np.array(devices), (BATCH_AXIS,))
    mapped = jax.shard_map(
        lambda x: first_row(x)[None], mesh=mesh, in_specs=PartitionSpec(BATCH_AXIS), out_specs=PartitionSpec(BATCH_AXIS)
    )
    np.testing.assert_array_equal(jax.jit(mapped)(inputs), expected)


def test_axes_of_other_names_are_no_shards():
    np.testing.assert_array_equal(jax.vmap(lambda _: first_row_of_shard(3), axis_name="other")(np.zeros(4)), 0)


@pytest.mark.thorough
def test_mapped_shards_drop_what_the_whole_batch_drops(devices):
    whole, shards = drop(X), X.reshape(8, 2, 3, 5)
    for mapped in (
        jax.jit(jax.vmap(drop, axis_name=BATCH_AXIS)),
        jax.pmap(drop, axis_name=BATCH_AXIS, devices=devices),
    ):
        np.testing.assert_array_equal(np.asarray(mapped(shards)).reshape(X.shape), whole)


def test_a_sharded_batch_under_jit_drops_what_one_device_drops(devices):
    mesh = jax.sharding.Mesh(np.array(devices), (BATCH_AXIS,))
    sharded = jax.device_put(X, NamedSharding(mesh, PartitionSpec(BATCH_AXIS)))
    y = drop(sharded)
    assert len(y.sharding.device_set) == 8
    np.testing.assert_array_equal(y, drop(X))


def test_drops_and_scales_at_its_rate():
    y = np.asarray(drop(np.ones((200, 500), np.float32), rate=0.2))
    assert sorted(set(y.ravel())) == [0.0, np.float32(1.25)]
    assert abs((y == 0.0).mean() - 0.2) < 5.0 * np.sqrt(0.2 * 0.8 / y.size)


def test_two_layers_drop_different_elements():
    run = jax.jit(lambda x: TwoInARow().apply({}, x, rngs={"dropout": KEY}))
    first, second = (np.asarray(y) == 0.0 for y in run(np.ones((100, 50))))
    assert abs(np.corrcoef(first.ravel(), second.ravel())[0, 1]) < 5.0 / np.sqrt(first.size)


class Keys(nn.Module):
    """Gives the words of its next two keys, and those of `depth` modules below it."""

    depth: int

    @nn.compact
    def __call__(self):
        own = [jax.random.key_data(dropout_key(self)) for _ in range(2)]
        return own + (Keys(self.depth - 1)() + Keys(self.depth - 1)() if self.depth else [])


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
def test_all_modules_draws_and_steps_have_independent_masks(impl):
    steps = jax.vmap(functools.partial(jax.random.fold_in, jax.random.key(0, impl=impl)))(np.arange(3))
    words = np.concatenate([Keys(2).apply({}, rngs={"dropout": key}) for key in steps])
    assert len(words) == 3 * 14
    masks = jax.jit(jax.vmap(lambda words: keep_mask(jax.random.wrap_key_data(words, impl=impl), (20, 1000), 0.3)))
    kept = np.asarray(masks(words), np.float32)
    for first, second in ((kept, kept), (kept[:, 1:], kept[:, :-1]), (kept[:, :, 1:], kept[:, :, :-1])):
        size = first[0].size
        one, other = ((x - x.mean()) / x.std() for x in (first.reshape(-1, size), second.reshape(-1, size)))
        correlations = one @ other.T / size
        np.fill_diagonal(correlations, 0.0)
        assert np.abs(correlations).max() < 5.5 / np.sqrt(size)


def test_every_module_draws_with_this_key():
    """Flax's own costs a threefry for each module."""
    texts = [path.read_text() for path in Path(jaxnlp.__file__).parent.rglob("*.py")]
    assert any("dropout_key(self)" in text for text in texts)
    assert not [text for text in texts if re.search(r"make_rng\(\s*['\"]dropout", text)]


def test_the_stream_of_parameters_takes_the_place_of_a_missing_one_as_in_flax():
    y, _ = Dropout(0.5).init_with_output(KEY, X, deterministic=False)
    assert (np.asarray(y) == 0.0).any()


def test_a_module_without_a_call_has_no_key():
    with pytest.raises(ValueError, match="unbound"):
        dropout_key(Dropout(0.5))


class Scanned(nn.Module):
    @nn.compact
    def __call__(self, carry, _):
        return carry, jax.random.key_data(dropout_key(self))


class Lifted(nn.Module):
    """Gives 18 keys, of modules in transformations of Flax, and of one that is called twice."""

    @nn.compact
    def __call__(self):
        settings = {"variable_axes": {"params": 0}, "split_rngs": {"dropout": True}, "length": 4}
        layers = [nn.scan(kind, **settings)() for kind in (Scanned, nn.remat(Scanned), Scanned)]
        twice = Scanned()
        single = [nn.remat(Scanned)(), nn.remat(Scanned)(), nn.jit(Scanned)(), Scanned(), twice, twice]
        return [module(None, None)[1] for module in (*layers, *single)]


@pytest.mark.thorough
def test_modules_in_transformations_have_keys_of_their_own():
    keys = Lifted().apply({}, rngs={"dropout": KEY})
    words = np.concatenate([np.reshape(key, (-1, 2)) for key in keys])
    assert len(np.unique(words, axis=0)) == len(words) == 18


def test_another_key_drops_other_elements_and_the_same_key_the_same():
    np.testing.assert_array_equal(drop(X), drop(X))
    one, other = (np.asarray(drop(X, key=key)) for key in (KEY, jax.random.key(2)))
    assert ((one == 0.0) != (other == 0.0)).any()


@pytest.mark.parametrize("settings", [{"deterministic": True}, {"rate": 0.0}], ids=str)
def test_changes_nothing_and_needs_no_key_outside_training(settings):
    np.testing.assert_array_equal(drop(X, key=None, **settings), X)


def test_training_needs_the_stream_dropout():
    with pytest.raises(flax.errors.InvalidRngError, match="dropout"):
        drop(X, key=None)


def test_gradient_is_zero_where_elements_were_dropped():
    @jax.jit
    def value_and_gradient(x):
        y, vjp = jax.vjp(drop, x)
        return y, vjp(np.ones_like(X))[0]

    y, gradient = jax.device_get(value_and_gradient(X))
    np.testing.assert_array_equal(gradient, np.where(y == 0.0, 0.0, 2.0))


def test_mask_is_that_of_the_op_for_the_streams_key():
    class Spy(nn.Module):
        @nn.compact
        def __call__(self, x):
            return jax.random.key_data(dropout_key(self))

    @jax.jit
    def mask():
        words = Spy().apply({}, X, rngs={"dropout": KEY})
        return keep_mask(jax.random.wrap_key_data(words), X.shape, 0.5)

    np.testing.assert_array_equal(drop(X), np.where(mask(), 2.0 * X, 0.0))


@pytest.mark.parametrize("rate", [-0.1, 1.0])
@pytest.mark.parametrize("deterministic", [True, False])
def test_a_rate_outside_its_interval_is_refused_in_training_or_not(rate, deterministic):
    with pytest.raises(ValueError, match=re.escape(f"dropout rate must be in [0, 1), got {rate}")):
        drop(X, rate=rate, deterministic=deterministic)


@pytest.mark.parametrize("deterministic", [True, False])
def test_locked_dropout_refuses_what_is_no_batch_of_sequences(deterministic):
    with pytest.raises(AssertionError, match="rank"):
        LockedDropout(0.5).apply({}, X[0], deterministic=deterministic, rngs={"dropout": KEY})


def test_layer_dropout_drops_whole_examples_and_keeps_the_mean():
    drop_layer = jax.jit(lambda x, key: LayerDropout(0.25).apply({}, x, deterministic=False, rngs={"dropout": key}))
    ones = np.ones((4000, 2, 3), np.float32)
    found = np.asarray(drop_layer(ones, KEY))
    assert {*np.unique(found)} == {np.float32(0.0), np.float32(1.0 / 0.75)}
    np.testing.assert_array_equal(found, np.broadcast_to(found[:, :1, :1], found.shape))
    assert abs(found.mean() - 1.0) < 0.03
    np.testing.assert_array_equal(LayerDropout(0.25).apply({}, X, deterministic=True), X)
    with pytest.raises(ValueError, match="dropout rate must be in"):
        LayerDropout(1.0).apply({}, X, deterministic=True)


def test_shards_drop_the_layers_that_the_whole_batch_drops():
    def drop_layer(x):
        return LayerDropout(0.5).apply({}, x, deterministic=False, rngs={"dropout": KEY})

    mapped = jax.jit(jax.vmap(drop_layer, axis_name=BATCH_AXIS))(X.reshape(8, 2, 3, 5))
    np.testing.assert_array_equal(np.asarray(mapped).reshape(X.shape), jax.jit(drop_layer)(X))
