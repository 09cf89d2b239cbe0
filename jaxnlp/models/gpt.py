"""GPT: a decoder-only Transformer language model, and the base of models with other mixers of positions.

Source: Radford et al. 2019 (GPT-2), as in karpathy/minGPT: learned positions, pre-norm blocks, final norm.
`jaxnlp.convert.decoder_weights` reads weights of GPT-2, a GPT with biases.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.nn.initializers import normal

from jaxnlp.config import Count, Layers, ProperFraction, Rate
from jaxnlp.models import (
    Adopted,
    ModelConfig,
    Parameter,
    padded_rows,
    parameter_table,
    transformer_note,
    with_own_fields,
)
from jaxnlp.models.parameter_table import Axes, Table
from jaxnlp.nn.attention import SelfAttention
from jaxnlp.nn.cache import KVCache, LayerCache
from jaxnlp.nn.compute import TransformerCompute
from jaxnlp.nn.dense import INITIAL_STDDEV, OUTPUT_ROWS, Dense
from jaxnlp.nn.dropout import Dropout
from jaxnlp.nn.embedding import Embed
from jaxnlp.nn.feed_forward import Activation, FeedForward
from jaxnlp.nn.normalization import LayerNorm
from jaxnlp.nn.transformer import Layer, TransformerBlock, stack, unstacked
from jaxnlp.ops.matrix_products import added, scores_of_rows
from jaxnlp.typing import Params


@dataclasses.dataclass(frozen=True)
class GPTConfig(ModelConfig):
    """Shape of a GPT."""

    compute: TransformerCompute = dataclasses.field(default_factory=TransformerCompute, kw_only=True)
    num_layers: Layers = 4
    """Number of blocks, L."""
    num_heads: Count = 4
    """Attention heads, H; must divide the width."""
    width: Count = 128
    """Model width, D."""
    context_length: Count = 128
    """Maximum length in tokens. Each position has a learned vector."""
    feed_forward_width: Count | None = None
    """Width of the feed-forward layers, F; None = 4 x width."""
    activation: Activation = "gelu_tanh"
    """Activation of the feed-forward layers."""
    epsilon: ProperFraction = 1e-5
    """Epsilon of the normalisations."""
    embedding_dropout_rate: Rate = 0.0
    """Share of embedding outputs dropped in training."""
    attention_dropout_rate: Rate = 0.0
    """Share of attention weights dropped in training."""
    residual_dropout_rate: Rate = 0.0
    """Share of each block's branch outputs dropped in training."""
    use_bias: bool = True
    """Whether dense and normalisation layers have biases."""
    tie_embeddings: bool = False
    """Use the token embedding as the output layer."""
    padded_vocabulary_size: Count | None = None
    """Number of token embeddings, if pretrained weights have more than the tokenizer has tokens; None = equal."""

    def __post_init__(self):
        super().__post_init__()
        if self.width % self.num_heads:
            raise ValueError(
                f"model.num_heads must divide model.width, got {self.num_heads} heads for width {self.width}"
            )

    @property
    def max_length(self) -> int:
        return self.context_length

    @property
    def attends(self) -> bool:
        return True

    def architecture(self) -> dict[str, Any]:
        return super().architecture() | {"feed_forward_width": self.hidden_width}

    @property
    def hidden_width(self) -> int:
        """F."""
        return self.feed_forward_width or 4 * self.width

    @property
    def key_heads(self) -> int:
        """Number of heads of keys and values, G."""
        return self.num_heads

    @property
    def key_width(self) -> int:
        """Width of queries, keys and values in each head, K."""
        return self.width // self.num_heads

    @property
    def num_blocks(self) -> int:
        """Number of blocks in the stack."""
        return self.num_layers

    def build(self, processor: Any) -> "GPT":
        return GPT(self, self.embeddings(processor.size))

    def embeddings(self, vocabulary_size: int) -> int:
        """See `padded_rows`."""
        return padded_rows(vocabulary_size, self.padded_vocabulary_size, "model.padded_vocabulary_size")

    def adopt(self, pretrained: Any) -> Adopted:
        """All parameters, of a run or of weights of another library, with their shape; dropout rates stay those of this
        config."""
        theirs = pretrained.model.config
        if pretrained.folder is not None or type(theirs) is not type(self):
            return super().adopt(pretrained)
        config = with_own_fields(theirs, self)
        notes = (transformer_note("decoder", config, pretrained.name),)
        return Adopted(config, pretrained.params, pretrained.processor, notes)

    @property
    def mixer(self) -> Layer:
        """The mixer of every block."""
        return SelfAttention

    def layers(self, compute: TransformerCompute, mixer: Layer | None = None) -> tuple[Layer, Layer, Layer]:
        """The mixer, the feed-forward layer and the normalisation of a block; None = the model's mixer."""
        # Each block adds two branches to the residual stream. This keeps its variance near 1 at any depth.
        stddev = INITIAL_STDDEV / (2 * self.num_layers) ** 0.5
        common: Any = {"use_bias": self.use_bias, "compute": compute}
        branch = common | {"dropout_rate": self.residual_dropout_rate, "output_stddev": stddev}
        return (
            functools.partial(
                mixer or self.mixer,
                num_heads=self.num_heads,
                attention_dropout_rate=self.attention_dropout_rate,
                **branch,
            ),
            functools.partial(FeedForward, self.hidden_width, activation=self.activation, **branch),
            functools.partial(LayerNorm, self.epsilon, **common),
        )

    def parameter(self, path: tuple[str, ...]) -> Parameter:
        return parameter_table.find(self.parameters_around() | self.parameters_of_blocks(), path)

    def parameters_of_blocks(self, mixer: Axes | None = None) -> Table:
        """Table entries of the blocks; None = their mixer is self-attention."""
        blocks = parameter_table.block(mixer, use_bias=self.use_bias)
        return parameter_table.entries(blocks, 0, prefix=("blocks",), stacked=True)

    def parameters_around(self) -> Table:
        """Table entries of the embeddings, the final normalisation and the output layer."""
        below = parameter_table.entries({("tokens", "embedding"): "VD", ("positions",): "TD"}, "below")
        above = parameter_table.entries(parameter_table.norm(("final_norm",), use_bias=self.use_bias))
        head = {} if self.tie_embeddings else parameter_table.entries({("head", "kernel"): "DV"}, head=True)
        return below | above | head


