"""Recurrent language models: embedding, recurrent layers, output layer, and the regularisers of AWD-LSTM.

Source: Mikolov et al. 2010; Zaremba et al. 2014; Press and Wolf 2017 for tied embeddings;
Merity et al. 2018 (AWD-LSTM).
"""

import dataclasses
import math
from typing import Literal, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.nn.initializers import zeros

from jaxnlp.models import ModelConfig
from jaxnlp.nn.dense import Dense
from jaxnlp.nn.dropout import LockedDropout
from jaxnlp.nn.recurrent import CellName, LayerStates, Recurrent, empty_states, find_cell, uniform_of_width
from jaxnlp.ops.checks import expect, expect_tokens
from jaxnlp.ops.dropout import embedding_dropout
from jaxnlp.ops.matmul import matmul, operand_dtype
from jaxnlp.ops.recurrent import RecurrentImplementation
from jaxnlp.typing import Params

EMBEDDING_BOUND = 0.1
"""Initial embeddings and output weights lie uniformly in plus or minus this (Merity et al. 2018, section 5)."""

States = tuple[LayerStates, ...]


@dataclasses.dataclass(frozen=True)
class RecurrentLMConfig(ModelConfig):
    """Shape and regularisers of a recurrent language model."""

    cell: CellName = "lstm"
    """Elman's network with tanh or ReLU, GRU, or LSTM."""
    embedding_width: int = 128
    """Width of the word embeddings, D."""
    widths: tuple[int, ...] = (128, 128)
    """Width of each recurrent layer, K, first to last."""
    tie_embeddings: bool = False
    """Use the embeddings as the output layer; where the last layer is not as wide, its outputs are projected first."""
    scale_embeddings: bool = False
    """Multiply embedded words by sqrt(D): small as they begin, they hardly move the gates, and tied models stay for
    hundreds of steps at the frequencies of words."""
    use_output_bias: bool = True
    """A bias for each word in the output layer."""
    begin_at_frequencies: bool = False
    """Begin with the output bias at the logarithm of how often each token occurs in training: what else a model learns
    first, and Adam slowly, since biases move by the learning rate at most."""
    forget_bias: float = 0.0
    """LSTM: added to the initial bias of the forget gate."""
    embedding_dropout_rate: float = 0.0
    """Share of the vocabulary's words whose embeddings are zero for a whole training batch."""
    input_dropout_rate: float = 0.0
    """Share of an embedded sequence's features dropped in training, the same ones at all positions."""
    hidden_dropout_rate: float = 0.0
    """The same between the layers."""
    output_dropout_rate: float = 0.0
    """The same of the last layer's outputs."""
    weight_dropout_rate: float = 0.0
    """Share of the recurrent matrices' elements dropped in training, the same ones at all positions."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Type of the computation; parameters stay float32."""
    matmul_dtype: Literal["auto", "bfloat16"] | None = None
    """Round the operands of matrix products: faster on processors with bfloat16 instructions, slower on others. auto:
    on the former alone; None = nowhere."""
    implementation: RecurrentImplementation = "auto"
    """The library's own scan; cuDNN's LSTM on an Nvidia GPU; auto: the latter for whole batches where it can be had."""

    def __post_init__(self):
        find_cell(self.cell)
        if self.embedding_width < 1:
            raise ValueError(f"model.embedding_width must be at least 1, got {self.embedding_width}")
        if not self.widths or min(self.widths) < 1:
            raise ValueError(f"model.widths needs a layer, each at least 1 wide, got {self.widths}")
        if self.begin_at_frequencies and not self.use_output_bias:
            raise ValueError("model.begin_at_frequencies sets the output bias: it needs model.use_output_bias")
        if self.forget_bias and (self.cell != "lstm" or not math.isfinite(self.forget_bias)):
            raise ValueError(
                f"model.forget_bias must be finite, and is for an lstm alone: give 0 for cell {self.cell}, "
                f"got {self.forget_bias}"
            )
        for field in dataclasses.fields(self):
            if field.name.endswith("_rate") and not 0.0 <= getattr(self, field.name) < 1.0:
                raise ValueError(f"model.{field.name} must lie in [0, 1), got {getattr(self, field.name)}")

    def build(self, vocabulary_size: int) -> "RecurrentLM":
        return RecurrentLM(self, vocabulary_size)


