"""A decoder's cache: static shapes, so that decoding compiles once."""

import flax.struct
import jax
import jax.numpy as jnp

from jaxnlp.typing import PyTree

LayerCache = tuple[jax.Array, ...]
"""The arrays that one layer keeps of earlier positions, each [B, ..., S, width]; S is the capacity.

Self-attention keeps keys and values [B, H, S, K], the Synthesizer only values, the Perceiver its inputs [B, S, D].
Heads come before positions, as in attention's products: otherwise each token would transpose the whole cache.
"""


@flax.struct.dataclass
class KVCache:
    """A decoder's cache of the positions that it has read.

    Attributes:
      layers: the arrays of each layer, in which a token writes its position. One array [L, ...] would be rebuilt for
        each token.
      length: [] int32, number of filled positions; others are never attended to.
    """

    layers: tuple[LayerCache, ...]
    length: jax.Array


def cache_rows(cache: PyTree, rows: jax.Array) -> PyTree:
    """These rows of each array of a cache; a scalar stays."""
    return jax.tree.map(lambda leaf: leaf[rows] if jnp.ndim(leaf) else leaf, cache)


def log_coverage(attended: jax.Array, source_mask: jax.Array) -> jax.Array:
    """The coverage of a source by attention: sum_s log min(attended_s, 1), [B]; 0 = all of it.

    Args:
      attended: [B, S], sums of attention weights over the target's positions.
      source_mask: [B, S] bool, False for padding.

    Source: Wu et al. 2016, section 7, eq. 14.
    """
    logs = jnp.log(jnp.clip(attended, jnp.finfo(attended.dtype).tiny, 1.0))
    return jnp.where(source_mask, logs, 0.0).sum(axis=1)
