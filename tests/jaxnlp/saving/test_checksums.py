import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jaxnlp.saving.checksums import CHUNK, FACTOR, array_bytes, checksums

DRAW = np.random.default_rng(0)


def of(array):
    return checksums({"x": array})["['x']"]


@pytest.mark.parametrize(
    "dtype", [np.float32, np.int32, np.uint8, np.bool_, jnp.bfloat16, np.float64, np.int64], ids=str
)
def test_the_sum_is_that_of_words_times_odd_numbers_of_their_indices(dtype):
    x = DRAW.integers(0, 100, size=(3, 5)).astype(dtype)
    words = array_bytes(x).view(f"u{min(x.dtype.itemsize, 4)}")
    expected = sum(int(word) * (n * FACTOR % 2**32 | 1) for n, word in enumerate(words)) % 2**32
    assert of(x) == expected


@pytest.mark.parametrize("spec", [P(), P("a"), P(None, "b"), P("b", "a"), P(("a", "b")), P(None, ("b", "a"))], ids=str)
@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16])
def test_no_sharding_changes_the_sum(spec, dtype, devices):
    x = DRAW.normal(size=(8, 16, 3)).astype(dtype)
    mesh = jax.sharding.Mesh(np.array(devices).reshape(2, 4), ("a", "b"))
    assert of(jax.device_put(x, NamedSharding(mesh, spec))) == of(x)


def test_a_single_changed_bit_changes_the_sum():
    x = DRAW.normal(size=(7, 3)).astype(np.float32)
    for place, bit in itertools.product((0, 10, 20), range(32)):
        changed = x.copy().reshape(-1).view(np.uint32)
        changed[place] ^= np.uint32(1 << bit)
        assert of(changed.view(np.float32).reshape(x.shape)) != of(x)


def test_values_that_change_their_places_change_the_sum():
    x = DRAW.normal(size=(7, 3)).astype(np.float32)
    assert len({of(x), of(x[::-1]), of(x[:, ::-1]), of(np.ascontiguousarray(x.T).reshape(7, 3))}) == 4


def test_arrays_longer_than_a_chunk_are_added_up_whole():
    x = DRAW.normal(size=3 * CHUNK + 7).astype(np.float32)
    words = x.view(np.uint32).astype(np.uint64)
    factors = (np.arange(x.size, dtype=np.uint64) * FACTOR) % 2**32 | 1
    assert of(x) == int((words * factors % 2**32).sum()) % 2**32


@pytest.mark.parametrize("array", [np.zeros((0, 3)), np.float32(3.0), jnp.int32(4)], ids=str)
def test_empty_arrays_and_scalars_have_a_sum(array):
    assert of(array) == (int(np.asarray(array).view(np.uint32)) if np.size(array) else 0)
