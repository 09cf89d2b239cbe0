"""A recurrent network for texts: recurrent layers read the words, and their outputs are pooled.

With h_t the outputs of the last layer, with both directions concatenated, the pooling is

    last        the state of each direction after its last word
    mean, max   over the words, feature by feature
    attention   sum_t a_t h_t,   a = softmax(v . tanh(h_t W + b)) over the words

E is the width of h_t.

Source: Yang et al. 2016, section 2.2, for the attention; here it is over the words of a whole text. Dai and Le 2015 for
parameters of a language model at the start of training.
"""

import dataclasses
from typing import Any, Literal

import chex
import jax
import jax.numpy as jnp

from jaxnlp.config import Count, Finite, Rate
from jaxnlp.models import Adopted, Parameter, parameter_table
from jaxnlp.models.recurrent_lm import RecurrentLMConfig
from jaxnlp.models.word_classifier import WordClassifier, WordClassifierConfig
from jaxnlp.nn.dense import Dense
from jaxnlp.nn.recurrent import CellName, Recurrent, RecurrentCompute, parameter_axes, uniform_of_width
from jaxnlp.nn.transformer import rows
from jaxnlp.ops.activations import softmax
from jaxnlp.ops.matrix_products import matmul
from jaxnlp.text.encoder_texts import EncoderTexts
from jaxnlp.typing import Params


@dataclasses.dataclass(frozen=True)
class TextRNNConfig(WordClassifierConfig):
    """Shape and regularisers of a recurrent classifier of texts."""

    compute: RecurrentCompute = dataclasses.field(default_factory=RecurrentCompute, kw_only=True)
    vectors: Literal["random", "static", "non_static"] = "random"
    """Word vectors: random at first and trained; from a file and not trained (static); or from a file and trained
    (non_static)."""
    cell: CellName = "lstm"
    """Type of the recurrent layers: Elman network with tanh or ReLU, GRU, or LSTM."""
    widths: tuple[Count, ...] = (128,)
    """Width of each recurrent layer in each direction, K, first to last."""
    bidirectional: bool = True
    """Whether a second network in each layer reads the text from its end to its start."""
    pooling: Literal["last", "mean", "max", "attention"] = "last"
    """Input of the classifier: the last state of each direction, or the outputs' mean, maximum or attention-weighted
    mean."""
    forget_bias: Finite = 0.0
    """Added to the initial bias of an LSTM's forget gate."""
    hidden_dropout_rate: Rate = 0.0
    """Share of the features between layers dropped in training, the same ones at all positions."""
    weight_dropout_rate: Rate = 0.0
    """Share of the recurrent matrices' elements dropped in training, the same ones at all positions."""

    def __post_init__(self):
        super().__post_init__()
        if not self.widths:
            raise ValueError("model.widths needs at least one layer, got none")
        self.only_if(self.cell == "lstm", "the cell lstm", "forget_bias")
        self.only_if(len(self.widths) > 1, "models with several layers", "hidden_dropout_rate")

    @property
    def has_attention_weights(self) -> bool:
        return self.pooling == "attention"

    def build(self, processor: Any) -> "TextRNN":
        return TextRNN(self, processor.vocabulary_size, processor.outputs)

    def parameter(self, path: tuple[str, ...]) -> Parameter:
        axes, layers = parameter_axes(self.cell), len(self.widths)
        table = self.parameters_around("EC") | parameter_table.recurrent(axes, layers, bidirectional=self.bidirectional)
        if self.pooling == "attention":
            attention = parameter_table.dense(("attention",), "EE") | {("attention_vector",): "E"}
            table |= parameter_table.entries(attention)
        return parameter_table.find(table, path)

    def adopt(self, pretrained: Any) -> Adopted:
        """The word vectors and the recurrent layers of a language model, so in one direction; or a classifier's
        parameters."""
        theirs, processor = pretrained.model.config, pretrained.processor
        if not isinstance(theirs, RecurrentLMConfig):
            return super().adopt(pretrained)
        if not isinstance(processor, EncoderTexts):
            raise ValueError(
                f"its language model reads other tokens than a classifier, those of a {type(processor).__name__}; give "
                "a run of text_rnn_pretrain"
            )
        if theirs.scale_embeddings or theirs.mogrifier_rounds:
            raise ValueError(
                "it scales embeddings or has a mogrifier, which a classifier does not; pretrain without them"
            )
        if self.vectors != "random":
            raise ValueError(f"it has word vectors of its own; set model.vectors to random, got {self.vectors}")
        fields = {name: getattr(theirs, name) for name in ("cell", "embedding_width", "widths")}
        config = dataclasses.replace(self, **fields, bidirectional=False)
        params = {name: pretrained.params[name] for name in ("tokens", "recurrent")}
        widths = ", ".join(map(str, theirs.widths))
        note = f"word vectors and layers from {pretrained.name}: {theirs.cell} in one direction, {widths} wide"
        return Adopted(config, params, processor.vocabulary, (note,))

    def architecture(self) -> dict[str, Any]:
        fields = super().architecture()
        del fields["forget_bias"]  # it decides only initial parameters
        return fields


