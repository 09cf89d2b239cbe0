"""The key-value cache of a decoder: static shapes, so that decoding compiles once."""

import flax.struct
import jax

LayerCache = tuple[jax.Array, jax.Array]
"""Keys and values of one layer's earlier positions, each [B, H, S, K]; S is the capacity.

Heads before positions, as attention's products want them: otherwise each token would transpose the whole cache.
"""


@flax.struct.dataclass
class KVCache:
    """Keys and values of the positions that a decoder has read.

    Attributes:
      layers: of each of the L layers. Arrays of their own: a token then writes its own place in each, where one
        array [L, ...] would be put together anew.
      length: [] int32, how many positions are filled. Whatever lies behind them is never attended to.
    """

    layers: tuple[LayerCache, ...]
    length: jax.Array

    @property
    def capacity(self) -> int:
        """S."""
        return self.layers[0][0].shape[2]
