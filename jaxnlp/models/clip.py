"""CLIP: a text encoder and an image encoder with vectors in one space.

The text encoder is a GPT with a projected vector at the end of a text; the image encoder is a ViT.

Source: Radford et al. 2021.
"""

import dataclasses
import math
from typing import Any, ClassVar

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.nn.initializers import constant

from jaxnlp.config import Count, Natural
from jaxnlp.models import ModelConfig, Parameter, parameter_table
from jaxnlp.models.gpt import GPT, GPTConfig
from jaxnlp.models.vit import ViT, ViTConfig
from jaxnlp.nn.compute import TransformerCompute
from jaxnlp.nn.dense import Dense
from jaxnlp.nn.feed_forward import Activation
from jaxnlp.ops.normalization import unit_vectors

INITIAL_SCALE = math.log(1 / 0.07)
"""Initial logarithm of the factor of cosines, section 2.5 of the source."""


@dataclasses.dataclass(frozen=True)
class TextEncoderConfig(GPTConfig):
    """Shape of a text encoder: a GPT without an output layer."""

    activation: Activation = "quick_gelu"
    """Activation of the feed-forward layers."""
    tie_embeddings: bool = True
    """Must be True: there is no output layer."""
    projection_width: Count | None = None
    """Width of a dense layer without bias on the vector of a text; None = none."""
    end_id: Natural | None = None
    """Id of the end token: a text's vector is that of its first one. None = that of its token with the highest id."""

    def __post_init__(self):
        super().__post_init__()
        if not self.tie_embeddings:
            raise ValueError("model.tie_embeddings must be True: an encoder of texts has no output layer")

    @property
    def vector_width(self) -> int:
        """Width of the vector of a text."""
        return self.projection_width or self.width

    def build(self, processor: Any) -> "TextEncoder":  # type: ignore[override]  # a GPT scores tokens
        return TextEncoder(self, self.embeddings(processor.vocabulary.size))

    def parameter(self, path: tuple[str, ...]) -> Parameter:
        if path[:1] == ("decoder",):
            return super().parameter(path[1:])
        projection = parameter_table.dense(("projection",), "DD", use_bias=False) if self.projection_width else {}
        return parameter_table.find(parameter_table.entries(projection), path)


class TextEncoder(nn.Module):
    """The vector of a text: that of its end token, which has read all others.

    Attributes:
      config: shape and variants.
      vocabulary_size: V.
    """

    config: TextEncoderConfig
    vocabulary_size: int

    @nn.compact
    def __call__(self, tokens: jax.Array, *, deterministic: bool = True) -> jax.Array:
        """Encodes texts.

        Args:
          tokens: [B, T] int, in [0, V); T is at most the context length. Tokens after the end have no effect, unless
            `end_id` is None and their ids are higher.
          deterministic: no dropout; otherwise the random stream `dropout` is needed.

        Returns:
          Vectors [B, D] float32, after the projection if any, not normalised.
        """
        config, compute = self.config, self.config.compute
        hidden = GPT(config, self.vocabulary_size, name="decoder")(
            tokens, deterministic=deterministic, return_hidden=True
        )
        ends = tokens if config.end_id is None else tokens == config.end_id
        vectors = jnp.take_along_axis(hidden, ends.argmax(axis=1)[:, None, None], axis=1)[:, 0]
        if config.projection_width is not None:
            vectors = Dense(config.projection_width, False, compute=compute, name="projection")(vectors)
        chex.assert_shape(vectors, (tokens.shape[0], config.vector_width))
        return vectors.astype(jnp.float32)


@dataclasses.dataclass(frozen=True)
class CLIPConfig(ModelConfig):
    """Shapes of both encoders. Their vectors have the same width, and their `compute` is this config's."""

    reads: ClassVar[tuple[str, ...]] = ("tokens", "images")

    text: TextEncoderConfig = dataclasses.field(default_factory=TextEncoderConfig)
    image: ViTConfig = dataclasses.field(default_factory=ViTConfig)
    compute: TransformerCompute = dataclasses.field(default_factory=TransformerCompute, kw_only=True)

    def __post_init__(self):
        super().__post_init__()
        if self.text.vector_width != self.image.vector_width:
            raise ValueError(
                "model.text.projection_width and model.image.projection_width must be equal, got vectors of "
                f"{self.text.vector_width} and {self.image.vector_width}"
            )
        for name in ("text", "image"):
            object.__setattr__(self, name, dataclasses.replace(getattr(self, name), compute=self.compute))

    @property
    def max_length(self) -> int:
        return self.text.context_length

    @property
    def attends(self) -> bool:
        return True

    def build(self, processor: Any) -> "CLIP":
        image = self.image.build(processor.images)
        return CLIP(self, self.text.build(processor).vocabulary_size, image.size, image.mean, image.stddev)

    def inputs(self, processor: Any) -> tuple[jax.ShapeDtypeStruct, ...]:
        return (*self.text.inputs(processor), *self.image.inputs(processor.images))

    def parameter(self, path: tuple[str, ...]) -> Parameter:
        encoders = {"text": self.text, "image": self.image}
        if path[:1] and path[0] in encoders:
            return encoders[path[0]].parameter(path[1:])
        return parameter_table.find(parameter_table.entries({("logit_scale",): ""}), path)

    def image_encoder(self, trained: Any) -> Any:
        """The image encoder of a trained model with this config, a `jaxnlp.tasks.Trained`, as one."""
        processor = trained.processor.images
        params = trained.params["image"]
        return dataclasses.replace(trained, model=self.image.build(processor), params=params, processor=processor)


class CLIP(nn.Module):
    """Compares images with texts.

    Attributes:
      config: shapes and variants.
      vocabulary_size: V.
      size: rows and columns of an image.
      mean, stddev: of each channel, for pixels in [0, 1].
    """

    config: CLIPConfig
    vocabulary_size: int
    size: int
    mean: tuple[float, ...]
    stddev: tuple[float, ...]

    def setup(self):
        """Both encoders, and the logarithm of the factor of cosines, a scalar."""
        self.text = TextEncoder(self.config.text, self.vocabulary_size)
        self.image = ViT(self.config.image, self.size, self.mean, self.stddev, 0)
        self.logit_scale = self.param("logit_scale", constant(INITIAL_SCALE), ())

    def __call__(self, tokens: jax.Array, images: jax.Array, *, deterministic: bool = True) -> jax.Array:
        """Scores each text as the description of each image.

        Args:
          tokens: [B, T] int, see `TextEncoder`.
          images: [N, I, I, R] uint8, see `ViT`.
          deterministic: no dropout; otherwise the random stream `dropout` is needed.

        Returns:
          Logits [N, B], float32: the cosines of the vectors, times e to the power of `logit_scale`.
        """
        texts = unit_vectors(self.embed_texts(tokens, deterministic=deterministic))
        pictures = unit_vectors(self.embed_images(images, deterministic=deterministic))
        return pictures @ texts.T * jnp.exp(self.logit_scale)

    def embed_texts(self, tokens: jax.Array, *, deterministic: bool = True) -> jax.Array:
        """Vectors of texts [B, D]. Args: as for `TextEncoder`."""
        return self.text(tokens, deterministic=deterministic)

    def embed_images(self, images: jax.Array, *, deterministic: bool = True) -> jax.Array:
        """Vectors of images [N, D]. Args: as for `ViT`."""
        return self.image(images, deterministic=deterministic)
