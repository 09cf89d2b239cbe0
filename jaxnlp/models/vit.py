"""The Vision Transformer: an image as a sequence of patches.

Further axes: I rows or columns of an image, R channels, P pixels of a patch times channels. T counts tokens (class,
distillation) and patches.

Source: Dosovitskiy et al. 2021; Touvron et al. 2021 for the distillation token; Radford et al. 2021 for CLIP's image
encoder. Differs: positions may be fixed, and the stem may be convolutional (Xiao et al. 2021).
"""

import dataclasses
import functools
import logging
import math
from typing import Any, ClassVar, Literal

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.nn.initializers import normal

from jaxnlp.config import Count, Layers, Positive, Rate
from jaxnlp.models import Adopted, Parameter, parameter_table, transformer_note, with_own_fields
from jaxnlp.models.classifier import HEAD, ClassifierConfig, matching_heads
from jaxnlp.nn.attention import SelfAttention
from jaxnlp.nn.compute import TransformerCompute
from jaxnlp.nn.dense import INITIAL_STDDEV, Dense
from jaxnlp.nn.dropout import Dropout
from jaxnlp.nn.feed_forward import Activation, FeedForward, gelu
from jaxnlp.nn.normalization import LayerNorm
from jaxnlp.nn.transformer import TransformerBlock, rows, stack
from jaxnlp.ops.interpolation import bicubic
from jaxnlp.ops.matrix_products import added
from jaxnlp.ops.normalization import unit_vectors
from jaxnlp.ops.positions import sinusoidal_positions
from jaxnlp.typing import Params

_logger = logging.getLogger(__name__)
DISTILLATION_HEAD = "distillation_head"
"""Name of the module that scores the classes by the distillation token."""


@dataclasses.dataclass(frozen=True)
class ViTConfig(ClassifierConfig):
    """A Transformer encoder on the patches of an image."""

    reads: ClassVar[tuple[str, ...]] = ("images",)
    has_rollout: ClassVar[bool] = True

    compute: TransformerCompute = dataclasses.field(default_factory=TransformerCompute, kw_only=True)
    patch: Count = 4
    """Rows and columns of a patch in pixels; must divide the size of the images."""
    num_layers: Layers = 6
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
    """A learned vector for each patch and token, or fixed sines and cosines of each patch's row and column."""
    pooling: Literal["cls", "mean"] = "cls"
    """Input of the classifier: the vector of a class token before the patches (cls), or the mean over the patches."""
    distillation: Literal["none", "token", "head"] = "none"
    """DeiT's distillation token after the class token: none; one without a head; or one with a head, whose logits are
    averaged with those of the class."""
    pooler_width: Count | None = None
    """Width of a dense layer with tanh before the classifier; None = none."""
    projection_width: Count | None = None
    """Width of a dense layer without bias before the classifier, as in CLIP; None = none."""
    unit_vectors: bool = False
    """Scale the classifier's input to length 1, so that a kernel with columns of length 1 gives cosines."""
    embedding_norm: bool = False
    """Normalise tokens and patches before the first block, as in CLIP."""
    activation: Activation = "gelu"
    """Activation of the feed-forward layers: GELU, one of its approximations, or ReLU."""
    epsilon: Positive = 1e-5
    """Epsilon of the normalisation layers."""
    qkv_bias: bool = True
    """Whether the layers of queries, keys and values have biases."""
    stem_bias: bool = True
    """Whether the dense layer on patches has a bias; CLIP's does not."""
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
        self.only_if(self.pooling == "cls", "model.pooling cls", "distillation")

    @property
    def tokens(self) -> tuple[str, ...]:
        """Names of the tokens before the patches."""
        if self.pooling == "mean":
            return ()
        return ("class_token",) if self.distillation == "none" else ("class_token", "distillation_token")

    @property
    def hidden_width(self) -> int:
        """F."""
        return self.feed_forward_width or 4 * self.width

    @property
    def vector_width(self) -> int:
        """Width of the vector of an image, which a head reads."""
        return self.projection_width or self.pooler_width or self.width

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
        stem = parameter_table.dense(("stem", "project"), "PD", use_bias=self.stem_bias)
        for index in range(self.convolutions):
            stem |= parameter_table.dense(("stem", f"convolution_{index}"), "PD")
            stem |= parameter_table.norm(("stem", f"norm_{index}"))
        stem |= {("positions",): "TD"} if self.positions == "learned" else {}
        stem |= {(token,): "D" for token in self.tokens}
        stem |= parameter_table.norm(("embedding_norm",)) if self.embedding_norm else {}
        table = parameter_table.entries(stem, "below")
        block = parameter_table.block(parameter_table.self_attention(qkv_bias=self.qkv_bias))
        table |= parameter_table.entries(block, 0, prefix=("blocks",), stacked=True)
        table |= parameter_table.entries(parameter_table.norm(("final_norm",)))
        if self.pooler_width is not None:
            table |= parameter_table.entries(parameter_table.dense(("pooler",), "DD"))
        if self.projection_width is not None:
            table |= parameter_table.entries(parameter_table.dense(("projection",), "DD", use_bias=False))
        for head in (HEAD, DISTILLATION_HEAD):
            table |= parameter_table.entries(parameter_table.dense((head,), "DC"), head=True)
        return parameter_table.find(table, path)

    def adopt(self, pretrained: Any) -> Adopted:
        """All parameters of a run, of another library's weights, or of the image encoder of a model of images and
        texts, with their shape; dropout rates stay those of this config. Heads are used only for the same classes.
        Learned positions are interpolated to the size of the images. Another library's pooler or projection is left
        out: its classifiers have none."""
        theirs = pretrained.model.config
        if hasattr(theirs, "image_encoder"):
            return self.adopt(theirs.image_encoder(pretrained))
        foreign = pretrained.folder is None and type(theirs) is type(self)
        like, notes = self, list[str]()
        if foreign:
            like = with_own_fields(theirs, self)
            notes += [transformer_note("image encoder", like, pretrained.name)]
            notes += [] if HEAD in pretrained.params else ["its head is initialised at random: the weights have none"]
            notes += [] if like.pooler_width is None else ["its pooler is not used"]
            notes += [] if like.projection_width is None else ["its projection is not used"]
        adopted = super(ViTConfig, like).adopt(pretrained)
        config: Any = adopted.config
        if foreign:
            config = dataclasses.replace(like, pooler_width=None, projection_width=None)
        apart = (HEAD, DISTILLATION_HEAD, "positions", *(("pooler", "projection") if foreign else ()))
        params = {name: value for name, value in adopted.params.items() if name not in apart}
        fitting = functools.partial(_fitting, config, pretrained)
        return Adopted(config, params, adopted.processor, (*notes, *adopted.notes), fitting)


