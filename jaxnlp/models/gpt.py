"""GPT: a decoder-only Transformer language model.

Source: Radford et al. 2019 (GPT-2), as in karpathy/minGPT: learned positions, pre-norm blocks, final norm.
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
from jaxnlp.nn.transformer import DecoderBlock
from jaxnlp.ops.attention import Implementation
from jaxnlp.ops.matmul import matmul
from jaxnlp.typing import Params

INITIAL_STDDEV = 0.02


@dataclasses.dataclass(frozen=True)
class GPTConfig(ModelConfig):
    """Shape and variants of a GPT."""

    num_layers: int = 4
    """Number of blocks, L."""
    num_heads: int = 4
    """Attention heads, H; must divide the width."""
    width: int = 128
    """Model width, D."""
    context_length: int = 128
    """Longest sequence, in tokens: one learned position each."""
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
    matmul_dtype: Literal["bfloat16"] | None = None
    """Round the operands of matrix products, and what attention keeps and returns: faster on CPUs with bfloat16
    instructions, slower on others; None = don't."""
    attention_implementation: Implementation = "auto"
    """Gradient by hand (vjp), by autodiff (xla), or JAX's fused kernel on a GPU (cudnn); auto picks what is fastest."""

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
        for name in ("embedding_dropout_rate", "attention_dropout_rate", "residual_dropout_rate"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise ValueError(f"model.{name} must lie in [0, 1), got {getattr(self, name)}")

    def build(self, vocabulary_size: int) -> "GPT":
        return GPT(self, vocabulary_size)


class GPT(nn.Module):
    """Scores for each next token.

    Parameters of the L blocks are stacked on their first axis, whether the blocks are looped over or unrolled, so
    that `scan_layers` and `remat` change how the function is computed, and nothing else: checkpoints fit, and random
    streams are equal.

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
        return_hidden: bool = False,
    ):
        """Reads a sequence, or with a cache the next part of one.

        Args:
          tokens: [B, T] int, in [0, V); T is at most the context length.
          deterministic: no dropout; otherwise the random stream `dropout` is needed.
          cache: what was read before; `tokens` follow it. Its capacity must hold them too. The parameters are then
            those of `decoding_params`.
          return_hidden: stop before the output layer, for a loss that takes `output_layer` itself.

        Returns:
          Logits [B, T, V], float32: those of position t score token t + 1, from tokens 0..t alone.
          With a cache: (logits, cache with these T positions added).
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
        matmul_dtype = config.matmul_dtype if cache is None else None
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

        x, layers = self._blocks(x, deterministic, cache, first)

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
        return logits, KVCache(layers=layers, length=cache.length + positions)

    def _blocks(
        self, x: jax.Array, deterministic: bool, cache: KVCache | None, first: jax.Array
    ) -> tuple[jax.Array, tuple[LayerCache, ...]]:
        config = self.config
        arguments: dict[str, Any] = {
            "num_heads": config.num_heads,
            "hidden_width": config.hidden_width or 4 * config.width,
            "attention_dropout_rate": config.attention_dropout_rate,
            "residual_dropout_rate": config.residual_dropout_rate,
            "use_bias": config.use_bias,
            # Two branches a block write to the residual stream: this keeps its variance near 1 at any depth.
            "residual_stddev": INITIAL_STDDEV / (2 * config.num_layers) ** 0.5,
            "dtype": config.dtype,
            "matmul_dtype": config.matmul_dtype if cache is None else None,
            "attention_implementation": config.attention_implementation,
            "deterministic": deterministic,
        }
        if cache is not None:
            layers: list[Any] = []
            for number, layer in enumerate(cache.layers):
                x, new = DecoderBlock(**arguments, name=f"block_{number}")(x, layer, first)
                layers.append(new)
            return x, tuple(layers)
        scanned = nn.scan(
            nn.remat(DecoderBlock, prevent_cse=not config.scan_layers) if config.remat else DecoderBlock,
            variable_axes={"params": 0},
            split_rngs={"params": True, "dropout": True},
            in_axes=(nn.broadcast, nn.broadcast),
            length=config.num_layers,
            unroll=1 if config.scan_layers else config.num_layers,
        )
        x, _ = scanned(**arguments, name="blocks")(x, None, first)
        return x, ()

    def output_layer(self, params: Params) -> tuple[jax.Array, jax.Array | None]:
        """W [D, V] and b [V] or None: logits = hidden W + b."""
        return params["tokens"]["embedding"].T if self.config.tie_embeddings else params["head"]["kernel"], None

    def decoding_params(self, params: Params) -> Params:
        """Parameters as reading with a cache takes them: each block's apart, `block_0` to `block_{L-1}`.

        Cut out of their stack at each token they would be copied each time, which takes longer than using them.
        """
        apart = {
            f"block_{number}": jax.tree.map(lambda x, number=number: x[number], params["blocks"])
            for number in range(self.config.num_layers)
        }
        return {name: value for name, value in params.items() if name != "blocks"} | apart

    def empty_cache(self, batch: int) -> KVCache:
        """A cache with room for the whole context, none of it filled."""
        config = self.config
        shape = (batch, config.num_heads, config.context_length, config.width // config.num_heads)
        layers = tuple(
            (jnp.zeros(shape, config.dtype), jnp.zeros(shape, config.dtype)) for _ in range(config.num_layers)
        )
        return KVCache(layers, jnp.zeros((), jnp.int32))
