"""Encoder-decoder Transformer: the encoder reads a source, and the decoder attends to its output.

Source: Vaswani et al. 2017. Differs: normalisation may come before each branch (Xiong et al. 2020); positions may be
learned, rotary or relative. `jaxnlp.convert.encoder_decoder_weights` reads T5 (Raffel et al. 2020), without biases,
with root-mean-square normalisation and a relative bias that layers share; BART (Lewis et al. 2020), with learned
positions and normalised embeddings; and Marian (Junczys-Dowmunt et al. 2018).
"""

import dataclasses
from typing import Any, Literal

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.nn.initializers import normal, zeros

from jaxnlp.config import Count, Layers, Natural, ProperFraction, Rate
from jaxnlp.models import Adopted, Parameter, padded_rows, parameter_table, with_own_fields
from jaxnlp.models.encoder_decoder_blocks import Blocks, attention, normalizer, parameters_of_blocks, shifts
from jaxnlp.models.sequence_to_sequence import SequenceToSequenceConfig
from jaxnlp.models.translation_cache import TranslationCache
from jaxnlp.nn.attention import CrossAttention
from jaxnlp.nn.compute import TransformerCompute
from jaxnlp.nn.dense import INITIAL_STDDEV, OUTPUT_ROWS, Dense
from jaxnlp.nn.dropout import Dropout
from jaxnlp.nn.embedding import Embed
from jaxnlp.nn.feed_forward import Activation
from jaxnlp.nn.transformer import unstacked
from jaxnlp.ops.checks import expect
from jaxnlp.ops.matrix_products import rounded_kernels, scores_of_rows
from jaxnlp.ops.positions import sinusoidal_positions
from jaxnlp.typing import Params


