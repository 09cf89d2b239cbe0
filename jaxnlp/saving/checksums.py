"""Checksums of arrays that do not depend on how devices and processes share them.

The checksum is the sum of the array's words, each times an odd number given by its index, modulo 2^32. Each process
adds up its own words. A changed bit always changes the sum.
"""

from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from jaxnlp.typing import PyTree

FACTOR = 0x9E3779B1
"""2^32 divided by the golden ratio, so that the factors of neighbours differ in many bits."""
CHUNK = 2**16
"""Words to add up at once, which fit in the caches."""


def checksums(tree: PyTree) -> dict[str, int]:
    """The checksum of each array, by its path in the tree.

    Args: tree: NumPy arrays, whole in each process, or JAX's. If processes share one, all must call this.
    """
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    sums = np.array([_of_this_process(leaf) for _, leaf in leaves], np.uint32)
    shared = np.array([not is_whole(leaf) for _, leaf in leaves], bool)
    if shared.any():
        sums = np.where(shared, multihost_utils.process_allgather(sums).sum(axis=0, dtype=np.uint32), sums)
    return {jax.tree_util.keystr(path): int(value) for (path, _), value in zip(leaves, sums, strict=True)}


def array_bytes(array: Any) -> np.ndarray:
    """An array's values, of any shape, as bytes [N] uint8; Python's buffers do not support bfloat16."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def is_whole(array: Any) -> bool:
    """Whether this process has all of an array."""
    return not isinstance(array, jax.Array) or array.is_fully_addressable or array.is_fully_replicated


def _of_this_process(array: Any) -> int:
    if not isinstance(array, jax.Array) or array.is_fully_replicated:
        return _sum(np.asarray(array).reshape(-1), (np.size(array),), (0,))
    return (
        sum(
            _sum(np.asarray(shard.data), array.shape, tuple(part.start or 0 for part in shard.index))
            for shard in array.addressable_shards
            if shard.replica_id == 0
        )
        % 2**32
    )


def _sum(part: np.ndarray, shape: tuple[int, ...], start: tuple[int, ...]) -> int:
    """The weighted sum of the words of a part of an array.

    Args:
      part: [...], of any type.
      shape: of the whole array.
      start: the index of the part's first element in it.
    """
    words, per_element = _words(part)
    strides = per_element * np.cumprod([1, *shape[:0:-1]], dtype=np.uint64)[::-1]
    total, rows = 0, max(1, CHUNK // max(1, words[:1].size))
    for first in range(0, len(words), rows):
        chunk = words[first : first + rows]
        index = np.arange(per_element, dtype=np.uint32)
        for axis in reversed(range(part.ndim)):
            begin = start[axis] + (first if axis == 0 else 0)
            places = np.arange(begin, begin + chunk.shape[axis], dtype=np.uint64) * strides[axis]
            index = places.astype(np.uint32).reshape(-1, *[1] * (part.ndim - axis)) + index
        total += int(((index * np.uint32(FACTOR) | np.uint32(1)) * chunk).sum(dtype=np.uint32))
    return total % 2**32


def _words(part: np.ndarray) -> tuple[np.ndarray, int]:
    """Words [..., N] of at most 32 bits of an array [...], and N, the number of words of an element."""
    part = np.ascontiguousarray(part).reshape(part.shape)
    size = part.dtype.itemsize
    word = np.dtype(f"u{min(size, 4)}")
    return part.reshape(*part.shape, 1).view(word), max(1, size // 4)
