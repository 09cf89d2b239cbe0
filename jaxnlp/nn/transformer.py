"""Transformer blocks."""

import flax.linen as nn
import jax

from jaxnlp.nn.attention import CausalSelfAttention, LayerCache
from jaxnlp.nn.feed_forward import FeedForward


class DecoderBlock(nn.Module):
    """Causal self-attention and a feed-forward layer, each normalised before and added to its input.

    x = x + Attention(LayerNorm(x));  x = x + FeedForward(LayerNorm(x))

    Attributes:
      num_heads: H.
      hidden_width: F.
      attention_dropout_rate: share of attention weights dropped in training.
      residual_dropout_rate: share of each branch's outputs dropped in training.
      use_bias: whether dense and normalisation layers have biases.
      residual_stddev: standard deviation of the initial weights that write to the residual stream.
      dtype: of the computation; parameters stay float32.
      deterministic: no dropout. An attribute here, since `nn.scan` passes arrays alone.
      matmul_dtype: what the operands of matrix products are rounded to; None = dtype.

    Source: Radford et al. 2019, section 2.3 (pre-norm); GELU in the tanh form of its code.
    """

    num_heads: int
    hidden_width: int
    attention_dropout_rate: float
    residual_dropout_rate: float
    use_bias: bool
    residual_stddev: float
    dtype: str
    deterministic: bool
    matmul_dtype: str | None = None

    @nn.compact
    def __call__(
        self, x: jax.Array, cache: LayerCache | None, cached_positions: jax.Array | int
    ) -> tuple[jax.Array, LayerCache | None]:
        """Args: x [B, T, D], and the layer's cache. Returns: [B, T, D], and the cache with x's positions added."""
        branch = nn.LayerNorm(1e-5, self.dtype, use_bias=self.use_bias, name="attention_norm")(x)
        branch, cache = CausalSelfAttention(
            num_heads=self.num_heads,
            attention_dropout_rate=self.attention_dropout_rate,
            dropout_rate=self.residual_dropout_rate,
            use_bias=self.use_bias,
            output_stddev=self.residual_stddev,
            dtype=self.dtype,
            matmul_dtype=self.matmul_dtype,
            name="attention",
        )(branch, deterministic=self.deterministic, cache=cache, cached_positions=cached_positions)
        x = x + branch
        branch = nn.LayerNorm(1e-5, self.dtype, use_bias=self.use_bias, name="feed_forward_norm")(x)
        branch = FeedForward(
            hidden_width=self.hidden_width,
            dropout_rate=self.residual_dropout_rate,
            approximate_gelu=True,
            use_bias=self.use_bias,
            output_stddev=self.residual_stddev,
            dtype=self.dtype,
            matmul_dtype=self.matmul_dtype,
            name="feed_forward",
        )(branch, deterministic=self.deterministic)
        return x + branch, cache
