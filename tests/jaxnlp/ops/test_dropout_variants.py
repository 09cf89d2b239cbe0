import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnlp.ops.dropout_masks import embedding_dropout, keep_mask, locked_dropout
from jaxnlp.typing import BATCH_AXIS

SIGMAS = 5.0

compiled_locked = jax.jit(locked_dropout, static_argnums=1)
compiled_embedding = jax.jit(embedding_dropout, static_argnums=1)


@functools.partial(jax.jit, static_argnums=(0, 2))
def gradient_of(function, x, rate, key, upstream):
    return jax.vjp(lambda x: function(x, rate, key), x)[1](upstream)[0]


def random_input(*shape):
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def correlation(a, b):
    """Of two Boolean samples, in units of its standard deviation when they are independent."""
    a, b = (np.asarray(x, np.float64).ravel() for x in (a, b))
    return np.corrcoef(a, b)[0, 1] * np.sqrt(a.size)


def kept_features(batch, width, rate, key, positions=2):
    """Which (sequence, feature) pairs locked dropout keeps."""
    return np.asarray(compiled_locked(np.ones((batch, positions, width), np.float32), rate, key))[:, 0] > 0.0


def kept_words(words, rate, key):
    return np.asarray(compiled_embedding(np.ones((words, 3), np.float32), rate, key))[:, 0] > 0.0


def test_locked_mask_is_the_same_at_all_time_steps():
    x = random_input(4, 9, 50)
    found = np.asarray(compiled_locked(x, 0.4, jax.random.key(0)))
    assert (found.shape, found.dtype) == (x.shape, x.dtype)
    kept = found != 0.0
    np.testing.assert_array_equal(kept, np.broadcast_to(kept[:, :1], kept.shape))
    assert 0 < kept.sum() < kept.size
    np.testing.assert_allclose(found, np.where(kept, x / 0.6, 0.0), rtol=1e-6)


def test_locked_masks_of_sequences_and_keys_are_independent():
    kept = [kept_features(100, 1000, 0.3, jax.random.key(seed)) for seed in (0, 1)]
    assert abs(correlation(*kept)) < SIGMAS
    for one in kept:
        for distance in (1, 2, 8):
            assert abs(correlation(one[:-distance], one[distance:])) < SIGMAS
            assert abs(correlation(one[:, :-distance], one[:, distance:])) < SIGMAS


def test_locked_mask_does_not_depend_on_the_length_of_the_sequence():
    key = jax.random.key(4)
    np.testing.assert_array_equal(
        kept_features(5, 60, 0.5, key, positions=1), kept_features(5, 60, 0.5, key, positions=7)
    )


@pytest.mark.sweep(1)
@pytest.mark.parametrize("rate", [0.001, 0.1, 0.5, 0.999])
def test_share_dropped_is_the_rate(rate):
    for seed in (0, 1, 2):
        for kept in (
            kept_features(300, 700, rate, jax.random.key(seed)),
            kept_words(200_000, rate, jax.random.key(seed)),
        ):
            assert abs(1.0 - kept.mean() - rate) < SIGMAS * np.sqrt(rate * (1.0 - rate) / kept.size)


@pytest.mark.parametrize("function", [locked_dropout, embedding_dropout])
def test_mean_over_keys_is_the_input(function):
    keys, rate = jax.random.split(jax.random.key(0), 10_000), 0.3
    x = np.array([[-2.0, 0.5], [1.0, 30.0]], np.float32)
    x = x[:, None] if function is locked_dropout else x
    mean = np.asarray(jax.jit(jax.vmap(lambda key: function(x, rate, key)))(keys), np.float64).mean(axis=0)
    assert (np.abs(mean - x) < SIGMAS * np.abs(x) * np.sqrt(rate / (1.0 - rate) / len(keys))).all()


def test_embedding_dropout_drops_whole_words_and_scales_the_others():
    table = random_input(200, 7)
    found = np.asarray(compiled_embedding(table, 0.25, jax.random.key(1)))
    assert (found.shape, found.dtype) == (table.shape, table.dtype)
    kept = (found != 0.0).any(axis=1)
    assert 0 < kept.sum() < kept.size
    np.testing.assert_array_equal(found[~kept], 0.0)
    np.testing.assert_allclose(found[kept], table[kept] / 0.75, rtol=1e-6)


def test_words_are_dropped_independently_of_their_neighbours_and_of_other_keys():
    first, second = (kept_words(100_000, 0.3, jax.random.key(seed)) for seed in (0, 1))
    assert abs(correlation(first, second)) < SIGMAS
    for distance in (1, 2, 8):
        assert abs(correlation(first[:-distance], first[distance:])) < SIGMAS


def test_dropped_word_is_zero_wherever_it_occurs():
    table, tokens, key = random_input(20, 3), np.array([[1, 2, 1, 3], [3, 1, 2, 19]]), jax.random.key(1)
    kept = kept_words(20, 0.5, key)
    assert kept[tokens].any()
    assert not kept[tokens].all()
    found = np.asarray(compiled_embedding(table, 0.5, key))[tokens]
    np.testing.assert_allclose(found, np.where(kept[tokens][..., None], 2.0 * table[tokens], 0.0), rtol=1e-6)


