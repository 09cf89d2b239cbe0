"""Transformer blocks.

Only attention tells an example's positions apart; all else is done on rows, [B * T, D]. XLA on CPU fuses elementwise
work into one loop, and where shapes of two and three axes meet in a loop it divides to find each element's place.
"""

from typing import Any

import flax.linen as nn
import jax

from jaxnlp.nn.attention import SelfAttention
from jaxnlp.nn.cache import LayerCache
from jaxnlp.nn.feed_forward import FeedForward
from jaxnlp.nn.normalization import LayerNorm
from jaxnlp.nn.synthesizer import SynthesizerAttention
from jaxnlp.ops.attention import Implementation


def rows(x: jax.Array) -> jax.Array:
    """[B, T, D] as [B * T, D]."""
    return x.reshape(-1, x.shape[-1])


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
      attention_implementation: see `ops.attention.attend`.
      synthesizer_length: None: dot products; a number: Synthesizer attention in their place, for so many positions.

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
    attention_implementation: Implementation = "auto"
    synthesizer_length: int | None = None

    @nn.compact
    def __call__(
        self, x: jax.Array, cache: LayerCache | None, cached_positions: jax.Array | int
    ) -> tuple[jax.Array, LayerCache | None]:
        """Args: x [B, T, D], and the layer's cache. Returns: [B, T, D], and the cache with x's positions added."""
        shape, x = x.shape, rows(x)
        branch = LayerNorm(1e-5, self.dtype, self.use_bias, name="attention_norm")(x)
        arguments: dict[str, Any] = {
            "num_heads": self.num_heads,
            "attention_dropout_rate": self.attention_dropout_rate,
            "dropout_rate": self.residual_dropout_rate,
            "use_bias": self.use_bias,
            "output_stddev": self.residual_stddev,
            "dtype": self.dtype,
            "matmul_dtype": self.matmul_dtype,
            "name": "attention",
        }
        attention: SelfAttention | SynthesizerAttention
        if self.synthesizer_length is None:
            attention = SelfAttention(**arguments, implementation=self.attention_implementation)
        else:
            attention = SynthesizerAttention(**arguments, context_length=self.synthesizer_length)
        branch, cache = attention(
            branch.reshape(shape), deterministic=self.deterministic, cache=cache, cached_positions=cached_positions
        )
        x = x + rows(branch)
        branch = LayerNorm(1e-5, self.dtype, self.use_bias, name="feed_forward_norm")(x)
        branch = FeedForward(
            hidden_width=self.hidden_width,
            dropout_rate=self.residual_dropout_rate,
            approximate_gelu=True,
            use_bias=self.use_bias,
            output_stddev=self.residual_stddev,
            dtype=self.dtype,
            matmul_dtype=self.matmul_dtype,
            name="feed_forward",
        )(branch.reshape(shape), deterministic=self.deterministic)
        return (x + rows(branch)).reshape(shape), cache


class EncoderBlock(nn.Module):
    """Self-attention and a feed-forward layer, each added to its input, and normalised after or before.

    after:   x = LayerNorm(x + Attention(x));  x = LayerNorm(x + FeedForward(x))
    before:  x = x + Attention(LayerNorm(x));  x = x + FeedForward(LayerNorm(x))

    Attributes:
      num_heads: H.
      hidden_width: F.
      deterministic: no dropout. An attribute here, since `nn.scan` passes arrays alone.
      attention_dropout_rate: share of attention weights dropped in training.
      residual_dropout_rate: share of each branch's outputs dropped in training.
      pre_norm: normalise before; then nothing normalises what the last block returns.
      epsilon: of the normalisations.
      dtype: of the computation; parameters stay float32.
      matmul_dtype: what the operands of matrix products are rounded to; None = dtype.
      attention_implementation: see `ops.attention.attend`.

    Source: Vaswani et al. 2017, section 3.1 (post-norm); Devlin et al. 2019 for exact GELU; Xiong et al. 2020 for the
    order's effect.
    """

    num_heads: int
    hidden_width: int
    deterministic: bool
    attention_dropout_rate: float = 0.0
    residual_dropout_rate: float = 0.0
    pre_norm: bool = False
    epsilon: float = 1e-12
    dtype: str = "float32"
    matmul_dtype: str | None = None
    attention_implementation: Implementation = "auto"

    @nn.compact
    def __call__(self, x: jax.Array, attention_mask: jax.Array | None = None) -> tuple[jax.Array, jax.Array]:
        """Args: x [B, T, D], the mask as `nn.attention.SelfAttention`. Returns: [B, T, D], twice, for `nn.scan`."""
        shape, x = x.shape, rows(x)
        attention_norm = LayerNorm(self.epsilon, self.dtype, name="attention_norm")
        feed_forward_norm = LayerNorm(self.epsilon, self.dtype, name="feed_forward_norm")
        attention = SelfAttention(
            num_heads=self.num_heads,
            causal=False,
            attention_dropout_rate=self.attention_dropout_rate,
            dropout_rate=self.residual_dropout_rate,
            dtype=self.dtype,
            matmul_dtype=self.matmul_dtype,
            implementation=self.attention_implementation,
            name="attention",
        )
        feed_forward = FeedForward(
            hidden_width=self.hidden_width,
            dropout_rate=self.residual_dropout_rate,
            dtype=self.dtype,
            matmul_dtype=self.matmul_dtype,
            name="feed_forward",
        )

        branch = attention_norm(x) if self.pre_norm else x
        branch, _ = attention(branch.reshape(shape), deterministic=self.deterministic, attention_mask=attention_mask)
        x = x + rows(branch)
        x = x if self.pre_norm else attention_norm(x)
        branch = feed_forward_norm(x) if self.pre_norm else x
        branch = feed_forward(branch.reshape(shape), deterministic=self.deterministic)
        x = x + rows(branch)
        x = x if self.pre_norm else feed_forward_norm(x)
        x = x.reshape(shape)
        return x, x
