"""Recurrent language models: embedding, recurrent layers, output layer, and the regularisers of AWD-LSTM.

Source: Mikolov et al. 2010; Zaremba et al. 2014; Press and Wolf 2017 for tied embeddings;
Merity et al. 2018 (AWD-LSTM); Melis et al. 2020 for the mogrifier.
"""

import dataclasses
from typing import Annotated, Any, NamedTuple

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.nn.initializers import zeros

from jaxnlp.config import Count, Finite, Rate, Within
from jaxnlp.corpus import Corpus
from jaxnlp.models import Parameter, parameter_table
from jaxnlp.models.recurrent import RecurrentModelConfig
from jaxnlp.nn.dense import Dense
from jaxnlp.nn.dropout import LockedDropout, dropout_key
from jaxnlp.nn.embedding import Embed
from jaxnlp.nn.recurrent import (
    CellName,
    LayerStates,
    Recurrent,
    RecurrentCompute,
    empty_states,
    parameter_axes,
    uniform_of_width,
)
from jaxnlp.ops.checks import expect, expect_tokens
from jaxnlp.ops.dropout_masks import embedding_dropout
from jaxnlp.ops.matrix_products import matmul
from jaxnlp.typing import Params

EMBEDDING_BOUND = 0.1
"""Initial embeddings and output weights are uniform between minus and plus this (Merity et al. 2018, section 5)."""

States = tuple[LayerStates, ...]
Rounds = Annotated[int, Within("[0, 101)")]
"""Far more than any model has: a program repeats the code of a round."""


@dataclasses.dataclass(frozen=True)
class RecurrentLMConfig(RecurrentModelConfig):
    """Shape and regularisers of a recurrent language model."""

    compute: RecurrentCompute = dataclasses.field(default_factory=RecurrentCompute, kw_only=True)
    cell: CellName = "lstm"
    """Type of the recurrent layers: Elman network with tanh or ReLU, GRU, or LSTM."""
    embedding_width: Count = 128
    """Width of the word embeddings, D."""
    widths: tuple[Count, ...] = (128, 128)
    """Width of each recurrent layer, K, first to last."""
    tie_embeddings: bool = False
    """Use the embeddings as the output layer; outputs of another width are projected first."""
    scale_embeddings: bool = False
    """Multiply word embeddings by sqrt(D). Otherwise the small initial embeddings rarely move the gates, and tied
    models predict unigram frequencies for hundreds of steps."""
    use_output_bias: bool = True
    """Whether the output layer has a bias for each word."""
    init_bias_from_unigram: bool = False
    """Initialise the output bias so that each word is predicted by its frequency in training."""
    forget_bias: Finite = 0.0
    """Added to the initial bias of an LSTM's forget gate."""
    mogrifier_rounds: Rounds = 0
    """Rounds of mutual gating of an LSTM's input and state before each step (mogrifier), such as 5; 0 = none."""
    mogrifier_rank: Count | None = None
    """Rank of the mogrifier's matrices; None = full."""
    embedding_dropout_rate: Rate = 0.0
    """Share of the vocabulary's words whose embeddings are zero for a whole training batch."""
    input_dropout_rate: Rate = 0.0
    """Share of the input features dropped in training, the same ones at all positions of a sequence."""
    hidden_dropout_rate: Rate = 0.0
    """Share of the features between layers dropped in training, the same ones at all positions."""
    output_dropout_rate: Rate = 0.0
    """Share of the last layer's outputs dropped in training, the same ones at all positions."""
    weight_dropout_rate: Rate = 0.0
    """Share of the recurrent matrices' elements dropped in training, the same ones at all positions."""

    def __post_init__(self):
        super().__post_init__()
        if not self.widths:
            raise ValueError("model.widths needs at least one layer, got none")
        if self.init_bias_from_unigram and not self.use_output_bias:
            raise ValueError("model.init_bias_from_unigram sets the output bias; it needs model.use_output_bias")
        self.only_if(self.cell == "lstm", "the cell lstm", "forget_bias", "mogrifier_rounds")
        self.only_if(self.mogrifier_rounds > 0, "a mogrifier (model.mogrifier_rounds)", "mogrifier_rank")
        self.only_if(len(self.widths) > 1, "models with several layers", "hidden_dropout_rate")

    def build(self, processor: Any) -> "RecurrentLM":
        return RecurrentLM(self, processor.size)

    def initial_params(self, corpus: Corpus) -> Params:
        if not self.init_bias_from_unigram:
            return {}
        if corpus.token_counts is None:
            raise ValueError("model.init_bias_from_unigram needs token counts, which this data set does not have")
        counts = jnp.asarray(corpus.token_counts, jnp.float32) + 1.0
        return {"head_bias": jnp.log(counts / counts.sum())}

    def parameter(self, path: tuple[str, ...]) -> Parameter:
        below = parameter_table.entries({("tokens", "embedding"): "VD"}, "below")
        axes = parameter_axes(self.cell, mogrifier_rounds=self.mogrifier_rounds, mogrifier_rank=self.mogrifier_rank)
        layers = parameter_table.recurrent(axes, len(self.widths), bidirectional=False)
        projected = self.tie_embeddings and self.widths[-1] != self.embedding_width
        above = parameter_table.entries({("projection", "kernel"): "KD"} if projected else {})
        head: dict[tuple[str, ...], str] = {} if self.tie_embeddings else {("head_kernel",): "KV"}
        head |= {("head_bias",): "V"} if self.use_output_bias else {}
        return parameter_table.find(below | layers | above | parameter_table.entries(head, head=True), path)

    def architecture(self) -> dict[str, Any]:
        fields = super().architecture()
        del fields["forget_bias"], fields["init_bias_from_unigram"]  # they decide only initial parameters
        return fields