@dataclasses.dataclass(frozen=True)
class EncoderDecoderConfig(SequenceToSequenceConfig):
    """Shape and regularisers of an encoder-decoder Transformer."""

    compute: TransformerCompute = dataclasses.field(default_factory=TransformerCompute, kw_only=True)
    num_layers: Layers = 3
    """Number of blocks in the encoder, L."""
    num_decoder_layers: Layers | None = None
    """Number of blocks in the decoder; None = as many as in the encoder."""
    num_heads: Count = 4
    """Attention heads, H; must divide the width, unless there is a head width."""
    head_width: Count | None = None
    """Width of queries, keys and values in each head, K; None = width / num_heads."""
    width: Count = 256
    """Model width, D."""
    feed_forward_width: Count | None = None
    """Width of the feed-forward layers, F; None = 4 x width."""
    context_length: Count = 256
    """Maximum length of a source, and of a target, in tokens."""
    norm: Literal["pre", "post"] = "pre"
    """pre: normalisation before each branch and after the last block; post: after each sum, as published."""
    normalization: Literal["layer", "rms"] = "layer"
    """Layer normalisation, or division by the root mean square, without a shift."""
    epsilon: ProperFraction = 1e-5
    """Epsilon of the normalisations."""
    use_bias: bool = True
    """Whether dense and normalisation layers have biases."""
    activation: Activation = "relu"
    """Activation of the feed-forward layers."""
    gated: bool = False
    """Whether feed-forward layers have a gate: the activation of a third dense layer, multiplied by the first."""
    positions: Literal[
        "sinusoidal", "learned", "rotary", "relative_bias", "shared_relative_bias", "relative_vectors"
    ] = "sinusoidal"
    """Positions: fixed or learned vectors, added to the embeddings; or in self-attention rotated queries and keys, a
    learned bias for each bucket of distances, in each layer or shared by the layers of encoder and of decoder, or
    learned vectors for each distance, added to keys and values."""
    num_buckets: Count = 32
    """Number of buckets of a relative bias."""
    max_distance: Count = 128
    """Distance in tokens from which on the relative bias is constant."""
    sines_first: bool = False
    """Whether sinusoidal vectors have all sines before all cosines; otherwise they alternate."""
    position_offset: Natural = 0
    """Number of rows of the learned positions before the first token's."""
    embedding_norm: bool = False
    """Whether the embeddings are normalised after the positions are added."""
    scale_attention: bool = True
    """Divide attention scores by sqrt(K), as published."""
    scale_embeddings: bool = True
    """Multiply embeddings by sqrt(D), as published."""
    scale_logits: bool = False
    """Divide logits by sqrt(D)."""
    output_bias: bool = False
    """Whether each target token has a bias, added to its logits."""
    padded_vocabulary_size: Count | None = None
    """Number of token embeddings, if pretrained weights have more than the tokenizer has tokens; None = equal."""
    dropout_rate: Rate = 0.1
    """Dropout rate of the embeddings and of each branch's outputs."""
    attention_dropout_rate: Rate = 0.0
    """Dropout rate of the attention weights."""

    def __post_init__(self):
        super().__post_init__()
        relative = self.positions in ("relative_bias", "shared_relative_bias")
        self.only_if(relative, "a relative bias (model.positions)", "num_buckets", "max_distance")
        self.only_if(self.positions == "sinusoidal", "sinusoidal positions (model.positions)", "sines_first")
        self.only_if(self.positions == "learned", "learned positions (model.positions)", "position_offset")
        if self.head_width is None and self.width % self.num_heads:
            raise ValueError(
                f"model.num_heads must divide model.width, got {self.num_heads} heads for width {self.width}"
            )
        paired = {"sinusoidal": self.width, "rotary": self.key_width}.get(self.positions, 0)
        if paired % 2:
            what = "width" if self.positions == "sinusoidal" else "width / model.num_heads"
            raise ValueError(f"model.{what} must be even for {self.positions} positions, got {paired}")

    @property
    def max_length(self) -> int:
        return self.context_length

    @property
    def key_width(self) -> int:
        """K."""
        return self.head_width or self.width // self.num_heads

    @property
    def hidden_width(self) -> int:
        """F."""
        return self.feed_forward_width or 4 * self.width

    @property
    def decoder_layers(self) -> int:
        """L of the decoder."""
        return self.num_decoder_layers or self.num_layers

    def build(self, processor: Any) -> "EncoderDecoder":
        sizes = (processor.source.size, processor.target.size)
        padded, field = self.padded_vocabulary_size, "model.padded_vocabulary_size"
        return EncoderDecoder(self, *(padded_rows(size, padded, field) for size in sizes))

    def architecture(self) -> dict[str, Any]:
        full = {"feed_forward_width": self.hidden_width, "num_decoder_layers": self.decoder_layers}
        return super().architecture() | full | {"head_width": self.key_width}

    def adopt(self, pretrained: Any) -> Adopted:
        """All parameters, of a run or of weights of another library, with their shape; dropout rates stay those of this
        config, and so does the context length for another library's weights without learned positions."""
        theirs = pretrained.model.config
        if pretrained.folder is not None or type(theirs) is not type(self):
            return super().adopt(pretrained)
        length = theirs.context_length if theirs.positions == "learned" else self.context_length
        config = dataclasses.replace(with_own_fields(theirs, self), context_length=length)
        shape = f"{config.num_layers} and {config.decoder_layers} layers, {config.width} wide, {config.num_heads} heads"
        note = f"encoder and decoder from {pretrained.name}: {shape}"
        processor = pretrained.processor.without_min_length()
        lost = ("without its minimum length of targets",) * (processor is not pretrained.processor)
        return Adopted(config, pretrained.params, processor, (note, *lost))

    def parameter(self, path: tuple[str, ...]) -> Parameter:
        names = ("tokens",) if self.one_table else ("source_tokens", "target_tokens")
        below: dict[tuple[str, ...], str] = {(name, "embedding"): "VD" for name in names}
        if self.positions == "learned":
            below |= {("source_positions",): "SD", ("target_positions",): "TD"}
        if self.embedding_norm:
            for norm in ("source_norm", "target_norm"):
                below |= parameter_table.norm((norm,), use_bias=shifts(self))
        table = parameter_table.entries(below, "below")
        for name in ("encoder", "decoder"):
            table |= parameters_of_blocks(self, name)
        if not self.ties_output:
            table |= parameter_table.entries({("head", "kernel"): "DV"}, head=True)
        if self.output_bias:
            table |= parameter_table.entries({("output_bias",): "V"}, head=True)
        return parameter_table.find(table, path)