class Reading(NamedTuple):
    """What a recurrent language model makes of a batch.

    Attributes:
      hidden: the output layer's input [B, T, D or K].
      outputs: of the last recurrent layer, before dropout [B, T, K].
      dropped: the same after dropout [B, T, K].
      states: after the last position.
    """

    hidden: jax.Array
    outputs: jax.Array
    dropped: jax.Array
    states: States


class RecurrentLM(nn.Module):
    """Scores for each next token.

    Attributes:
      config: shape and regularisers.
      vocabulary_size: V.
    """

    config: RecurrentLMConfig
    vocabulary_size: int

    def setup(self):
        """Layers, and the output layer's parameters, which losses take as they are."""
        config = self.config
        uniform = nn.initializers.uniform(2 * EMBEDDING_BOUND)

        def centred(*arguments):
            return uniform(*arguments) - EMBEDDING_BOUND

        self.tokens = nn.Embed(self.vocabulary_size, config.embedding_width, dtype=config.dtype, embedding_init=centred)
        self.recurrent = Recurrent(
            config.cell,
            config.widths,
            hidden_dropout_rate=config.hidden_dropout_rate,
            weight_dropout_rate=config.weight_dropout_rate,
            forget_bias=config.forget_bias,
            dtype=config.dtype,
            matmul_dtype=operand_dtype(config.matmul_dtype),
            implementation=config.implementation,
        )
        self.output_dropout = LockedDropout(config.output_dropout_rate)
        self.input_dropout = LockedDropout(config.input_dropout_rate)
        if config.tie_embeddings and config.widths[-1] != config.embedding_width:
            initial = uniform_of_width(config.widths[-1])
            self.projection = Dense(
                config.embedding_width, False, config.dtype, operand_dtype(config.matmul_dtype), initial
            )
        if not config.tie_embeddings:
            self.kernel = self.param("head_kernel", centred, (config.widths[-1], self.vocabulary_size))
        if config.use_output_bias:
            self.bias = self.param("head_bias", zeros, (self.vocabulary_size,))

    def __call__(
        self,
        tokens: jax.Array,
        *,
        deterministic: bool = True,
        cache: States | None = None,
        count: int | jax.Array | None = None,
    ):
        """Reads sequences from their start, or with a cache the next part of them.

        Args:
          tokens: [B, T] int, in [0, V).
          deterministic: no dropout; otherwise the random stream `dropout` is needed.
          cache: the states after what was read before; `tokens` follow it.
          count: [] int, how many of the T there are; None = all.

        Returns:
          Logits [B, T, V], float32: those of position t score token t + 1.
          With a cache: (logits, states after the first `count` tokens).
        """
        lengths = None if count is None else jnp.broadcast_to(jnp.asarray(count, jnp.int32), tokens.shape[:1])
        reading = self.read(tokens, cache, deterministic=deterministic, lengths=lengths)
        w, b = self._output_layer()
        rows = reading.hidden.reshape(-1, reading.hidden.shape[-1])
        # With a cache there are few rows, and to round the weights for them takes longer than the product.
        logits = matmul(rows, w, operand_dtype(self.config.matmul_dtype) if cache is None else None).astype(jnp.float32)
        logits = logits if b is None else logits + b[None]
        logits = logits.reshape(*tokens.shape, self.vocabulary_size)
        return logits if cache is None else (logits, reading.states)

    def read(
        self,
        tokens: jax.Array,
        states: States | None = None,
        *,
        deterministic: bool = True,
        lengths: jax.Array | None = None,
    ) -> Reading:
        """All but the output layer, for losses and for what remembers hidden states.

        Args:
          tokens: [B, T] int, in [0, V); of others the outputs are NaN.
          states: before the first position; None = zeros.
          deterministic: no dropout.
          lengths: [B] int, how many positions there are; None = all.
        """
        config = self.config
        tokens = jnp.where(tokens < 0, self.vocabulary_size, tokens)  # which would be counted from the last word
        x = self.tokens(tokens)
        if config.scale_embeddings:
            x = x * jnp.asarray(config.embedding_width**0.5, x.dtype)
        if config.embedding_dropout_rate and not deterministic:
            # A factor for each word, rather than a table of which most rows are not read.
            ones = jnp.ones((self.vocabulary_size, 1), jnp.float32)
            factors = embedding_dropout(ones, config.embedding_dropout_rate, self.make_rng("dropout"))
            x = (x.astype(jnp.float32) * factors[tokens]).astype(x.dtype)
        x = self.input_dropout(x, deterministic=deterministic)
        outputs, states = self.recurrent(x, states, deterministic=deterministic, lengths=lengths)
        hidden = dropped = self.output_dropout(outputs, deterministic=deterministic)
        if config.tie_embeddings and config.widths[-1] != config.embedding_width:
            hidden = self.projection(dropped.reshape(-1, config.widths[-1]))
            hidden = hidden.reshape(*tokens.shape, config.embedding_width)
        return Reading(hidden, outputs, dropped, states)

    def _output_layer(self) -> tuple[jax.Array, jax.Array | None]:
        w = self.tokens.embedding.T if self.config.tie_embeddings else self.kernel
        return w, (self.bias if self.config.use_output_bias else None)

    def output_layer(self, params: Params) -> tuple[jax.Array, jax.Array | None]:
        """W [D or K, V] and b [V] or None: logits = hidden W + b."""
        w = params["tokens"]["embedding"].T if self.config.tie_embeddings else params["head_kernel"]
        return w, params.get("head_bias")

    def bias_at_frequencies(self, token_counts: jax.typing.ArrayLike) -> Params:
        """Those parameters, an output bias, that score each token as often as it occurs, [V] int; never as once."""
        counts = jnp.asarray(token_counts, jnp.float32) + 1.0
        return {"head_bias": jnp.log(counts / counts.sum())}

    def embeddings(self, params: Params) -> jax.Array:
        """The words' embeddings [V, D]."""
        return params["tokens"]["embedding"]

    def decoding_params(self, params: Params) -> Params:
        """Parameters as reading with a cache takes them: unchanged."""
        return params

    @property
    def capacity(self) -> None:
        """States hold a text of any length."""
        return None

    def empty_cache(self, batch: int) -> States:
        """States before the first token."""
        config = self.config
        return empty_states(config.cell, config.widths, batch, dtype=config.dtype)

    def predict(self, params: Params, tokens: jax.Array) -> jax.Array:
        """Logits [B, V] of the word that follows each row of tokens [B, T].

        Raises: ValueError unless tokens are int [B, T], T at least 1, in [0, V); under jit, where nobody can look at
          their values, the logits of a row with others are NaN.
        """
        expect_tokens(tokens, self.vocabulary_size, "the text")
        tokens = jnp.asarray(tokens)
        expect(tokens.shape[1] > 0, "tokens [B, T] with T at least 1", tokens=tokens)
        reading: Reading = self.apply({"params": params}, tokens, method="read")  # type: ignore[assignment]
        return self.logits(params, reading.hidden[:, -1])

    def logits(self, params: Params, hidden: jax.Array) -> jax.Array:
        """The output layer alone, its operands not rounded: `Reading.hidden` [..., D or K] -> [..., V], float32."""
        w, b = self.output_layer(params)
        logits = matmul(hidden.reshape(-1, hidden.shape[-1]), w).astype(jnp.float32)
        logits = logits if b is None else logits + b[None]
        return logits.reshape(*hidden.shape[:-1], self.vocabulary_size)