MAPS = ("down_project", "blocks", "up_project")
"""Names of attention maps, in the order of computation."""


class AttentionAxis(NamedTuple):
    """Positions of the rows or the columns of an attention map.

    Attributes:
      positions: of each; rows do not see columns at later positions, and in local layers only some of the others.
      latents: the number of latents, which come before tokens.
    """

    positions: tuple[int, ...]
    latents: int = 0

    def see(self, others: "AttentionAxis") -> np.ndarray:
        """Whether each of the columns, `others`, is not later than each row [T, S] bool."""
        return np.array(others.positions)[None, :] <= np.array(self.positions)[:, None]


class GPT(nn.Module):
    """Scores for each next token. Each position attends to itself and all earlier positions.

    Attributes:
      config: shape and dropout rates.
      vocabulary_size: V.
      cache_length: number of positions that a cache can store; None = the context length.
    """

    config: GPTConfig
    vocabulary_size: int
    cache_length: int | None = None

    @nn.compact
    def __call__(
        self,
        tokens: jax.Array,
        *,
        deterministic: bool = True,
        cache: KVCache | None = None,
        count: jax.Array | int | None = None,
        return_hidden: bool = False,
    ):
        """Reads a sequence, or with a cache the next part of a sequence.

        Args:
          tokens: [B, T] int, in [0, V); T is at most the context length.
          deterministic: no dropout; otherwise the random stream `dropout` is needed.
          cache: the earlier positions; `tokens` follow them, and must not exceed its capacity. It needs the parameters
            of `decoding_params`.
          count: with a cache, the number of tokens among the T that are not padding, [] int; only the last one has
            logits. None = no padding.
          return_hidden: stop before the output layer, for a loss that computes `output_layer` itself.

        Returns:
          Logits [B, T, V], float32: those of position t score token t + 1, from tokens 0..t only.
          With a cache: (logits, cache with the positions of these tokens added). With a count, logits are [B, 1, V].
          With return_hidden: the output layer's input [B, T, D].

        Raises: ValueError when T exceeds the context length; for a cache with stacked parameters.
        """
        config = self.config
        chex.assert_rank(tokens, 2)
        batch, positions = tokens.shape
        if cache is not None and self.has_variable("params", "blocks"):
            raise ValueError("a cache needs unstacked parameters: apply the model to decoding_params(params)")
        if positions > config.context_length:
            raise ValueError(f"a sequence of {positions} tokens exceeds the context of {config.context_length}")
        compute = config.compute
        if cache is not None:
            # With a cache there are few rows, and rounding the weights takes longer than the products.
            compute = dataclasses.replace(compute, matmul_dtype=None)
        embedding = Embed(
            self.vocabulary_size,
            config.width,
            compute.activation_dtype,
            embedding_init=normal(INITIAL_STDDEV),
            name="tokens",
        )
        first = jnp.zeros((), jnp.int32) if cache is None else cache.length
        x = self.placed(embedding(tokens), first)
        x = Dropout(config.embedding_dropout_rate)(x, deterministic=deterministic)

        x, caches = self.mix(x, None if cache is None else cache.layers, first, compute, deterministic=deterministic)
        chex.assert_shape(x, (batch, positions, config.width))

        if count is not None:  # the logits of a long prompt could take more memory than the model
            x = jax.lax.dynamic_slice_in_dim(x, count - 1, 1, axis=1)
        scored = x.shape[1]
        _, _, norm = config.layers(compute)
        x = norm(name="final_norm")(x)
        if return_hidden:
            return x
        x = x.reshape(-1, config.width)
        if self.has_variable("params", OUTPUT_ROWS):
            logits = scores_of_rows(x, self.get_variable("params", OUTPUT_ROWS))
        elif config.tie_embeddings:
            logits = scores_of_rows(x, embedding.embedding, compute.operand_dtype)
        else:
            logits = Dense(self.vocabulary_size, False, compute=compute, name="head")(x)
        logits = self.limited(logits.astype(jnp.float32)).reshape(batch, scored, self.vocabulary_size)
        if cache is None:
            return logits
        assert caches is not None
        layers = tuple(layer for layer in caches if layer is not None)
        return logits, KVCache(layers=layers, length=cache.length + (positions if count is None else count))

    def placed(self, x: jax.Array, first: jax.Array) -> jax.Array:
        """Embeddings [B, T, D] with the learned vectors of their positions, from `first`, [] int, on: [B, T, D]."""
        table = self.param("positions", normal(INITIAL_STDDEV), (self.config.context_length, self.config.width))
        return added(x, jax.lax.dynamic_slice_in_dim(table, first, x.shape[1])[None])

    def limited(self, logits: jax.Array) -> jax.Array:
        """The logits [..., V] within the limit of the model, if it has one."""
        return logits

    def mix(
        self,
        x: jax.Array,
        caches: tuple[LayerCache, ...] | None,
        first: jax.Array,
        compute: TransformerCompute,
        *,
        deterministic: bool,
    ) -> tuple[jax.Array, tuple[LayerCache | None, ...] | None]:
        """The model between the embeddings and the final normalisation.

        Args:
          x: [B, T, D].
          caches: the cache of each layer; None: x is the whole sequence.
          first: [] int, the first position of x.
          compute: types and implementations.
          deterministic: no dropout.

        Returns:
          [B, T, D], and the caches with x's positions added; None without caches.
        """
        block = functools.partial(TransformerBlock, *self.config.layers(compute))
        output = stack(
            block,
            self.config.num_blocks,
            compute,
            x,
            deterministic=deterministic,
            layer_inputs=self.layer_inputs(x.shape[1], x.shape[1] if caches is None else self.capacity, first),
            caches=caches,
            cached_positions=first,
        )
        return output.hidden, output.caches

    def layer_inputs(
        self, queries: int, keys: int, first_query: jax.Array
    ) -> Callable[[jax.Array], dict[str, Any]] | None:
        """The inputs of `stack` that differ among blocks; None = none. Args: as for `ops.masks.local`."""
        del queries, keys, first_query
        return None

    def cached_shapes(self, batch: int) -> list[tuple[tuple[int, ...], ...]]:
        """Shapes of the arrays that each layer keeps."""
        keys = values = self._heads_shape(batch)
        return [(keys, values)] * self.config.num_layers

    def attention_maps(self, params: Params, tokens: jax.Array) -> dict[str, jax.Array]:
        """The attention weights of all layers, without dropout, for inspection.

        Args:
          params: as trained.
          tokens: [B, T] int.

        Returns:
          `blocks` [L, B, H, T, T], float32; each row sums to 1.
          A perceiver also has `down_project` [1, B, H, M, S], for M latents and S inputs, and `up_project` [1, B, H, T,
          M], or [1, B, H, T, M + T] if outputs see inputs too. Its blocks, if any, are [L, B, H, M, M], of the latents
          that T tokens reach.
        """
        _, state = self.apply({"params": params}, tokens, mutable=["intermediates"])
        maps: dict[str, jax.Array] = {}
        for name in MAPS:
            for weights in jax.tree.leaves(state["intermediates"].get(name)):
                maps[name] = weights if name == "blocks" else weights[None]
        return maps

    def attention_axes(self, positions: int) -> dict[str, tuple[AttentionAxis, AttentionAxis]]:
        """Rows and columns of the maps of a sequence of T positions, by `blocks`, `down_project` and `up_project`."""
        tokens = AttentionAxis(tuple(range(positions)))
        return {"blocks": (tokens, tokens)}

    def output_layer(self, params: Params) -> tuple[jax.Array, jax.Array | None]:
        """W [D, V] and b [V] or None: logits = hidden W + b."""
        return params["tokens"]["embedding"].T if self.config.tie_embeddings else params["head"]["kernel"], None

    def decoding_params(self, params: Params) -> Params:
        """Parameters as a cache needs them, with each block's separate: see `nn.transformer.unstacked`."""
        return unstacked(params)

    @property
    def capacity(self) -> int:
        """Number of positions that a cache can store."""
        return self.cache_length or self.config.context_length

    def with_cache_length(self, length: int) -> "GPT":
        """The same function with a cache for sequences of at most this length."""
        return self.clone(cache_length=min(length, self.config.context_length))

    def empty_cache(self, batch: int) -> KVCache:
        """A cache without filled positions."""
        shapes = self.cached_shapes(batch)
        dtype = self.config.compute.activation_dtype
        layers = tuple(tuple(jnp.zeros(shape, dtype) for shape in layer) for layer in shapes)
        return KVCache(layers, jnp.zeros((), jnp.int32))

    def _heads_shape(self, batch: int) -> tuple[int, ...]:
        """[B, G, S, K] of one array of keys or values."""
        config = self.config
        return batch, config.key_heads, self.capacity, config.key_width
