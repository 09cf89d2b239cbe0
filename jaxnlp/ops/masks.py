"""Attention masks: boolean, True = may attend, broadcastable to [B, H, T, S]; combine them with `&`."""

import jax
import jax.numpy as jnp


def causal(queries: int, keys: int, *, first_query: int | jax.Array = 0) -> jax.Array:
    """Each query sees the keys at its own position and before.

    Args:
      queries: T.
      keys: S; key s stands at position s.
      first_query: position of the first query, not 0 when keys of earlier calls are cached.

    Returns:
      [1, 1, T, S] bool.
    """
    query_positions = first_query + jnp.arange(queries)
    return (jnp.arange(keys)[None, :] <= query_positions[:, None])[None, None]
