import jax
import numpy as np

from jaxnlp.nn.cache import KVCache

CACHE = KVCache(layers=((np.zeros((3, 4, 7, 5)), np.zeros((3, 4, 7, 5))), (np.zeros((3, 7, 20)),)), length=np.int32(6))


def test_holds_only_arrays():
    assert [np.shape(leaf) for leaf in jax.tree.leaves(CACHE)] == [(3, 4, 7, 5), (3, 4, 7, 5), (3, 7, 20), ()]


def test_passes_through_jit():
    found = jax.jit(lambda cache: cache.replace(length=cache.length + 1))(CACHE)
    assert found.length == 7
    assert jax.tree.structure(found) == jax.tree.structure(CACHE)
