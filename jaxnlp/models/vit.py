"""The Vision Transformer: an image as a sequence of patches.

Axes that the library's glossary does not have: I rows or columns of an image, R channels, P pixels of a patch times
channels. T is the number of patches, plus 1 with a class token.

Source: Dosovitskiy et al. 2021. Differs: positions may be fixed, and the stem may be convolutional (Xiao et al. 2021).
"""

import dataclasses
import functools
import math
from typing import Any, ClassVar, Literal

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.nn.initializers import normal

from jaxnlp.config import Count, Rate
from jaxnlp.models import Parameter, parameter_table
from jaxnlp.models.classifier import ClassifierConfig
from jaxnlp.nn.attention import SelfAttention
from jaxnlp.nn.compute import TransformerCompute
from jaxnlp.nn.dense import INITIAL_STDDEV, Dense
from jaxnlp.nn.dropout import Dropout
from jaxnlp.nn.feed_forward import FeedForward, gelu
from jaxnlp.nn.normalization import LayerNorm
from jaxnlp.nn.transformer import TransformerBlock, rows, stack
from jaxnlp.ops.matrix_products import added
from jaxnlp.ops.positions import sinusoidal_positions
from jaxnlp.typing import Params


@dataclasses.dataclass(frozen=True)
class ViTConfig(ClassifierConfig):
    """A Transformer encoder on the patches of an image."""

    reads: ClassVar[tuple[str, ...]] = ("images",)
    has_rollout: ClassVar[bool] = True

    compute: TransformerCompute = dataclasses.field(default_factory=TransformerCompute, kw_only=True)
    patch: Count = 4
    """Rows and columns of a patch in pixels; must divide the size of the images."""
    num_layers: Count = 6
    """Number of blocks, L."""
    num_heads: Count = 4
    """Attention heads, H; must divide the width."""
    width: Count = 128
    """Model width, D."""
    feed_forward_width: Count | None = None
    """Width of the feed-forward layers, F; None = 4 x width."""
    stem: Literal["patches", "convolutional"] = "patches"
    """Layer that turns patches into vectors: one dense layer, as published, or convolutions that halve the image until
    a patch is a pixel."""
    positions: Literal["learned", "sinusoidal_2d"] = "learned"
    """A learned vector for each patch, or fixed sines and cosines of its row and of its column."""
    pooling: Literal["cls", "mean"] = "cls"
    """Input of the classifier: the vector of a class token before the patches (cls), or the mean over the patches."""
    dropout_rate: Rate = 0.1
    """Share of embeddings and of each branch's outputs dropped in training."""
    attention_dropout_rate: Rate = 0.0
    """Share of attention weights dropped in training."""
    layer_dropout_rate: Rate = 0.0
    """Share of the branches skipped by each image in training (stochastic depth)."""

    def __post_init__(self):
        super().__post_init__()
        if self.width % self.num_heads:
            raise ValueError(f"model.num_heads must divide model.width, got {self.num_heads} and {self.width}")
        if self.positions == "sinusoidal_2d" and self.width % 4:
            raise ValueError(f"model.width must be divisible by 4 for sinusoidal positions, got {self.width}")
        if self.stem == "convolutional" and (self.patch < 2 or self.patch & (self.patch - 1)):
            raise ValueError(f"model.patch must be 2, 4, 8, ... for a convolutional stem, got {self.patch}")

    @property
    def convolutions(self) -> int:
        """Number of convolutions in the stem; each halves the image."""
        return int(math.log2(self.patch)) if self.stem == "convolutional" else 0

    def check(self, processor: Any) -> None:
        if processor.size % self.patch:
            raise ValueError(
                f"model.patch must divide the size of the images, {processor.size} pixels, got {self.patch}"
            )

    def build(self, processor: Any) -> "ViT":
        return ViT(self, processor.size, processor.mean, processor.stddev, len(processor.classes))

    def inputs(self, processor: Any) -> tuple[jax.ShapeDtypeStruct, ...]:
        return (jax.ShapeDtypeStruct((1, *processor.shape), jnp.uint8),)

    def parameter(self, path: tuple[str, ...]) -> Parameter:
        stem = parameter_table.dense(("stem", "project"), "PD")
        for index in range(self.convolutions):
            stem |= parameter_table.dense(("stem", f"convolution_{index}"), "PD")
            stem |= parameter_table.norm(("stem", f"norm_{index}"))
        stem |= {("positions",): "TD"} if self.positions == "learned" else {}
        stem |= {("class_token",): "D"} if self.pooling == "cls" else {}
        table = parameter_table.entries(stem, "below")
        table |= parameter_table.entries(parameter_table.block(), 0, prefix=("blocks",), stacked=True)
        table |= parameter_table.entries(parameter_table.norm(("final_norm",)))
        table |= parameter_table.entries(parameter_table.dense(("head",), "DC"), head=True)
        return parameter_table.find(table, path)


def patches_of(images: jax.Array, patch: int) -> jax.Array:
    """[B, I, I, R] as [B, I / patch, I / patch, P]: the pixels of each patch, row by row, each with its channels."""
    batch, size, _, channels = images.shape
    side = size // patch
    x = images.reshape(batch, side, patch, side, patch, channels)
    return x.transpose(0, 1, 3, 2, 4, 5).reshape(batch, side, side, patch * patch * channels)


def windows_of(x: jax.Array) -> jax.Array:
    """[B, I, I, R] as [B, I / 2, I / 2, 9 R]: the 3 x 3 pixels around every other pixel of every other row."""
    size, padded = x.shape[1], jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    return jnp.concatenate([padded[:, i : i + size : 2, j : j + size : 2] for i in range(3) for j in range(3)], axis=-1)


