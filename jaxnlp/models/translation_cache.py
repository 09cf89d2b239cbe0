"""The cache of an encoder-decoder Transformer."""

import dataclasses

import flax.struct
import jax

from jaxnlp.nn.cache import LayerCache, cache_rows, log_coverage


@flax.struct.dataclass
class TranslationCache:
    """The decoder's cache.

    Attributes:
      layers: for each decoder block, keys and values of the target positions [B, H, T, K], then those of the source
        [B, H, S, K].
      source_mask: [B, S] bool, False for padding.
      length: [] int32, number of target positions that are filled.
      attended: [B, S], the attention weights on each source token, summed over the target positions so far, the mean
        over the heads of the last block; None = not counted.
    """

    layers: tuple[LayerCache, ...]
    source_mask: jax.Array
    length: jax.Array
    attended: jax.Array | None = None

    def with_rows(self, rows: jax.Array) -> "TranslationCache":
        """The cache with other rows [B], of the same sources, so their keys and values stay."""
        layers = tuple((*cache_rows(layer[:2], rows), *layer[2:]) for layer in self.layers)
        return dataclasses.replace(self, layers=layers, attended=cache_rows(self.attended, rows))

    def coverage(self) -> jax.Array:
        """sum_s log min(attended_s, 1) over the real source tokens, [B]. Raises: ValueError when `attended` is None."""
        if self.attended is None:
            raise ValueError("this cache does not count coverage; call initial_cache with count_coverage=True")
        return log_coverage(self.attended, self.source_mask)