def _fitting(config: ViTConfig, pretrained: Any, processor: Any) -> Params:
    """The pretrained heads, for the same classes, and the positions for the processor's image size."""
    params = pretrained.params
    heads = {name: params[name] for name in (HEAD, DISTILLATION_HEAD) if name in params}
    fitting = matching_heads(pretrained.name, pretrained.processor, heads, ("classes",), processor, config)
    if "positions" not in params:
        return fitting
    positions = resized_positions(params["positions"], config, processor.size)
    if len(positions) != len(params["positions"]):
        _logger.warning("the positions of %s are interpolated to images of %d pixels", pretrained.name, processor.size)
    return {**fitting, "positions": positions}


def resized_positions(positions: Any, config: ViTConfig, size: int) -> np.ndarray:
    """Learned positions, interpolated to images of another size; those of tokens stay.

    Args:
      positions: [T, D].
      config: of the model.
      size: I, rows and columns of the images.

    Returns:
      [T, D] float32, for the T of this size; unchanged for an equal number of patches.
    """
    table, tokens, side = np.asarray(positions, np.float32), len(config.tokens), size // config.patch
    old = math.isqrt(len(table) - tokens)
    if old == side:
        return table
    grid = bicubic(table[tokens:].reshape(old, old, -1), side)
    return np.concatenate([table[:tokens], grid.reshape(side * side, -1)])


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

        A convolution of 3 x 3 pixels and stride 2 is a dense layer on windows, so that Muon and weight decay apply.
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
        return dense(config.width, config.stem_bias, name="project")(rows(patches)).reshape(*patches.shape[:3], -1)


