"""Attention masks: boolean, True = may attend, broadcastable to [B, H, T, S]; combine them with `&`."""

import jax
import jax.numpy as jnp
import numpy as np


def causal(queries: int, keys: int, *, first_query: int | jax.Array = 0) -> jax.Array:
    """Each query sees the keys at its own position and before. T and S may differ.

    Args:
      queries: T.
      keys: S; key s is at position s.
      first_query: position of the first query, above 0 with cached keys.

    Returns:
      [1, 1, T, S] bool.
    """
    return not_later(first_query + jnp.arange(queries), jnp.arange(keys))


def not_later(query_positions: jax.typing.ArrayLike, key_positions: jax.typing.ArrayLike) -> jax.Array:
    """Each query sees the keys at its own position and before, for any positions of both.

    Args:
      query_positions: [T] int.
      key_positions: [S] int, in any order.

    Returns:
      [1, 1, T, S] bool.
    """
    query_positions, key_positions = jnp.asarray(query_positions), jnp.asarray(key_positions)
    return (key_positions[None, :] <= query_positions[:, None])[None, None]


HIDDEN = -1000.0
"""Maximum of an additive mask where a query may not attend."""


def from_additive(mask: jax.Array) -> jax.Array:
    """The boolean mask that equals an additive mask, where 0 may attend and -inf may not.

    Args:
      mask: [...] float, each element 0 or far below any score: -inf, or -10,000 as BERT's code has it.

    Returns:
      [...] bool: True where the element is above -1,000.

    Raises: ValueError when the mask is not float: in an int mask 1 means may attend; also for other numbers, such as a
      bias by distance, unless under jit.
    """
    mask = jnp.asarray(mask)
    if not jnp.issubdtype(mask.dtype, jnp.floating):
        raise ValueError(f"an additive mask must be float, got {mask.dtype}; for 1 and 0, pass mask != 0")
    if not isinstance(mask, jax.core.Tracer):
        values = np.asarray(mask)  # NumPy compiles no programs for this check
        others = values[(values != 0.0) & ~(values <= HIDDEN)]
        if others.size:
            raise ValueError(
                f"an additive mask must have only 0 and numbers of at most {HIDDEN:,.0f}, got {float(others[0])}; "
                "pass a bias on the scores to ops.attention.dot_product_attention as bias"
            )
    return mask > HIDDEN


def padding(lengths: jax.Array, keys: int) -> jax.Array:
    """Each query sees the keys before the end of its own sequence.

    Args:
      lengths: [B] int, number of real positions.
      keys: S.

    Returns:
      [B, 1, 1, S] bool.
    """
    return (jnp.arange(keys)[None, :] < lengths[:, None])[:, None, None]


def local(queries: int, keys: int, *, before: int, after: int = 0, first_query: int | jax.Array = 0) -> jax.Array:
    """Each query sees a window around its own position.

    Args:
      queries: T.
      keys: S; key s is at position s.
      before, after: numbers of positions that a query sees before and after its own.
      first_query: position of the first query.

    Returns:
      [1, 1, T, S] bool.

    Source: Beltagy et al. 2020, section 3.1 (sliding window).
    """
    distance = jnp.arange(keys)[None, :] - (first_query + jnp.arange(queries))[:, None]
    return ((distance >= -before) & (distance <= after))[None, None]


def segments(query_segments: jax.Array, key_segments: jax.Array | None = None) -> jax.Array:
    """Each query sees the keys of its own segment, such as a document packed in a row with others.

    Args:
      query_segments: [B, T] int, the segment of each position; 0 is padding, which neither sees nor is seen.
      key_segments: [B, S]; None = the queries'.

    Returns:
      [B, 1, T, S] bool.
    """
    key_segments = query_segments if key_segments is None else key_segments
    same = query_segments[:, :, None] == key_segments[:, None, :]
    return (same & (key_segments != 0)[:, None, :])[:, None]
