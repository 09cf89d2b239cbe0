import doctest
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from transformers.models.t5.modeling_t5 import T5Attention

from jaxnlp.ops import relative_positions
from jaxnlp.ops.relative_positions import clipped_distances, relative_buckets

DISTANCES = np.arange(-300, 301)


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("num_buckets", "max_distance"), [(32, 128), (8, 16), (4, 3), (20, 200), (64, 40)])
def test_buckets_equal_those_of_transformers(num_buckets, max_distance, bidirectional):
    found = relative_buckets(
        jnp.zeros(1, jnp.int32),
        jnp.asarray(DISTANCES),
        num_buckets=num_buckets,
        max_distance=max_distance,
        bidirectional=bidirectional,
    )
    expected = T5Attention._relative_position_bucket(
        torch.tensor(DISTANCES), bidirectional=bidirectional, num_buckets=num_buckets, max_distance=max_distance
    )
    assert found.dtype == jnp.int32
    np.testing.assert_array_equal(found[0], expected)
    assert (found.min(), found.max()) == (0, num_buckets - 1)


@pytest.mark.thorough
def test_buckets_depend_on_distances_only_and_are_the_same_within_a_program():
    def buckets(queries, keys):
        return relative_buckets(queries, keys, num_buckets=8, max_distance=16, bidirectional=True)

    queries, keys = jnp.arange(5), jnp.arange(9)
    found = buckets(queries, keys)
    assert found.shape == (5, 9)
    np.testing.assert_array_equal(jax.jit(buckets)(queries + 100, keys + 100), found)
    stacked = buckets(jnp.stack([queries, queries + 3]), jnp.stack([keys, keys]))
    np.testing.assert_array_equal(stacked, jnp.stack([found, buckets(queries + 3, keys)]))


@pytest.mark.thorough
def test_near_keys_have_a_bucket_each_and_far_keys_share_the_last_one():
    found = np.asarray(
        relative_buckets(jnp.full(1, 99), jnp.arange(100), num_buckets=8, max_distance=20, bidirectional=False)
    )[0, ::-1]
    np.testing.assert_array_equal(found[:4], np.arange(4))
    np.testing.assert_array_equal(found[20:], 7)
    assert (np.diff(found) >= 0).all()


@pytest.mark.parametrize("max_distance", [0, 3])
def test_clipped_distances_are_those_of_shaw(max_distance):
    queries, keys = np.array([4, 0, 7]), np.arange(9)
    found = clipped_distances(jnp.asarray(queries), jnp.asarray(keys), max_distance=max_distance)
    expected = [[max(-max_distance, min(max_distance, s - t)) + max_distance for s in keys] for t in queries]
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == jnp.int32


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_buckets": 7}, "num_buckets must be even for two directions, got 7"),
        ({"num_buckets": 2}, "num_buckets must be at least 4, got 2"),
        ({"num_buckets": 1, "bidirectional": False}, "num_buckets must be at least 2, got 1"),
        ({"max_distance": 2}, "max_distance must be above 2, which has its own bucket, got 2"),
        ({"query_positions": jnp.zeros(3)}, "query_positions must be int, got float32"),
        ({"key_positions": jnp.zeros((2, 3), int)}, "query_positions (3,), key_positions (2, 3)"),
    ],
)
def test_what_has_no_buckets_is_refused(changes, message):
    arguments = {"query_positions": jnp.arange(3), "key_positions": jnp.arange(4), "num_buckets": 8}
    with pytest.raises(ValueError, match=re.escape(message)):
        relative_buckets(**arguments | {"max_distance": 16, "bidirectional": True} | changes)


def test_a_negative_clipping_distance_is_refused():
    with pytest.raises(ValueError, match="max_distance must be at least 0, got -1"):
        clipped_distances(jnp.arange(3), jnp.arange(3), max_distance=-1)


@pytest.mark.thorough
def test_the_example_of_the_docstring_runs():
    assert doctest.testmod(relative_positions) == (0, 4)
