"""The blocks of an encoder-decoder Transformer: its layers, and their parameters."""

import functools
from typing import TYPE_CHECKING, Any, Literal

import chex
import flax.linen as nn
import jax
from jax.nn.initializers import normal

from jaxnlp.models import parameter_table
from jaxnlp.models.parameter_table import Table
from jaxnlp.nn.attention import (
    CrossAttention,
    Positions,
    RelativeBias,
    RelativeVectors,
    Rotary,
    SelfAttention,
    relative_bias,
)
from jaxnlp.nn.compute import TransformerCompute
from jaxnlp.nn.dense import INITIAL_STDDEV
from jaxnlp.nn.feed_forward import FeedForward
from jaxnlp.nn.normalization import LayerNorm, RMSNorm
from jaxnlp.nn.transformer import Layer, StackOutput, TransformerBlock, stack

if TYPE_CHECKING:
    from jaxnlp.models.encoder_decoder import EncoderDecoderConfig

CLIPPED_DISTANCE = 16
"""Maximum distance of relative vectors, as published; larger distances have the same vector."""

_SHIFTS = tuple((f"{name}_norm", "bias") for name in ("attention", "cross_attention", "feed_forward"))


def buckets(config: "EncoderDecoderConfig") -> RelativeBias:
    """The buckets of a relative bias."""
    return RelativeBias(config.num_buckets, config.max_distance)


def attention_positions(config: "EncoderDecoderConfig") -> Positions:
    """The positions of self-attention within each layer."""
    kinds: dict[str, Positions] = {
        "rotary": Rotary(),
        "relative_bias": buckets(config),
        "relative_vectors": RelativeVectors(CLIPPED_DISTANCE),
    }
    return kinds.get(config.positions)


def attention(config: "EncoderDecoderConfig", kind: Any, compute: TransformerCompute, **options: Any) -> Layer:
    """Makes a `SelfAttention` or a `CrossAttention`. Args: kind: the class; options: further attributes."""
    return functools.partial(
        kind,
        config.num_heads,
        head_width=config.head_width,
        scale=None if config.scale_attention else 1.0,
        attention_dropout_rate=config.attention_dropout_rate,
        dropout_rate=config.dropout_rate,
        use_bias=config.use_bias,
        compute=compute,
        **options,
    )


def normalizer(config: "EncoderDecoderConfig", compute: TransformerCompute) -> Layer:
    """Makes a normalisation."""
    if config.normalization == "rms":
        return functools.partial(RMSNorm, config.epsilon, compute)
    return functools.partial(LayerNorm, config.epsilon, config.use_bias, compute)


def shifts(config: "EncoderDecoderConfig") -> bool:
    """Whether normalisations have a bias."""
    return config.use_bias and config.normalization == "layer"


def parameters_of_blocks(config: "EncoderDecoderConfig", side: Literal["encoder", "decoder"]) -> Table:
    """Table entries of the `Blocks` of this name."""
    own = parameter_table.self_attention(positions=attention_positions(config), use_bias=config.use_bias)
    block = parameter_table.block(own, cross=side == "decoder", gated=config.gated, use_bias=config.use_bias)
    if not shifts(config):
        block = {path: axes for path, axes in block.items() if path[-2:] not in _SHIFTS}
    table = parameter_table.entries(block, 0, prefix=(side, "blocks"), stacked=True)
    if config.positions == "shared_relative_bias":
        table |= parameter_table.entries({("relative_bias",): "NH"}, "below", prefix=(side,))
    if config.norm == "pre":
        norm = parameter_table.norm(("final_norm",), use_bias=shifts(config))
        table |= parameter_table.entries(norm, prefix=(side,))
    return table


class Blocks(nn.Module):
    """The blocks of the encoder, or of the decoder, and the final normalisation.

    Attributes:
      config: the model's config.
      cross: whether these are the decoder's blocks, which are causal and attend to a memory.
    """

    config: "EncoderDecoderConfig"
    cross: bool

    @nn.compact
    def __call__(self, x: jax.Array, compute: TransformerCompute, *, deterministic: bool, **read: Any) -> StackOutput:
        """Args: x [B, T, D]; `read` as for `nn.transformer.stack`. Returns: as `stack`."""
        config = self.config
        chex.assert_shape(x, (None, None, config.width))
        norm = normalizer(config, compute)
        block = functools.partial(
            TransformerBlock,
            attention(config, SelfAttention, compute, causal=self.cross, positions=attention_positions(config)),
            functools.partial(
                FeedForward,
                config.hidden_width,
                config.dropout_rate,
                config.activation,
                config.gated,
                config.use_bias,
                compute=compute,
            ),
            norm,
            cross=attention(config, CrossAttention, compute) if self.cross else None,
            order=config.norm,
        )
        if config.positions == "shared_relative_bias":
            table = self.param("relative_bias", normal(INITIAL_STDDEV), (config.num_buckets, config.num_heads))
            queries, caches = x.shape[1], read.get("caches")
            places = (read.get("cached_positions", 0), queries, caches[0][0].shape[2] if caches else queries)
            read["bias"] = relative_bias(table, buckets(config), *places, bidirectional=not self.cross)
        layers = config.decoder_layers if self.cross else config.num_layers
        output = stack(block, layers, compute, x, deterministic=deterministic, **read)
        if config.norm == "post":
            return output
        return output._replace(hidden=norm(name="final_norm")(output.hidden))
