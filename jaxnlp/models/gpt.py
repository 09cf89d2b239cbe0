"""GPT: a decoder-only Transformer language model.

Source: Radford et al. 2019 (GPT-2), as in karpathy/minGPT: learned positions, pre-norm blocks, final norm.
Its variants: Perceiver (Jaegle et al. 2021) and dense Synthesizer (Tay et al. 2021), as in CS224N, assignment 5.
"""

import dataclasses
from typing import Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.nn.initializers import normal

from jaxnlp.models import ModelConfig
from jaxnlp.nn.cache import KVCache, LayerCache
from jaxnlp.nn.dense import Dense
from jaxnlp.nn.dropout import Dropout
from jaxnlp.nn.normalization import LayerNorm
from jaxnlp.nn.perceiver import DownProject, LatentPlacement, UpProject, latent_positions
from jaxnlp.nn.transformer import DecoderBlock
from jaxnlp.ops.attention import Implementation
from jaxnlp.ops.matmul import matmul, operand_dtype
from jaxnlp.typing import Params

INITIAL_STDDEV = 0.02


@dataclasses.dataclass(frozen=True)
class GPTConfig(ModelConfig):
    """Shape and variants of a GPT."""

    variant: Literal["vanilla", "perceiver", "synthesizer"] = "vanilla"
    """Attention over the sequence; over few latents that read it (perceiver); or without dot products (synthesizer)."""
    num_layers: int = 4
    """Number of blocks, L; for the perceiver that into the latents and that out of them count too."""
    num_heads: int = 4
    """Attention heads, H; must divide the width."""
    width: int = 128
    """Model width, D."""
    context_length: int = 128
    """Longest sequence, in tokens: one learned position each."""
    num_latents: int = 32
    """Perceiver: number of latents, M, from 1 to the context length."""
    latent_placement: LatentPlacement = "prefix"
    """Perceiver: latents at the first M positions, as the assignment's masks have it: an output then sees its own token
    and the first M at most. Or along the whole context, beside the tokens themselves: an output sees all before it."""
    hidden_width: int | None = None
    """Width of the feed-forward layers, F; None = 4 x width."""
    embedding_dropout_rate: float = 0.0
    """Share of embedding outputs dropped in training."""
    attention_dropout_rate: float = 0.0
    """Share of attention weights dropped in training."""
    residual_dropout_rate: float = 0.0
    """Share of each block's branch outputs dropped in training."""
    use_bias: bool = True
    """Biases in dense and normalisation layers."""
    tie_embeddings: bool = False
    """Use the token embedding as the output layer."""
    scan_layers: bool = False
    """Compile one block and loop over it: compiles faster, runs slower on CPU. Same parameters, same function."""
    remat: bool = False
    """Compute each block anew in the backward pass: less memory, more time. Same function."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Type of the computation; parameters stay float32."""
    matmul_dtype: Literal["auto", "bfloat16"] | None = None
    """Round the operands of matrix products, and what attention keeps and returns: faster on processors with bfloat16
    instructions, slower on others. auto: on the former alone; None = nowhere."""
    attention_implementation: Implementation = "auto"
    """Gradient by hand (vjp), by autodiff (xla), or JAX's fused kernel on a GPU (cudnn); auto picks what is fastest.
    The synthesizer's is by hand."""

    def __post_init__(self):
        for name in ("num_layers", "num_heads", "width", "context_length"):
            if getattr(self, name) < 1:
                raise ValueError(f"model.{name} must be at least 1, got {getattr(self, name)}")
        if self.hidden_width is not None and self.hidden_width < 1:
            raise ValueError(f"model.hidden_width must be at least 1, got {self.hidden_width}")
        if self.width % self.num_heads:
            raise ValueError(
                f"model.num_heads must divide model.width, got {self.num_heads} heads for width {self.width}"
            )
        if self.latent_placement != "prefix" and self.variant != "perceiver":
            raise ValueError(
                f"model.latent_placement {self.latent_placement} is of a perceiver's latents, and model.variant is "
                f"{self.variant}"
            )
        if self.attention_implementation in ("xla", "cudnn") and self.variant == "synthesizer":
            raise ValueError(
                "model.attention_implementation must be auto or vjp for a synthesizer, got "
                f"{self.attention_implementation}"
            )
        if self.variant == "perceiver":
            if self.num_layers < 2:
                raise ValueError(f"model.num_layers must be at least 2 for a perceiver, got {self.num_layers}")
            if not 1 <= self.num_latents <= self.context_length:
                raise ValueError(
                    f"model.num_latents must lie between 1 and model.context_length, {self.context_length}, "
                    f"got {self.num_latents}"
                )
        for name in ("embedding_dropout_rate", "attention_dropout_rate", "residual_dropout_rate"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise ValueError(f"model.{name} must lie in [0, 1), got {getattr(self, name)}")

    @property
    def num_blocks(self) -> int:
        """Blocks in the stack: all L, but for the perceiver's first and last."""
        return self.num_layers - 2 if self.variant == "perceiver" else self.num_layers

    def build(self, vocabulary_size: int) -> "GPT":
        return GPT(self, vocabulary_size)


class GPT(nn.Module):
    """Scores for each next token.

    Parameters of the blocks are stacked on their first axis, whether the blocks are looped over or unrolled, so that
    `scan_layers` and `remat` change how the function is computed, and nothing else: checkpoints fit, and random streams
    are equal.

    Attributes:
      config: shape and variants.
      vocabulary_size: V.
    """

    config: GPTConfig
    vocabulary_size: int

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
        """Reads a sequence, or with a cache the next part of one.

        Args:
          tokens: [B, T] int, in [0, V); T is at most the context length.
          deterministic: no dropout; otherwise the random stream `dropout` is needed.
          cache: what was read before; `tokens` follow it. Its capacity must hold them too. The parameters are then
            those of `decoding_params`.
          count: with a cache, how many of the T tokens are there, [] int; the others pad. None = all.
          return_hidden: stop before the output layer, for a loss that takes `output_layer` itself.

        Returns:
          Logits [B, T, V], float32: those of position t score token t + 1, from tokens 0..t alone; a perceiver whose
            latents stand at the prefix sees fewer, see `nn.perceiver`.
          With a cache: (logits, cache with the positions of these tokens added).
          With return_hidden: the output layer's input [B, T, D].

        Raises:
          ValueError: when T exceeds the context length, the message gives both; for a cache with stacked parameters.
        """
        config = self.config
        if cache is not None and self.has_variable("params", "blocks"):
            raise ValueError(
                "with a cache the blocks' parameters lie apart: apply the model to decoding_params(params)"
            )
        # With a cache there are few rows, and to round the weights for them takes longer than the products.
        matmul_dtype = operand_dtype(config.matmul_dtype) if cache is None else None
        positions = tokens.shape[1]
        if positions > config.context_length:
            raise ValueError(f"a sequence of {positions} tokens exceeds the context of {config.context_length}")
        embedding = nn.Embed(
            self.vocabulary_size, config.width, config.dtype, embedding_init=normal(INITIAL_STDDEV), name="tokens"
        )
        position_embedding = self.param("positions", normal(INITIAL_STDDEV), (config.context_length, config.width))
        first = jnp.zeros((), jnp.int32) if cache is None else cache.length
        here = jax.lax.dynamic_slice_in_dim(position_embedding, first, positions)
        x = embedding(tokens) + here[None].astype(config.dtype)
        x = Dropout(config.embedding_dropout_rate)(x, deterministic=deterministic)

        kept = None if cache is None else cache.layers
        if config.variant == "perceiver":
            x, kept = self._perceive(x, deterministic, kept, first)
        else:
            x, kept = self._blocks(x, deterministic, kept, first)

        x = LayerNorm(1e-5, config.dtype, config.use_bias, name="final_norm")(x)
        if return_hidden:
            return x
        x = x.reshape(-1, config.width)
        if config.tie_embeddings:
            logits = matmul(x, embedding.embedding.T, matmul_dtype)
        else:
            head = Dense(self.vocabulary_size, False, config.dtype, matmul_dtype, normal(INITIAL_STDDEV), name="head")
            logits = head(x)
        logits = logits.astype(jnp.float32).reshape(*tokens.shape, self.vocabulary_size)
        if cache is None:
            return logits
        assert kept is not None
        return logits, KVCache(layers=kept, length=cache.length + (positions if count is None else count))

    def _arguments(self, deterministic: bool, *, decoding: bool) -> dict[str, Any]:
        """Of every kind of block."""
        config = self.config
        return {
            "num_heads": config.num_heads,
            "hidden_width": config.hidden_width or 4 * config.width,
            "attention_dropout_rate": config.attention_dropout_rate,
            "residual_dropout_rate": config.residual_dropout_rate,
            "use_bias": config.use_bias,
            # Two branches a block write to the residual stream: this keeps its variance near 1 at any depth.
            "residual_stddev": INITIAL_STDDEV / (2 * config.num_layers) ** 0.5,
            "dtype": config.dtype,
            "matmul_dtype": None if decoding else operand_dtype(config.matmul_dtype),
            "attention_implementation": config.attention_implementation,
            "deterministic": deterministic,
        }

    def _blocks(
        self, x: jax.Array, deterministic: bool, layers: tuple[LayerCache | None, ...] | None, first: jax.Array
    ) -> tuple[jax.Array, tuple[Any, ...] | None]:
        """The stack of blocks; with `layers`, each with its own parameters, and its cache if it has one."""
        config = self.config
        arguments = self._arguments(deterministic, decoding=layers is not None)
        if config.variant == "synthesizer":
            arguments["synthesizer_length"] = config.context_length
        if layers is not None:
            kept: list[Any] = []
            for number, layer in enumerate(layers):
                x, new = DecoderBlock(**arguments, name=f"block_{number}")(x, layer, first)
                kept.append(new)
            return x, tuple(kept)
        if config.num_blocks == 0:
            return x, None
        scanned = nn.scan(
            nn.remat(DecoderBlock, prevent_cse=not config.scan_layers) if config.remat else DecoderBlock,
            variable_axes={"params": 0, "intermediates": 0},
            split_rngs={"params": True, "dropout": True},
            in_axes=(nn.broadcast, nn.broadcast),
            length=config.num_blocks,
            unroll=1 if config.scan_layers else config.num_blocks,
        )
        x, _ = scanned(**arguments, name="blocks")(x, None, first)
        return x, None

    def _perceive(
        self, x: jax.Array, deterministic: bool, layers: tuple[LayerCache, ...] | None, first: jax.Array
    ) -> tuple[jax.Array, tuple[LayerCache, ...] | None]:
        """Into the latents, the blocks, and out of them: see `nn.perceiver`.

        The cache keeps the inputs, and latents are computed anew with each read. A token completes a latent at some
        positions and none at others, while shapes are static; and there are few latents.
        """
        config = self.config
        arguments = self._arguments(deterministic, decoding=layers is not None)
        inputs = x
        if layers is not None:
            ((inputs,),) = layers
            inputs = jax.lax.dynamic_update_slice_in_dim(inputs, x.astype(inputs.dtype), first, axis=1)
            layers = ((inputs,),)
        # With a cache these are all latents. Nobody sees those that stand at inputs which are not read yet.
        positions = latent_positions(
            config.latent_placement, config.num_latents, config.context_length, inputs.shape[1]
        )
        down = nn.remat(DownProject, static_argnums=2) if config.remat else DownProject
        up = nn.remat(UpProject, static_argnums=3) if config.remat else UpProject
        latents = down(**arguments, num_latents=config.num_latents, name="down_project")(inputs, positions)
        latents, _ = self._blocks(
            latents, deterministic, None if layers is None else (None,) * config.num_blocks, first
        )
        along = config.latent_placement == "along"
        if along:
            latents = jnp.concatenate([latents, inputs], axis=1)
            positions = (*positions, *range(inputs.shape[1]))
        project = up(**arguments, normalise_queries=along, name="up_project")
        return project(x, latents, positions, first), layers

    def attention_maps(self, params: Params, tokens: jax.Array) -> dict[str, jax.Array]:
        """What each position attends to, layer by layer, without dropout: to look at.

        Args:
          params: as they were trained.
          tokens: [B, T] int.

        Returns:
          In the order of the layers (which jit would sort), weights [B, H, T, T], float32, under `block_0`, `block_1`,
          ... Each row sums to 1.
          A perceiver has `down_project` [B, H, M, S] first, of the M latents that T tokens reach and the S inputs that
          these see; its blocks' are [B, H, M, M]; and last comes `up_project` [B, H, T, M], or [B, H, T, M + T] where
          outputs see inputs too.
        """
        _, found = self.apply({"params": params}, tokens, mutable=["intermediates"])
        maps: dict[str, jax.Array] = {}
        for name in ("down_project", "blocks", "up_project"):
            for weights in jax.tree.leaves(found["intermediates"].get(name)):
                maps |= {f"block_{n}": one for n, one in enumerate(weights)} if name == "blocks" else {name: weights}
        return maps

    def output_layer(self, params: Params) -> tuple[jax.Array, jax.Array | None]:
        """W [D, V] and b [V] or None: logits = hidden W + b."""
        return params["tokens"]["embedding"].T if self.config.tie_embeddings else params["head"]["kernel"], None

    def decoding_params(self, params: Params) -> Params:
        """Parameters as reading with a cache takes them: each block's apart: `block_0`, `block_1`, ...

        Cut out of their stack at each token they would be copied each time, which takes longer than using them.
        """
        apart = {
            f"block_{number}": jax.tree.map(lambda x, number=number: x[number], params["blocks"])
            for number in range(self.config.num_blocks)
        }
        return {name: value for name, value in params.items() if name != "blocks"} | apart

    @property
    def capacity(self) -> int:
        """Positions that a cache holds."""
        return self.config.context_length

    def empty_cache(self, batch: int) -> KVCache:
        """A cache with room for the whole context, none of it filled."""
        config = self.config
        heads = (batch, config.num_heads, config.context_length, config.width // config.num_heads)
        shapes: dict[str, list[tuple[tuple[int, ...], ...]]] = {
            "vanilla": [(heads, heads)] * config.num_layers,
            "synthesizer": [(heads,)] * config.num_layers,
            "perceiver": [((batch, config.context_length, config.width),)],
        }
        layers = tuple(tuple(jnp.zeros(shape, config.dtype) for shape in layer) for layer in shapes[config.variant])
        return KVCache(layers, jnp.zeros((), jnp.int32))