class EncoderDecoder(nn.Module):
    """Logits of each next token of a target, given the source.

    Attributes:
      config: shape and dropout rates.
      source_vocabulary_size: V of the source.
      vocabulary_size: V of the target.
    """

    config: EncoderDecoderConfig
    source_vocabulary_size: int
    vocabulary_size: int

    def setup(self):
        """Embeddings, encoder, decoder and output layer."""
        config = self.config

        def embed(size: int) -> Embed:
            # Multiplied by sqrt(D), the embeddings have standard deviation 1.
            stddev = config.width**-0.5 if config.scale_embeddings else INITIAL_STDDEV
            return Embed(size, config.width, dtype=config.compute.activation_dtype, embedding_init=normal(stddev))

        if config.one_table:
            self.tokens = embed(self.vocabulary_size)
        else:
            self.source_tokens = embed(self.source_vocabulary_size)
            self.target_tokens = embed(self.vocabulary_size)
        if config.positions == "learned":
            shape = (config.position_offset + config.context_length, config.width)
            self.source_positions = self.param("source_positions", normal(INITIAL_STDDEV), shape)
            self.target_positions = self.param("target_positions", normal(INITIAL_STDDEV), shape)
        if config.embedding_norm:
            norm = normalizer(config, config.compute)
            self.source_norm, self.target_norm = norm(), norm()
        self.encoder = Blocks(config, cross=False)
        self.decoder = Blocks(config, cross=True)
        self.dropout = Dropout(config.dropout_rate)
        if not config.ties_output:
            self.head = Dense(self.vocabulary_size, False, compute=config.compute)
        if config.output_bias:
            self.output_bias = self.param("output_bias", zeros, (self.vocabulary_size,))

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
          source_mask: [B, S] bool, False for padding; None = no padding.
          deterministic: disables dropout; otherwise the random stream `dropout` is needed.
          return_hidden: return the input of the output layer, for a loss that computes `output_layer` itself.

        Returns:
          Logits [B, T, V], float32: position t predicts the target's token t from the source and the inputs up to t.
          With return_hidden the output layer's input [B, T, D].

        Raises: ValueError when a source or a target is longer than the context.
        """
        mask = jnp.ones(source.shape, bool) if source_mask is None else source_mask
        memory = self.encode(source, mask, deterministic=deterministic)
        x = self._embed(inputs, "target", deterministic=deterministic)
        compute = self.config.compute
        read = {"memory": memory, "memory_mask": mask[:, None, None]}
        hidden = self._scaled(self.decoder(x, compute, deterministic=deterministic, **read).hidden)
        return hidden if return_hidden else self._logits(hidden, compute)

    def encode(self, source: jax.Array, source_mask: jax.Array, *, deterministic: bool = True) -> jax.Array:
        """The encoder's output, to which the decoder attends: the memory [B, S, D]; arguments as for `__call__`."""
        chex.assert_equal_shape([source, source_mask])
        x = self._embed(source, "source", deterministic=deterministic)
        mask = source_mask[:, None, None]
        memory = self.encoder(x, self.config.compute, deterministic=deterministic, attention_mask=mask).hidden
        chex.assert_shape(memory, (*source.shape, self.config.width))
        return memory

    def read(
        self, tokens: jax.Array, cache: TranslationCache, count: jax.Array | int | None = None
    ) -> tuple[jax.Array, TranslationCache]:
        """Reads further tokens of a target, with the parameters of `decoding_params`.

        Args:
          tokens: [B, T] int, which follow the tokens in the cache.
          cache: see `initial_cache`. The tokens must not exceed its capacity.
          count: [] int, the number of tokens among the T that are not padding; None = all.

        Returns:
          Logits [B, T, V], float32, and the cache with the first `count` tokens added.
        """
        # The kernels are rounded already. Attention to few positions is not faster in a shorter type.
        compute = dataclasses.replace(self.config.compute, matmul_dtype=None)
        x = self._embed(tokens, "target", first=cache.length, deterministic=True)
        output = self.decoder(
            x,
            compute,
            deterministic=True,
            memory_mask=cache.source_mask[:, None, None],
            caches=cache.layers,
            cached_positions=cache.length,
        )
        layers = tuple(layer for layer in output.caches or () if layer is not None)
        length = cache.length + (tokens.shape[1] if count is None else count)
        logits = self._logits(self._scaled(output.hidden), compute)
        return logits, dataclasses.replace(cache, layers=layers, length=length)

    def advance(
        self, params: Params, tokens: jax.Array, cache: TranslationCache, count: jax.Array | int | None = None
    ) -> tuple[jax.Array, TranslationCache]:
        """`read` with these parameters: logits [B, T, V], and the cache; adds to `attended` if the cache counts it."""
        before = cache.attended
        if before is None:
            output: Any = self.apply({"params": params}, tokens, cache, count, method="read")
            return output
        (logits, cache), kept = self.apply(
            {"params": params}, tokens, cache, count, method="read", mutable=["intermediates"]
        )
        there = jnp.arange(tokens.shape[1]) < (tokens.shape[1] if count is None else count)
        weights = jnp.where(there[None, :, None], self._source_weights(kept), 0.0)
        return logits, dataclasses.replace(cache, attended=before + weights.sum(axis=1))

    def initial_cache(
        self,
        params: Params,
        source: jax.Array,
        source_mask: jax.Array | None = None,
        *,
        capacity: int | None = None,
        count_coverage: bool = False,
    ) -> TranslationCache:
        """The cache before the target's first token. The source, its keys and its values are computed once.

        Args:
          params: as trained, or those of `decoding_params`.
          source: [B, S] int, in [0, V).
          source_mask: [B, S] bool, False for padding; None = no padding.
          capacity: maximum number of target positions; None = the context length.
          count_coverage: whether the cache counts coverage.
        """
        config = self.config
        positions = min(config.context_length, capacity or config.context_length)
        mask = jnp.ones(source.shape, bool) if source_mask is None else source_mask
        memory = jnp.asarray(self.apply({"params": params}, source, mask, method="encode"))
        decoder, batch = unstacked(params["decoder"]), source.shape[0]
        read = attention(config, CrossAttention, config.compute)(parent=None)
        shape = (batch, config.num_heads, positions, config.key_width)
        # As in `read`: otherwise each token would convert the source's keys and values.
        dtype = config.compute.activation_dtype
        kept = (
            read.keys_and_values(decoder[f"block_{index}"]["cross_attention"], memory)
            for index in range(config.decoder_layers)
        )
        layers = tuple(
            (*(jnp.zeros(shape, dtype) for _ in range(2)), keys.astype(dtype), values.astype(dtype))
            for keys, values in kept
        )
        attended = jnp.zeros(source.shape) if count_coverage else None
        return TranslationCache(layers, mask, jnp.zeros((), jnp.int32), attended)

    def reorder(self, cache: TranslationCache, rows: jax.Array) -> TranslationCache:
        """The cache with other rows [B], of the same sources, so their keys and values stay."""
        return cache.with_rows(rows)

    def coverage(self, cache: TranslationCache) -> jax.Array:
        """sum_s log min(attended_s, 1) over the real source tokens, [B]."""
        return cache.coverage()

    def alignment(
        self, params: Params, source: jax.Array, inputs: jax.Array, source_mask: jax.Array | None = None
    ) -> jax.Array:
        """The attention weights of each target position on the source, the mean over the heads of the last block: [B,
        T, S], float32; rows sum to 1."""
        cache = self.initial_cache(params, source, source_mask, capacity=inputs.shape[1], count_coverage=False)
        decoding = self.decoding_params(params)
        _, kept = self.apply({"params": decoding}, inputs, cache, method="read", mutable=["intermediates"])
        return self._source_weights(kept).astype(jnp.float32)

    def attention_maps(self, params: Params, source: jax.Array, inputs: jax.Array) -> dict[str, jax.Array]:
        """The attention weights of all layers and heads, without dropout and without padding.

        Args:
          params: as trained.
          source: [B, S] int.
          inputs: [B, T] int, a start symbol and the target.

        Returns:
          Float32, each row sums to 1: `encoder` [L, B, H, S, S], `decoder` [L, B, H, T, T], and `cross` [L, B, H, T,
            S].
        """
        _, state = self.apply({"params": params}, source, inputs, mutable=["intermediates"])
        encoder, decoder = (state["intermediates"][name]["blocks"] for name in ("encoder", "decoder"))
        kept = {"encoder": encoder["attention"], "decoder": decoder["attention"], "cross": decoder["cross_attention"]}
        return {name: attention["weights"][0] for name, attention in kept.items()}

    def _source_weights(self, kept: Any) -> jax.Array:
        """Attention weights [B, T, S] of the last block, from the intermediates of `read`."""
        last = kept["intermediates"]["decoder"][f"block_{self.config.decoder_layers - 1}"]
        return last["cross_attention"]["weights"][0].mean(axis=1)

    def decoding_params(self, params: Params) -> Params:
        """Parameters as `read` takes them: the decoder's blocks are separate, see `nn.transformer.unstacked`.

        The kernels of the decoder and of the output layer are rounded once, for all tokens; the embeddings are not.
        """
        dtype = self.config.compute.operand_dtype
        decoder = rounded_kernels(unstacked(params["decoder"]), dtype)
        prepared = dict(params) | {"decoder": decoder}
        if dtype is None or OUTPUT_ROWS in params:
            return prepared
        return prepared | {OUTPUT_ROWS: self.output_layer(params)[0].T.astype(dtype)}

    def output_layer(self, params: Params) -> tuple[jax.Array, jax.Array | None]:
        """W [D, V] and b [V] or None: logits = hidden W + b."""
        bias = params["output_bias"] if self.config.output_bias else None
        if not self.config.ties_output:
            return params["head"]["kernel"], bias
        return params["tokens" if self.config.one_table else "target_tokens"]["embedding"].T, bias

    @property
    def capacity(self) -> int:
        """Number of target positions that a cache can store."""
        return self.config.context_length

    def _embed(
        self, tokens: jax.Array, side: Literal["source", "target"], *, first: Any = 0, deterministic: bool
    ) -> jax.Array:
        """Embeddings [B, T, D] of tokens [B, T]; added positions start at `first`."""
        config = self.config
        chex.assert_rank(tokens, 2)
        length = tokens.shape[1]
        fits = length <= config.context_length
        expect(fits, f"a {side} of at most model.context_length, {config.context_length} tokens", **{side: tokens})
        table = self.tokens if config.one_table else getattr(self, f"{side}_tokens")
        x = table(tokens)
        if config.scale_embeddings:
            x = x * jnp.asarray(config.width**0.5, x.dtype)
        if config.positions in ("sinusoidal", "learned"):
            vectors = getattr(self, f"{side}_positions") if config.positions == "learned" else self._sinusoidal()
            here = jax.lax.dynamic_slice_in_dim(vectors, config.position_offset + first, length)
            x = x + here[None].astype(x.dtype)
        if config.embedding_norm:
            x = getattr(self, f"{side}_norm")(x)
        return self.dropout(x, deterministic=deterministic)

    def _sinusoidal(self) -> jax.Array:
        config = self.config
        return sinusoidal_positions(config.context_length, config.width, sines_first=config.sines_first)

    def _scaled(self, hidden: jax.Array) -> jax.Array:
        """The input of the output layer [B, T, D]."""
        return hidden * jnp.asarray(self.config.width**-0.5, hidden.dtype) if self.config.scale_logits else hidden

    def _logits(self, hidden: jax.Array, compute: TransformerCompute) -> jax.Array:
        rows = hidden.reshape(-1, hidden.shape[-1])
        if self.has_variable("params", OUTPUT_ROWS):
            logits = scores_of_rows(rows, self.get_variable("params", OUTPUT_ROWS))
        elif not self.config.ties_output:
            logits = self.head(rows)
        else:
            table = self.tokens if self.config.one_table else self.target_tokens
            logits = scores_of_rows(rows, table.embedding, compute.operand_dtype)
        logits = logits.astype(jnp.float32).reshape(*hidden.shape[:2], self.vocabulary_size)
        return logits + self.output_bias[None, None] if self.config.output_bias else logits
