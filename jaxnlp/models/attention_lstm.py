"""LSTM encoder-decoder with attention: a bidirectional encoder, and a decoder that reads its last output (input
feeding).

With s the encoder's outputs,

    s = biLSTM(conv(E[source]))
    h_0 = [last forward state; last backward state] W_hidden,   c_0 = [last cells] W_cell,   o_0 = 0
    o_t = step t of `ops.input_feeding`, given E[y_t]
    P(y_{t+1}) = softmax(o_t W)

Source: Luong et al. 2015; CS224N, assignment 4, for the convolution and the initial states.
"""

import dataclasses
from typing import Any, Literal

import chex
import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp
from jax.nn.initializers import zeros

from jaxnlp.config import Count, Layers, Rate
from jaxnlp.models import Parameter, parameter_table
from jaxnlp.models.sequence_to_sequence import SequenceToSequenceConfig
from jaxnlp.nn.cache import cache_rows, log_coverage
from jaxnlp.nn.dense import Dense
from jaxnlp.nn.dropout import Dropout
from jaxnlp.nn.embedding import Embed
from jaxnlp.nn.recurrent import Recurrent, RecurrentCompute, parameter_axes, uniform_of_width
from jaxnlp.ops.input_feeding import Decoded, DecoderState, Memory, ScoreName, decode
from jaxnlp.ops.matrix_products import added, matmul
from jaxnlp.typing import Params


@dataclasses.dataclass(frozen=True)
class AttentionLSTMConfig(SequenceToSequenceConfig):
    """Shape and regularisers of an LSTM translator with attention."""

    compute: RecurrentCompute = dataclasses.field(default_factory=RecurrentCompute, kw_only=True)
    embedding_width: Count = 256
    """Width of the word embeddings, D."""
    width: Count = 256
    """Width of the decoder's state and of the output layer's input, K."""
    encoder_width: Count | None = None
    """Width of the encoder's state in each direction; None = that of the decoder."""
    encoder_layers: Layers = 1
    """Number of bidirectional layers in the encoder."""
    attention: ScoreName = "multiplicative"
    """Attention score of the decoder's state and an encoder output: multiplicative, with a matrix between them; dot,
    their dot product, which needs a decoder twice as wide as the encoder; or additive, a layer with tanh."""
    use_convolution: bool = True
    """Whether a convolution over each embedding and the next one precedes the encoder."""
    embeddings: Literal["separate", "tied", "shared"] = "separate"
    """Whether source embeddings, target embeddings and output layer share a matrix: none do (separate), the last two
    (tied), or all (shared), which needs one vocabulary and equal widths."""
    embedding_dropout_rate: Rate = 0.0
    """Dropout rate of the embeddings."""
    dropout_rate: Rate = 0.3
    """Dropout rate of the output layer's inputs, which the next step also reads."""

    def __post_init__(self):
        super().__post_init__()
        if self.embeddings != "separate" and self.embedding_width != self.width:
            raise ValueError(
                f"model.embeddings {self.embeddings} needs model.embedding_width equal to model.width, got "
                f"{self.embedding_width} and {self.width}"
            )
        if self.attention == "dot" and self.width != 2 * self.direction_width:
            raise ValueError(
                "model.attention dot needs model.width equal to twice model.encoder_width, got "
                f"{self.width} and {self.direction_width}"
            )

    @property
    def direction_width(self) -> int:
        """Width of the encoder's state in each direction."""
        return self.encoder_width or self.width

    def build(self, processor: Any) -> "AttentionLSTM":
        return AttentionLSTM(self, processor.source.size, processor.target.size)

    def architecture(self) -> dict[str, Any]:
        return super().architecture() | {"encoder_width": self.direction_width}

    def parameter(self, path: tuple[str, ...]) -> Parameter:
        names = ("tokens",) if self.embeddings == "shared" else ("source_tokens", "target_tokens")
        table = parameter_table.entries({(name, "embedding"): "VD" for name in names}, "below")
        if self.use_convolution:
            table |= parameter_table.entries({("convolution", "kernel"): "2DD", ("convolution", "bias"): "D"}, 0)
        table |= parameter_table.recurrent(parameter_axes("lstm"), self.encoder_layers, name="encoder")
        above: dict[tuple[str, ...], str] = {
            ("initial_hidden", "kernel"): "EK",
            ("initial_cell", "kernel"): "EK",
            ("decoder_input", "kernel"): "D4K",
            ("decoder_input", "bias"): "4K",
            ("decoder_kernel",): "K4K",
            ("output_kernel",): "EK",
        }
        if self.attention != "dot":
            above[("attention_keys", "kernel")] = "EK"
        if self.attention == "additive":
            above |= {("attention_keys", "bias"): "K", ("attention_queries",): "KK", ("attention_vector",): "K"}
        table |= parameter_table.entries(above)
        if self.embeddings == "separate":
            table |= parameter_table.entries({("head_kernel",): "KV"}, head=True)
        return parameter_table.find(table, path)