class RecurrentLMOutput(NamedTuple):
    """The outputs of a recurrent language model.

    Attributes:
      hidden: the output layer's input [B, T, D or K].
      outputs: of the last recurrent layer, before dropout [B, T, K].
      dropped: `outputs` after dropout [B, T, K].
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
        """Layers, and the parameters of the output layer."""
        config = self.config
        uniform = nn.initializers.uniform(2 * EMBEDDING_BOUND)

        def centred(*arguments):
            return uniform(*arguments) - EMBEDDING_BOUND

        self.tokens = Embed(
            self.vocabulary_size, config.embedding_width, dtype=config.compute.activation_dtype, embedding_init=centred
        )
        self.recurrent = Recurrent(
            config.cell,
            config.widths,
            hidden_dropout_rate=config.hidden_dropout_rate,
            weight_dropout_rate=config.weight_dropout_rate,
            forget_bias=config.forget_bias,
            compute=config.compute,
            mogrifier_rounds=config.mogrifier_rounds,
            mogrifier_rank=config.mogrifier_rank,
        )
        self.output_dropout = LockedDropout(config.output_dropout_rate)
        self.input_dropout = LockedDropout(config.input_dropout_rate)
        if config.tie_embeddings and config.widths[-1] != config.embedding_width:
            initial = uniform_of_width(config.widths[-1])
            self.projection = Dense(config.embedding_width, False, initial, config.compute)
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
          cache: states after the earlier tokens; `tokens` follow them.
          count: [] int, the number of tokens among the T that are not padding; None = all.

        Returns:
          Logits [B, T, V], float32: those of position t score token t + 1.
          With a cache: (logits, states after the first `count` tokens).
        """
        lengths = None if count is None else jnp.broadcast_to(jnp.asarray(count, jnp.int32), tokens.shape[:1])
        reading = self.read(tokens, cache, deterministic=deterministic, lengths=lengths)
        w, b = self._output_layer()
        rows = reading.hidden.reshape(-1, reading.hidden.shape[-1])
        # With a cache there are few rows, and rounding the weights takes longer than the product.
        logits = matmul(rows, w, self.config.compute.operand_dtype if cache is None else None).astype(jnp.float32)
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
    ) -> RecurrentLMOutput:
        """Everything except the output layer, for losses and for the neural cache.

        Args:
          tokens: [B, T] int, in [0, V); for other values the outputs are NaN.
          states: before the first position; None = zeros.
          deterministic: no dropout.
          lengths: [B] int, the number of positions that are not padding; None = all.
        """
        config = self.config
        chex.assert_rank(tokens, 2)
        tokens = jnp.where(tokens < 0, self.vocabulary_size, tokens)  # JAX would count negative indices from the end
        x = self.tokens(tokens)
        if config.scale_embeddings:
            x = x * jnp.asarray(config.embedding_width**0.5, x.dtype)
        if config.embedding_dropout_rate and not deterministic:
            # One factor per word: a batch reads few rows of the table.
            ones = jnp.ones((self.vocabulary_size, 1), jnp.float32)
            factors = embedding_dropout(ones, config.embedding_dropout_rate, dropout_key(self))
            x = (x.astype(jnp.float32) * factors[tokens]).astype(x.dtype)
        x = self.input_dropout(x, deterministic=deterministic)
        outputs, states = self.recurrent(x, states, deterministic=deterministic, lengths=lengths)
        hidden = dropped = self.output_dropout(outputs, deterministic=deterministic)
        if config.tie_embeddings and config.widths[-1] != config.embedding_width:
            hidden = self.projection(dropped.reshape(-1, config.widths[-1]))
            hidden = hidden.reshape(*tokens.shape, config.embedding_width)
        chex.assert_shape(outputs, (*tokens.shape, config.widths[-1]))
        return RecurrentLMOutput(hidden, outputs, dropped, states)

    def _output_layer(self) -> tuple[jax.Array, jax.Array | None]:
        w = self.tokens.embedding.T if self.config.tie_embeddings else self.kernel
        return w, (self.bias if self.config.use_output_bias else None)

    def output_layer(self, params: Params) -> tuple[jax.Array, jax.Array | None]:
        """W [D or K, V] and b [V] or None: logits = hidden W + b."""
        w = params["tokens"]["embedding"].T if self.config.tie_embeddings else params["head_kernel"]
        return w, params.get("head_bias")

    def embeddings(self, params: Params) -> jax.Array:
        """The words' embeddings [V, D]."""
        return params["tokens"]["embedding"]

    def decoding_params(self, params: Params) -> Params:
        """Parameters for reading with a cache: unchanged."""
        return params

    @property
    def capacity(self) -> None:
        """None: there is no maximum length."""
        return None

    def empty_cache(self, batch: int) -> States:
        """States before the first token."""
        config = self.config
        return empty_states(config.cell, config.widths, batch, dtype=config.compute.activation_dtype)

    def predict(self, params: Params, tokens: jax.Array) -> jax.Array:
        """Logits [B, V] of the word that follows each row of tokens [B, T].

        Raises: ValueError unless tokens are int [B, T], T at least 1, in [0, V). Under jit, other values give NaN.
        """
        expect_tokens(tokens, self.vocabulary_size, "the text")
        tokens = jnp.asarray(tokens)
        expect(tokens.shape[1] > 0, "tokens [B, T] with T at least 1", tokens=tokens)
        reading: RecurrentLMOutput = self.apply({"params": params}, tokens, method="read")  # type: ignore[assignment]
        return self.logits(params, reading.hidden[:, -1])

    def logits(self, params: Params, hidden: jax.Array) -> jax.Array:
        """The output layer without rounding: from `RecurrentLMOutput.hidden` [..., D or K] to logits [..., V],
        float32."""
        w, b = self.output_layer(params)
        logits = matmul(hidden.reshape(-1, hidden.shape[-1]), w).astype(jnp.float32)
        logits = logits if b is None else logits + b[None]
        return logits.reshape(*hidden.shape[:-1], self.vocabulary_size)
