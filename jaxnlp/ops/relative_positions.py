"""Distances between queries and keys as indices of learned vectors or biases."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxnlp.ops.checks import expect


def relative_buckets(
    query_positions: jax.Array,
    key_positions: jax.Array,
    *,
    num_buckets: int = 32,
    max_distance: int = 128,
    bidirectional: bool,
) -> jax.Array:
    """The bucket of the distance between each query and each key: exact for near keys, wider the farther away.

    With N buckets a direction, E = N // 2, and n the number of positions between query and key:

        bucket = n                                                              n < E
        bucket = min(E + floor(log(n / E) / log(max_distance / E) (N - E)), N - 1)    otherwise

    With `bidirectional` N is half of num_buckets, and keys after the query have the second half. Otherwise they share
    bucket 0 with the query's own position. A bias [num_buckets, H] becomes one of attention scores:

    >>> positions = jnp.arange(4)
    >>> buckets = relative_buckets(positions, positions, num_buckets=8, max_distance=16, bidirectional=True)
    >>> table = jnp.zeros((8, 2))
    >>> table[buckets].transpose(2, 0, 1)[None].shape
    (1, 2, 4, 4)

    Args:
      query_positions: [..., T] int.
      key_positions: [..., S] int, the same leading axes.
      num_buckets: of both directions together.
      max_distance: keys at this distance or farther share the last bucket of their direction.
      bidirectional: True in encoders; False where queries do not see later keys.

    Returns:
      [..., T, S] int32, in [0, num_buckets).

    Raises: ValueError when shapes do not fit, positions are not int, num_buckets is below 2 a direction or odd with
      `bidirectional`, or max_distance is not above E.

    Source: Raffel et al. 2020, section 2.1; the formula is from its code and Transformers, in float32.
    """
    distances = _distances(query_positions, key_positions)
    if bidirectional and num_buckets % 2:
        raise ValueError(f"num_buckets must be even for two directions, got {num_buckets}")
    of_one_direction = num_buckets // 2 if bidirectional else num_buckets
    exact = of_one_direction // 2
    if exact < 1:
        raise ValueError(f"num_buckets must be at least {4 if bidirectional else 2}, got {num_buckets}")
    if max_distance <= exact:
        raise ValueError(f"max_distance must be above {exact}, which has its own bucket, got {max_distance}")
    table = jnp.asarray(_bucket_of_distance(of_one_direction, exact, max_distance))
    before = jnp.abs(distances) if bidirectional else jnp.maximum(-distances, 0)
    buckets = table[jnp.minimum(before, max_distance)]
    return buckets + of_one_direction * (distances > 0).astype(jnp.int32) if bidirectional else buckets


def _bucket_of_distance(buckets: int, exact: int, max_distance: int) -> np.ndarray:
    """[max_distance + 1] int32, once in NumPy, because the logarithms of other devices round differently."""
    distances = np.arange(max_distance + 1)
    logarithms = np.log(np.maximum(distances, exact).astype(np.float32) / np.float32(exact))
    shares = logarithms / np.float32(np.log(max_distance / exact))
    far = exact + (shares * np.float32(buckets - exact)).astype(np.int32)
    return np.where(distances < exact, distances, np.minimum(far, buckets - 1)).astype(np.int32)


def clipped_distances(query_positions: jax.Array, key_positions: jax.Array, *, max_distance: int) -> jax.Array:
    """The distance from each query to each key as an index into 2 max_distance + 1 learned vectors.

    index = clip(s - t, -max_distance, max_distance) + max_distance

    Args:
      query_positions: t, [..., T] int.
      key_positions: s, [..., S] int, the same leading axes.
      max_distance: keys farther away share the index of this distance.

    Returns:
      [..., T, S] int32, in [0, 2 max_distance].

    Raises: ValueError when shapes do not fit, positions are not int, or max_distance is below 0.

    Source: Shaw et al. 2018, section 3.2, eq. 4.
    """
    if max_distance < 0:
        raise ValueError(f"max_distance must be at least 0, got {max_distance}")
    return jnp.clip(_distances(query_positions, key_positions), -max_distance, max_distance) + max_distance


def _distances(query_positions, key_positions) -> jax.Array:
    """Key position minus query position [..., T, S]."""
    fit = query_positions.ndim > 0 and query_positions.shape[:-1] == key_positions.shape[:-1]
    arrays = {"query_positions": query_positions, "key_positions": key_positions}
    expect(fit, "query_positions [..., T] and key_positions [..., S]", **arrays)
    for name, positions in arrays.items():
        if not jnp.issubdtype(positions.dtype, jnp.integer):
            raise ValueError(f"{name} must be int, got {positions.dtype}")
    return key_positions[..., None, :].astype(jnp.int32) - query_positions[..., :, None].astype(jnp.int32)