@flax.struct.dataclass
class AttentionLSTMCache:
    """The decoder's cache.

    Attributes:
      memory: the encoded source.
      state: the decoder's state.
      attended: [B, S], the attention weights on each source token, summed over the target positions so far.
    """

    memory: Memory
    state: DecoderState
    attended: jax.Array


class AttentionLSTM(nn.Module):
    """Logits of each next token of a target, given the source.

    Attributes:
      config: shape and dropout rates.
      source_vocabulary_size: V of the source.
      vocabulary_size: V of the target.

    E is the width of the encoder's outputs, both directions together.
    """

    config: AttentionLSTMConfig
    source_vocabulary_size: int
    vocabulary_size: int

    def setup(self):
        """Embeddings, encoder, decoder and output layer."""
        config, compute = self.config, self.config.compute
        width, encoder_width = config.width, 2 * config.direction_width
        initial = uniform_of_width(width)

        def embed(size: int) -> Embed:
            stddev = config.embedding_width**-0.5
            return Embed(
                size,
                config.embedding_width,
                dtype=compute.activation_dtype,
                embedding_init=nn.initializers.normal(stddev),
            )

        if config.embeddings == "shared":
            self.tokens = embed(self.vocabulary_size)
        else:
            self.source_tokens = embed(self.source_vocabulary_size)
            self.target_tokens = embed(self.vocabulary_size)
        if config.use_convolution:
            self.convolution = SourceConvolution(config)
        widths = (config.direction_width,) * config.encoder_layers
        self.encoder = Recurrent(
            "lstm", widths, bidirectional=True, hidden_dropout_rate=config.dropout_rate, compute=compute
        )
        self.initial_hidden = Dense(width, False, initial, compute)
        self.initial_cell = Dense(width, False, initial, compute)
        self.decoder_input = Dense((4, width), True, initial, compute)
        self.decoder_kernel = self.param("decoder_kernel", initial, (2 * width, 4, width))
        if config.attention != "dot":
            self.attention_keys = Dense(width, config.attention == "additive", initial, compute)
        if config.attention == "additive":
            self.attention_queries = self.param("attention_queries", initial, (width, width))
            self.attention_vector = self.param("attention_vector", initial, (width,))
        self.output_kernel = self.param("output_kernel", initial, (encoder_width + width, width))
        self.embedding_dropout = Dropout(config.embedding_dropout_rate)
        self.dropout = Dropout(config.dropout_rate)
        if config.embeddings == "separate":
            self.head_kernel = self.param("head_kernel", initial, (width, self.vocabulary_size))

    def __call__(
        self,
        source: jax.Array,
        inputs: jax.Array,
        source_mask: jax.Array | None = None,
        *,
        deterministic: bool = True,
        return_hidden: bool = False,
    ) -> jax.Array:
        """Reads a source and a whole target.

        Args:
          source: [B, S] int, in [0, V).
          inputs: [B, T] int, a start symbol and the target.
          source_mask: [B, S] bool, False for padding, which must be at the end; None = no padding.
          deterministic: disables dropout; otherwise the random stream `dropout` is needed.
          return_hidden: return the input of the output layer, for a loss that computes `output_layer` itself.

        Returns:
          Logits [B, T, V], float32: position t predicts the target's token t from the source and the inputs up to t.
          With return_hidden the output layer's input [B, T, K].
        """
        mask = jnp.ones(source.shape, bool) if source_mask is None else source_mask
        cache = self.encode(source, mask, deterministic=deterministic)
        decoded = self._decode(inputs, cache, deterministic=deterministic)
        return decoded.o if return_hidden else self._logits(decoded.o)

    def encode(self, source: jax.Array, source_mask: jax.Array, *, deterministic: bool = True) -> AttentionLSTMCache:
        """The memory and the decoder's first state; arguments, [B, S] each, as for `__call__`."""
        chex.assert_equal_shape([source, source_mask])
        config = self.config
        x = self._embed(source, "source", deterministic=deterministic)
        x = jnp.where(source_mask[:, :, None], x, jnp.zeros_like(x))
        if config.use_convolution:
            x = self.convolution(x)
        values, states = self.encoder(x, deterministic=deterministic, lengths=source_mask.sum(axis=1))
        (forward_h, forward_c), (backward_h, backward_c) = states[-1]
        h = self.initial_hidden(jnp.concatenate([forward_h, backward_h], axis=-1))
        c = self.initial_cell(jnp.concatenate([forward_c, backward_c], axis=-1))
        keys = values
        if config.attention != "dot":
            keys = self.attention_keys(values.reshape(-1, values.shape[-1])).reshape(*source.shape, config.width)
        chex.assert_shape(keys, (*source.shape, config.width))
        chex.assert_shape([h, c], (source.shape[0], config.width))
        return AttentionLSTMCache(
            Memory(keys, values, source_mask), DecoderState(h, c, jnp.zeros_like(h)), jnp.zeros(source.shape)
        )

    def read(
        self, tokens: jax.Array, cache: AttentionLSTMCache, count: jax.Array | int | None = None
    ) -> tuple[jax.Array, AttentionLSTMCache]:
        """Reads further tokens of a target.

        Args:
          tokens: [B, T] int, which follow the tokens in the cache.
          cache: see `initial_cache`.
          count: [] int, the number of tokens among the T that are not padding; None = all.

        Returns:
          Logits [B, T, V], float32, and the cache with the first `count` tokens added.
        """
        # With few rows, rounding the weights takes longer than the matrix products.
        decoded = self._decode(tokens, cache, count=count, deterministic=True, matmul_dtype=None)
        there = jnp.arange(tokens.shape[1]) < (tokens.shape[1] if count is None else count)
        attended = cache.attended + jnp.where(there[None, :, None], decoded.weights, 0.0).sum(axis=1).astype(
            cache.attended.dtype
        )
        cache = dataclasses.replace(cache, state=decoded.state, attended=attended)
        return self._logits(decoded.o, rounded=False), cache

    def advance(
        self, params: Params, tokens: jax.Array, cache: AttentionLSTMCache, count: jax.Array | int | None = None
    ) -> tuple[jax.Array, AttentionLSTMCache]:
        """`read` with these parameters: logits [B, T, V], and the cache."""
        output: Any = self.apply({"params": params}, tokens, cache, count, method="read")
        return output

    def initial_cache(
        self,
        params: Params,
        source: jax.Array,
        source_mask: jax.Array | None = None,
        *,
        capacity: int | None = None,
        count_coverage: bool = True,
    ) -> AttentionLSTMCache:
        """The cache before the target's first token.

        Args:
          params: as trained.
          source: [B, S] int, in [0, V).
          source_mask: [B, S] bool, False for padding; None = no padding.
          capacity, count_coverage: unused: any length, and coverage is always counted.
        """
        del capacity, count_coverage
        mask = jnp.ones(source.shape, bool) if source_mask is None else source_mask
        cache: Any = self.apply({"params": params}, source, mask, method="encode")
        return cache

    def alignment(
        self, params: Params, source: jax.Array, inputs: jax.Array, source_mask: jax.Array | None = None
    ) -> jax.Array:
        """The attention weights of each target position on the source: [B, T, S], float32; rows sum to 1."""
        cache = self.initial_cache(params, source, source_mask)
        decoded: Any = self.apply({"params": params}, inputs, cache, deterministic=True, method="_decode")
        return decoded.weights.astype(jnp.float32)

    def attention_maps(self, params: Params, source: jax.Array, inputs: jax.Array) -> dict[str, jax.Array]:
        """`cross` [1, B, 1, T, S]: the weights of `alignment`, of one layer and one head."""
        return {"cross": self.alignment(params, source, inputs)[None, :, None]}

    def decoding_params(self, params: Params) -> Params:
        """Parameters as `read` takes them: unchanged."""
        return params

    def reorder(self, cache: AttentionLSTMCache, rows: jax.Array) -> AttentionLSTMCache:
        """The cache with other rows [B], of the same sources, so the memory stays."""
        state, attended = cache_rows((cache.state, cache.attended), rows)
        return dataclasses.replace(cache, state=state, attended=attended)

    def coverage(self, cache: AttentionLSTMCache) -> jax.Array:
        """sum_s log min(attended_s, 1) over the real source tokens, [B]."""
        return log_coverage(cache.attended, cache.memory.mask)

    def output_layer(self, params: Params) -> tuple[jax.Array, jax.Array | None]:
        """W [K, V] and b [V] or None: logits = hidden W + b."""
        if self.config.embeddings == "separate":
            return params["head_kernel"], None
        return params["tokens" if self.config.embeddings == "shared" else "target_tokens"]["embedding"].T, None

    @property
    def capacity(self) -> None:
        """None: there is no maximum length."""
        return None

    def _decode(
        self,
        tokens: jax.Array,
        cache: AttentionLSTMCache,
        *,
        deterministic: bool,
        count: jax.Array | int | None = None,
        matmul_dtype: Any = "compute",
    ) -> Decoded:
        config = self.config
        x = self._embed(tokens, "target", deterministic=deterministic)
        x = self.decoder_input(x.reshape(-1, config.embedding_width)).reshape(*tokens.shape, 4 * config.width)
        additive = config.attention == "additive"
        dropout = None
        if config.dropout_rate and not deterministic:
            dropout = self.dropout(jnp.ones((*tokens.shape, config.width)), deterministic=False)
        decoded = decode(
            x,
            cache.memory,
            cache.state,
            w_h=self.decoder_kernel.reshape(2 * config.width, 4 * config.width),
            w_o=self.output_kernel,
            score=config.attention,
            score_params={"w_q": self.attention_queries, "v": self.attention_vector} if additive else None,
            dropout=dropout,
            count=count,
            matmul_dtype=config.compute.operand_dtype if matmul_dtype == "compute" else matmul_dtype,
        )
        chex.assert_shape(decoded.o, (*tokens.shape, config.width))
        return decoded

    def _embed(self, tokens: jax.Array, side: Literal["source", "target"], *, deterministic: bool) -> jax.Array:
        chex.assert_rank(tokens, 2)
        table = self.tokens if self.config.embeddings == "shared" else getattr(self, f"{side}_tokens")
        return self.embedding_dropout(table(tokens), deterministic=deterministic)

    def _logits(self, hidden: jax.Array, *, rounded: bool = True) -> jax.Array:
        config = self.config
        if config.embeddings == "separate":
            w = self.head_kernel
        else:
            w = (self.tokens if config.embeddings == "shared" else self.target_tokens).embedding.T
        logits = matmul(hidden.reshape(-1, config.width), w, config.compute.operand_dtype if rounded else None)
        return logits.astype(jnp.float32).reshape(*hidden.shape[:2], self.vocabulary_size)


class SourceConvolution(nn.Module):
    """Y_t = X_t W_0 + X_{t+1} W_1 + b: kernel size 2, with a zero after the last position ("same" padding).

    Parameters: kernel [2, D, D], bias [D].
    """

    config: AttentionLSTMConfig

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Args: x [B, S, D]. Returns: same shape and dtype."""
        config, width = self.config, self.config.embedding_width
        chex.assert_shape(x, (None, None, width))
        initial = uniform_of_width(2 * width)
        kernel = self.param("kernel", initial, (2, width, width))
        bias = self.param("bias", zeros, (width,))
        following = jnp.pad(x[:, 1:], [(0, 0), (0, 1), (0, 0)])
        rows = jnp.concatenate([x, following], axis=-1).reshape(-1, 2 * width)
        y = matmul(rows, kernel.reshape(2 * width, width), config.compute.operand_dtype)
        return added(y, bias[None]).reshape(x.shape)