class ViT(nn.Module):
    """Scores the classes of an image, or without classes computes its vector.

    Attributes:
      config: shape and variants.
      size: rows and columns of an image, I.
      mean, stddev: of each channel, for pixels in [0, 1].
      classes: C; 0 = no head.
    """

    config: ViTConfig
    size: int
    mean: tuple[float, ...]
    stddev: tuple[float, ...]
    classes: int

    @property
    def side(self) -> int:
        """Number of patches in a row, and of rows."""
        return self.size // self.config.patch

    @nn.compact
    def __call__(self, images: jax.Array, *, deterministic: bool = True) -> jax.Array:
        """Scores the classes.

        Args:
          images: [B, I, I, R] uint8; normalised here, on the device.
          deterministic: no dropout; otherwise the random stream `dropout` is needed.

        Returns:
          Logits [B, C], float32; without classes the input [B, D] of a head, after the pooler and the projection if
          any, not scaled to length 1.

        Raises: ValueError for images of another type than uint8.
        """
        config, compute = self.config, self.config.compute
        if images.dtype != jnp.uint8:
            raise ValueError(f"images must be uint8, from 0 to 255, got {images.dtype}")
        chex.assert_shape(images, (None, self.size, self.size, len(self.mean)))
        mean, stddev = (jnp.array(values, jnp.float32)[None, None, None] for values in (self.mean, self.stddev))
        x = ((images.astype(jnp.float32) / 255.0 - mean) / stddev).astype(compute.activation_dtype)
        x = Stem(config, name="stem")(x).reshape(images.shape[0], self.side**2, config.width)
        if config.positions == "sinusoidal_2d":
            x = added(x, sinusoidal_positions_2d(self.side, config.width)[None])
        tokens = [self.param(name, normal(INITIAL_STDDEV), (config.width,)) for name in config.tokens]
        if tokens:
            before = jnp.stack(tokens)[None].astype(compute.activation_dtype)
            x = jnp.concatenate([jnp.broadcast_to(before, (x.shape[0], *before.shape[1:])), x], axis=1)
        if config.positions == "learned":
            table = self.param("positions", normal(INITIAL_STDDEV), x.shape[1:])
            x = added(x, table[None])
        if config.embedding_norm:
            norm = LayerNorm(config.epsilon, compute=compute, name="embedding_norm")
            x = norm(rows(x)).reshape(x.shape)
        x = Dropout(config.dropout_rate)(x, deterministic=deterministic)
        block = functools.partial(
            TransformerBlock,
            functools.partial(
                SelfAttention,
                config.num_heads,
                causal=False,
                attention_dropout_rate=config.attention_dropout_rate,
                dropout_rate=config.dropout_rate,
                qkv_bias=config.qkv_bias,
                compute=compute,
            ),
            functools.partial(
                FeedForward,
                config.hidden_width,
                dropout_rate=config.dropout_rate,
                activation=config.activation,
                compute=compute,
            ),
            functools.partial(LayerNorm, config.epsilon, compute=compute),
            layer_dropout_rate=config.layer_dropout_rate,
        )
        x = stack(block, config.num_layers, compute, x, deterministic=deterministic).hidden
        x = LayerNorm(config.epsilon, compute=compute, name="final_norm")(x)
        vector = x[:, 0] if config.pooling == "cls" else x.mean(axis=1)
        if config.pooler_width is not None:
            vector = jnp.tanh(Dense(config.pooler_width, compute=compute, name="pooler")(vector))
        if config.projection_width is not None:
            vector = Dense(config.projection_width, False, compute=compute, name="projection")(vector)
        chex.assert_shape(vector, (images.shape[0], config.vector_width))
        if not self.classes:
            return vector.astype(jnp.float32)
        if config.unit_vectors:
            vector = unit_vectors(vector)
        logits = Dense(self.classes, compute=compute, name=HEAD)(vector).astype(jnp.float32)
        if config.distillation == "head":
            other = Dense(self.classes, compute=compute, name=DISTILLATION_HEAD)(x[:, 1]).astype(jnp.float32)
            logits = (logits + other) / 2.0
        chex.assert_shape(logits, (images.shape[0], self.classes))
        return logits

    def attention_rollout(self, params: Params, images: jax.Array) -> jax.Array:
        """The share of each patch in the prediction, [B, I / patch, I / patch]; those of an image sum to 1.

        The product over the layers of (mean over heads of the attention + identity) / 2, averaged over the rows that a
        head reads (class token, distillation token with a head, or all), without the columns of tokens.

        Source: Abnar and Zuidema 2020, eq. 1 and 2.
        """
        _, state = self.apply({"params": params}, images, mutable=["intermediates"])
        (weights,) = jax.tree.leaves(state["intermediates"]["blocks"])  # [L, B, H, T, T]
        mixed = (weights.mean(axis=2) + jnp.eye(weights.shape[-1])[None, None]) / 2.0
        rolled = functools.reduce(lambda below, layer: layer @ below, mixed)
        tokens = len(self.config.tokens)
        heads = 2 if self.config.distillation == "head" else 1
        read = (rolled[:, :heads, tokens:] if tokens else rolled).mean(axis=1)
        shares = read / read.sum(axis=-1, keepdims=True)
        return shares.reshape(images.shape[0], self.side, self.side)
