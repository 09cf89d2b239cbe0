"""A decoder's cache: static shapes, so that decoding compiles once."""

import flax.struct
import jax
import jax.numpy as jnp

from jaxnlp.typing import PyTree

LayerCache = tuple[jax.Array, ...]
"""What one layer keeps of earlier positions, each array [B, ..., S, width]; S is the capacity.

Self-attention keeps keys and values [B, H, S, K], the Synthesizer values alone, the Perceiver its inputs [B, S, D].
Heads before positions, as attention's products want them: otherwise each token would transpose the whole cache.
"""


@flax.struct.dataclass
class KVCache:
    """What a decoder keeps of the positions that it has read: for most, their keys and values.

    Attributes:
      layers: of each layer that keeps anything, arrays of its own. A token writes its place in each. One array [L, ...]
        would be put together anew for each token.
      length: [] int32, how many positions are filled. The others are never attended to.
    """

    layers: tuple[LayerCache, ...]
    length: jax.Array


def cache_rows(cache: PyTree, rows: jax.Array) -> PyTree:
    """These rows of each array of a cache; a scalar holds for all rows."""
    return jax.tree.map(lambda leaf: leaf[rows] if jnp.ndim(leaf) else leaf, cache)


def log_coverage(attended: jax.Array, source_mask: jax.Array) -> jax.Array:
    """How much of a source has been attended to: sum_s log min(attended_s, 1), [B]; 0 = all of it.

    Args:
      attended: [B, S], sums of attention weights over the target's positions.
      source_mask: [B, S] bool, which source tokens count.

    Source: Wu et al. 2016, section 7, eq. 14.
    """
    logs = jnp.log(jnp.clip(attended, jnp.finfo(attended.dtype).tiny, 1.0))
    return jnp.where(source_mask, logs, 0.0).sum(axis=1)