def test_gradient_flows_only_through_what_was_kept():
    key, x, upstream = jax.random.key(3), random_input(6, 5, 30), 1.0 + random_input(6, 5, 30) ** 2
    kept = np.broadcast_to(kept_features(6, 30, 0.4, key)[:, None], x.shape)
    gradient = gradient_of(locked_dropout, x, 0.4, key, upstream)
    np.testing.assert_allclose(gradient, np.where(kept, upstream / 0.6, 0.0), rtol=1e-6)
    table, upstream = x.reshape(30, 30), upstream.reshape(30, 30)
    kept = kept_words(30, 0.4, key)[:, None]
    assert kept.any()
    assert not kept.all()
    gradient = gradient_of(embedding_dropout, table, 0.4, key, upstream)
    np.testing.assert_allclose(gradient, np.where(kept, upstream / 0.6, 0.0), rtol=1e-6)


def test_shards_of_a_batch_draw_what_the_whole_batch_draws():
    key, x = jax.random.key(2), random_input(8, 3, 40)
    whole = np.asarray(compiled_locked(x, 0.3, key))
    np.testing.assert_array_equal(compiled_locked(x[3:5], 0.3, key, first_row=3), whole[3:5])
    assert not np.array_equal(compiled_locked(x[3:5], 0.3, key), whole[3:5])

    def shard(part):
        return locked_dropout(part, 0.3, key, first_row=jax.lax.axis_index(BATCH_AXIS) * len(part))

    shards = jax.jit(jax.vmap(shard, axis_name=BATCH_AXIS))(x.reshape(4, 2, 3, 40))
    np.testing.assert_array_equal(np.asarray(shards).reshape(x.shape), whole)


@pytest.mark.thorough
def test_same_key_gives_the_same_mask_with_and_without_jit():
    key, x = jax.random.key(5), random_input(4, 3, 20)
    for function, compiled, array in (
        (locked_dropout, compiled_locked, x),
        (embedding_dropout, compiled_embedding, x[0]),
    ):
        np.testing.assert_array_equal(function(array, 0.3, key), compiled(array, 0.3, key))


def test_rate_zero_changes_nothing():
    x = random_input(3, 4, 5)
    np.testing.assert_array_equal(locked_dropout(x, 0.0, jax.random.key(0)), x)
    np.testing.assert_array_equal(embedding_dropout(x[0], 0.0, jax.random.key(0)), x[0])


def test_bfloat16_stays_bfloat16_with_the_mask_of_float32():
    key, ones = jax.random.key(1), np.ones((5, 4, 30), np.float32)
    for function, array in ((compiled_locked, ones), (compiled_embedding, ones[:, 0])):
        found = function(array.astype(jnp.bfloat16), 0.5, key)
        assert found.dtype == jnp.bfloat16
        np.testing.assert_array_equal(np.asarray(found, np.float32), function(array, 0.5, key))


def test_dropped_elements_are_zero_even_where_the_input_is_infinite():
    key, x = jax.random.key(1), np.full((4, 2, 50), np.inf, np.float32)
    kept = np.asarray(jax.jit(keep_mask, static_argnums=(1, 2))(key, (4, 50), 0.5))[:, None]
    np.testing.assert_array_equal(compiled_locked(x, 0.5, key), np.where(np.broadcast_to(kept, x.shape), np.inf, 0.0))
    kept = kept_words(50, 0.5, key)[:, None]
    found = compiled_embedding(np.full((50, 3), np.inf, np.float32), 0.5, key)
    np.testing.assert_array_equal(found, np.where(np.broadcast_to(kept, found.shape), np.inf, 0.0))


@pytest.mark.parametrize("rate", [-0.1, 1.0, 1.5, float("nan")])
def test_rate_outside_its_interval_is_named(rate):
    key, x = jax.random.key(0), random_input(2, 3, 4)
    for function in (lambda: locked_dropout(x, rate, key), lambda: embedding_dropout(x[0], rate, key)):
        with pytest.raises(ValueError, match=re.escape(f"dropout rate must be in [0, 1), got {rate}")):
            function()


@pytest.mark.parametrize("rate", [0.0, 0.5])
@pytest.mark.parametrize(
    ("function", "shape", "message"),
    [
        (locked_dropout, (4, 5), "expected x [B, T, D], got x (4, 5)"),
        (locked_dropout, (2, 3, 4, 5), "expected x [B, T, D], got x (2, 3, 4, 5)"),
        (embedding_dropout, (5,), "expected table [V, D], got table (5,)"),
        (embedding_dropout, (3, 4, 5), "expected table [V, D], got table (3, 4, 5)"),
    ],
)
def test_arrays_of_another_rank_are_named_at_any_rate(function, shape, message, rate):
    with pytest.raises(ValueError, match=re.escape(message)):
        function(np.ones(shape, np.float32), rate, jax.random.key(0))


@pytest.mark.parametrize("function", [locked_dropout, embedding_dropout])
def test_no_mask_is_kept_for_the_backward_pass(function):
    x = random_input(4, 9, 50)[: None if function is locked_dropout else 1].reshape(-1, 50)
    x = x.reshape(4, 9, 50) if function is locked_dropout else x
    _, vjp = jax.eval_shape(lambda x: jax.vjp(lambda x: function(x, 0.3, jax.random.key(0)), x), x)
    assert sum(leaf.size for leaf in jax.tree.leaves(vjp)) < 5
