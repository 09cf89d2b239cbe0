import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxnlp.decoding.sampling import Sampling, filtered_logits
from jaxnlp.ops.largest import top_k


@pytest.mark.parametrize("jit", [False, True])
def test_equals_a_stable_sort(jit):
    x = np.random.default_rng(0).integers(0, 5, (3, 2, 9)).astype(np.float32)
    values, places = (jax.jit(top_k, static_argnums=1) if jit else top_k)(jnp.asarray(x), 4)
    expected = np.argsort(-x, axis=-1, kind="stable")[..., :4]
    assert (values.dtype, places.dtype) == (np.float32, np.int32)
    np.testing.assert_array_equal(places, expected)
    np.testing.assert_array_equal(values, np.take_along_axis(x, expected, axis=-1))


@pytest.mark.sweep(1)
@pytest.mark.parametrize("dtype", [np.float32, np.int32])
@pytest.mark.parametrize("size", [256, 300])
def test_long_rows_are_read_in_blocks_and_equals_keep_their_order(size, dtype):
    x = np.random.default_rng(2).integers(-3, 3, (4, size)).astype(dtype)
    if dtype == np.float32:
        x[x == -3] = -np.inf
        x[1] = -np.inf
    values, places = top_k(jnp.asarray(x), 2)
    expected = np.argsort(-x.astype(np.float64), axis=-1, kind="stable")[:, :2]
    np.testing.assert_array_equal(places, expected)
    np.testing.assert_array_equal(values, np.take_along_axis(x, expected, axis=-1))
    assert (values.dtype, places.dtype) == (dtype, np.int32)


@pytest.mark.parametrize("spec", [PartitionSpec(), PartitionSpec("batch")], ids=["replicated", "sharded"])
def test_several_devices_give_the_same(devices, spec):
    x = np.random.default_rng(1).normal(size=(8, 9)).astype(np.float32)
    there = jax.device_put(x, NamedSharding(Mesh(np.array(devices), ("batch",)), spec))
    _, places = jax.jit(top_k, static_argnums=1)(there, 2)
    np.testing.assert_array_equal(places, np.argsort(-x, axis=-1)[:, :2])


@pytest.mark.parametrize(
    "function",
    [lambda x: top_k(x, 5)[0][:, -1], lambda x: filtered_logits(x, Sampling(top_k=5))],
    ids=["a slice", "top-k sampling"],
)
def test_no_program_sorts_a_whole_row(function):
    for size in (100, 1000):  # without blocks, and with them
        program = jax.jit(function).lower(jnp.zeros((2, size))).compile().as_text()
        assert f"f32[2,{size}]" in program
        assert not [line for line in program.splitlines() if " sort(" in line and f",{size}]" in line]
