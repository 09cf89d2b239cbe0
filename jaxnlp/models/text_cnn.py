"""A convolutional network for texts: features of windows of words of several sizes (`nn.convolution`).

E is the number of features of all windows, F that of one.

Source: Kim 2014. With two channels each feature map has separate weights for each channel.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from jaxnlp.config import Count, Window
from jaxnlp.models import Parameter, parameter_table
from jaxnlp.models.word_classifier import WordClassifier, WordClassifierConfig
from jaxnlp.nn.convolution import Convolution


@dataclasses.dataclass(frozen=True)
class TextCNNConfig(WordClassifierConfig):
    """Shape and regularisers of a convolutional classifier of texts."""

    windows: tuple[Window, ...] = (3, 4, 5)
    """Window sizes in words."""
    feature_maps: Count = 100
    """Feature maps of each window, F."""

    def __post_init__(self):
        super().__post_init__()
        if not self.windows or len(set(self.windows)) < len(self.windows):
            raise ValueError(f"model.windows needs distinct numbers of words, got {self.windows}")

    def build(self, processor: Any) -> "TextCNN":
        return TextCNN(self, processor.vocabulary_size, processor.outputs)

    def parameter(self, path: tuple[str, ...]) -> Parameter:
        table = self.parameters_around("EC")
        for window in self.windows:
            table |= parameter_table.entries(parameter_table.affine((f"convolution_{window}",), "JF"), 0)
        return parameter_table.find(table, path)


class TextCNN(WordClassifier):
    """Scores the classes of a text. Attributes: as `WordClassifier`."""

    config: TextCNNConfig

    def setup(self):
        super().setup()
        config = self.config
        self.convolution = {
            str(window): Convolution(window, config.feature_maps, config.compute) for window in config.windows
        }

    def features(self, x: jax.Array, attention_mask: jax.Array, *, deterministic: bool) -> jax.Array:
        del deterministic
        return jnp.concatenate([layer(x, attention_mask) for layer in self.convolution.values()], axis=-1)
