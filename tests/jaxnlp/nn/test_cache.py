import jax
import numpy as np

from jaxnlp.nn.cache import KVCache

CACHE = KVCache(layers=((np.zeros((3, 4, 7, 5)), np.zeros((3, 4, 7, 5))),) * 2, length=np.int32(6))


def test_capacity_is_the_number_of_positions_not_those_filled():
    assert CACHE.capacity == 7


def test_passes_through_jit_with_a_capacity_known_at_compile_time():
    @jax.jit
    def read(cache):
        positions = np.arange(cache.capacity)  # NumPy takes no traced length
        return cache.replace(length=cache.length + positions.size)

    assert read(CACHE).length == 13


def test_holds_arrays_alone():
    assert [np.shape(leaf) for leaf in jax.tree.leaves(CACHE)] == [(3, 4, 7, 5)] * 4 + [()]


def test_layers_may_keep_what_they_need_in_arrays_whose_last_axes_are_positions_and_width():
    for layer in ((np.zeros((3, 4, 7, 5)),), (np.zeros((3, 7, 20)),)):
        assert KVCache(layers=(layer,), length=np.int32(0)).capacity == 7