def sinusoidal_positions_2d(side: int, width: int) -> jax.Array:
    """A fixed vector for each position of a square: sines and cosines of its row, then those of its column.

    Args:
      side: rows and columns of the square.
      width: D, divisible by 4.

    Returns:
      [side * side, D], row by row, float32.

    Source: Beyer, Zhai and Kolesnikov 2022, section 3, who use the same for plain ViTs.
    """
    half = sinusoidal_positions(side, width // 2)
    rows = jnp.repeat(half, side, axis=0)
    return jnp.concatenate([rows, jnp.tile(half, (side, 1))], axis=1)


class Stem(nn.Module):
    """Turns pixels into a vector for each patch.

    Attributes:
      config: its variant.
    """

    config: ViTConfig

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Args: x [B, I, I, R], float. Returns: [B, I / patch, I / patch, D].

        A convolution of 3 x 3 pixels and stride 2 is a dense layer on windows, so that Muon and weight decay see a
        matrix.
        """
        chex.assert_rank(x, 4)
        config, compute, patch = self.config, self.config.compute, self.config.patch
        dense = functools.partial(Dense, kernel_init=nn.initializers.lecun_normal(), compute=compute)
        for index in range(config.convolutions):
            patch //= 2
            windows = windows_of(x)
            x = dense(config.width // patch, name=f"convolution_{index}")(rows(windows))
            x = gelu(LayerNorm(compute=compute, name=f"norm_{index}")(x)).reshape(*windows.shape[:3], -1)
        patches = patches_of(x, patch)
        return dense(config.width, name="project")(rows(patches)).reshape(*patches.shape[:3], -1)


class ViT(nn.Module):
    """Scores the classes of an image.

    Attributes:
      config: shape and variants.
      size: rows and columns of an image, I.
      mean: of each channel, for pixels in [0, 1].
      stddev: of each channel.
      classes: C.
    """

    config: ViTConfig
    size: int
    mean: tuple[float, ...]
    stddev: tuple[float, ...]
    classes: int

    @property
    def side(self) -> int:
        """Number of patches in a row, and number of rows."""
        return self.size // self.config.patch

    @nn.compact
    def __call__(self, images: jax.Array, *, deterministic: bool = True) -> jax.Array:
        """Scores the classes.

        Args:
          images: [B, I, I, R] uint8; they are normalised here, on the device.
          deterministic: no dropout; otherwise the random stream `dropout` is needed.

        Returns:
          Logits [B, C], float32.

        Raises: ValueError for images of another type than uint8.
        """
        config, compute = self.config, self.config.compute
        if images.dtype != jnp.uint8:
            raise ValueError(f"images must be uint8, from 0 to 255, got {images.dtype}")
        chex.assert_shape(images, (None, self.size, self.size, len(self.mean)))
        mean, stddev = (jnp.array(values, jnp.float32)[None, None, None] for values in (self.mean, self.stddev))
        x = ((images.astype(jnp.float32) / 255.0 - mean) / stddev).astype(compute.activation_dtype)
        x = Stem(config, name="stem")(x).reshape(images.shape[0], self.side**2, config.width)
        if config.positions == "learned":
            table = self.param("positions", normal(INITIAL_STDDEV), (self.side**2, config.width))
        else:
            table = sinusoidal_positions_2d(self.side, config.width)
        x = added(x, table[None])
        if config.pooling == "cls":
            token = self.param("class_token", normal(INITIAL_STDDEV), (config.width,)).astype(compute.activation_dtype)
            x = jnp.concatenate([jnp.broadcast_to(token, (x.shape[0], 1, config.width)), x], axis=1)
        x = Dropout(config.dropout_rate)(x, deterministic=deterministic)
        block = functools.partial(
            TransformerBlock,
            functools.partial(
                SelfAttention,
                config.num_heads,
                causal=False,
                attention_dropout_rate=config.attention_dropout_rate,
                dropout_rate=config.dropout_rate,
                compute=compute,
            ),
            functools.partial(
                FeedForward,
                config.feed_forward_width or 4 * config.width,
                dropout_rate=config.dropout_rate,
                compute=compute,
            ),
            functools.partial(LayerNorm, compute=compute),
            layer_dropout_rate=config.layer_dropout_rate,
        )
        x = stack(block, config.num_layers, compute, x, deterministic=deterministic).hidden
        x = LayerNorm(compute=compute, name="final_norm")(x)
        x = x[:, 0] if config.pooling == "cls" else x.mean(axis=1)
        chex.assert_shape(x, (images.shape[0], config.width))
        return Dense(self.classes, compute=compute, name="head")(x).astype(jnp.float32)

    def attention_rollout(self, params: Params, images: jax.Array) -> jax.Array:
        """The share of each patch in the prediction, [B, I / patch, I / patch]; those of an image sum to 1.

        The product over the layers of (mean over heads of the attention + identity) / 2. The result is the class
        token's row of it, or the mean over the rows, without the column of the class token.

        Source: Abnar and Zuidema 2020, eq. 1 and 2.
        """
        _, state = self.apply({"params": params}, images, mutable=["intermediates"])
        (weights,) = jax.tree.leaves(state["intermediates"]["blocks"])  # [L, B, H, T, T]
        mixed = (weights.mean(axis=2) + jnp.eye(weights.shape[-1])[None, None]) / 2.0
        rolled = functools.reduce(lambda below, layer: layer @ below, mixed)
        read = rolled[:, 0, 1:] if self.config.pooling == "cls" else rolled.mean(axis=1)
        shares = read / read.sum(axis=-1, keepdims=True)
        return shares.reshape(images.shape[0], self.side, self.side)
