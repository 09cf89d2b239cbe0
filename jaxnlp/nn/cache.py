"""The key-value cache of a decoder: static shapes, so that decoding compiles once."""

import flax.struct
import jax


@flax.struct.dataclass
class KVCache:
    """Keys and values of the positions that a decoder has read.

    Attributes:
      keys: [L, B, S, H, K]; S is the capacity.
      values: [L, B, S, H, K].
      length: [] int32, how many positions are filled. Whatever lies behind them is never attended to.
    """

    keys: jax.Array
    values: jax.Array
    length: jax.Array

    @property
    def capacity(self) -> int:
        """S."""
        return self.keys.shape[2]