class TextRNN(WordClassifier):
    """Scores the classes of a text. Padding must be at the end. Attributes: as `WordClassifier`."""

    config: TextRNNConfig

    def setup(self):
        super().setup()
        config = self.config
        self.recurrent = Recurrent(
            config.cell,
            config.widths,
            bidirectional=config.bidirectional,
            hidden_dropout_rate=config.hidden_dropout_rate,
            weight_dropout_rate=config.weight_dropout_rate,
            forget_bias=config.forget_bias,
            compute=config.compute,
        )
        if config.pooling == "attention":
            width = (1 + config.bidirectional) * config.widths[-1]
            self.attention = Dense(width, kernel_init=uniform_of_width(width), compute=config.compute)
            self.attention_vector = self.param("attention_vector", uniform_of_width(width), (width,))

    def features(self, x: jax.Array, attention_mask: jax.Array, *, deterministic: bool) -> jax.Array:
        lengths = attention_mask.sum(axis=1)
        outputs, states = self.recurrent(x, deterministic=deterministic, lengths=lengths)
        chex.assert_shape(outputs, (*attention_mask.shape, None))
        match self.config.pooling:
            case "last":
                return jnp.concatenate([state[0] for state in states[-1]], axis=-1)
            case "mean":  # outputs at padding are 0
                return outputs.sum(axis=1) / jnp.maximum(lengths, 1)[:, None].astype(outputs.dtype)
            case "max":
                most = jnp.where(attention_mask[:, :, None], outputs, -jnp.inf).max(axis=1)
                return jnp.where(lengths[:, None] > 0, most, 0.0)
            case "attention":
                weights = self._weights(outputs, attention_mask).astype(outputs.dtype)
                return jnp.einsum("bt,bte->be", weights, outputs)

    def _weights(self, outputs: jax.Array, attention_mask: jax.Array) -> jax.Array:
        hidden = jnp.tanh(self.attention(rows(outputs)))
        scores = matmul(hidden, self.attention_vector[:, None]).astype(jnp.float32).reshape(attention_mask.shape)
        return softmax(jnp.where(attention_mask, scores, jnp.finfo(jnp.float32).min))

    def _attend(self, tokens: jax.Array, attention_mask: jax.Array) -> jax.Array:
        x = self.embed(tokens, attention_mask, deterministic=True)
        outputs, _ = self.recurrent(x, deterministic=True, lengths=attention_mask.sum(axis=1))
        return self._weights(outputs, attention_mask)

    def attention_weights(self, params: Params, tokens: jax.Array, attention_mask: jax.Array) -> jax.Array:
        """The attention weight of each word [B, T], float32; a text's weights sum to 1, padding has 0.

        Raises: ValueError when the pooling is not attention.
        """
        if self.config.pooling != "attention":
            raise ValueError(f"attention weights need model.pooling attention, got {self.config.pooling}")
        weights: Any = self.apply({"params": params}, tokens, attention_mask, method="_attend")
        return weights
