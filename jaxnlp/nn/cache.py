"""A decoder's cache: static shapes, so that decoding compiles once."""

import flax.struct
import jax

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
