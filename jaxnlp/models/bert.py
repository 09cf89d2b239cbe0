"""BERT: a Transformer that reads a text in both directions, and the two tasks that it is pretrained by.

Source: Devlin et al. 2019, and google-research/bert for what the paper leaves open.
"""

import dataclasses
from typing import Literal, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.nn.initializers import normal, zeros

from jaxnlp.models import ModelConfig
from jaxnlp.nn.dense import Dense
from jaxnlp.nn.dropout import Dropout
from jaxnlp.nn.feed_forward import gelu
from jaxnlp.nn.normalization import LayerNorm
from jaxnlp.nn.transformer import EncoderBlock
from jaxnlp.ops.attention import Implementation
from jaxnlp.ops.matmul import operand_dtype
from jaxnlp.ops.positions import sinusoidal_positions
from jaxnlp.serialization import ConfigError
from jaxnlp.typing import Params

INITIAL_STDDEV = 0.02


@dataclasses.dataclass(frozen=True)
class BertConfig(ModelConfig):
    """Shape and variants of a BERT; the defaults are those of BERT-base."""

    num_layers: int = 12
    """Number of blocks, L."""
    num_heads: int = 12
    """Attention heads, H; must divide the width."""
    width: int = 768
    """Model width, D."""
    hidden_width: int | None = None
    """Width of the feed-forward layers, F; None = 4 x width."""
    max_positions: int = 512
    """Longest text, in tokens."""
    segments: int = 2
    """Kinds of token that the model tells apart: of the first text, and of the second."""
    positions: Literal["learned", "sinusoidal"] = "learned"
    """One learned vector for each position, as the original has them, or fixed sines and cosines."""
    pre_norm: bool = False
    """Normalise before each branch and once at the end, where the original normalises after each sum."""
    use_pooler: bool = True
    """A vector for the whole text: tanh of a dense layer on its first token."""
    dropout_rate: float = 0.1
    """Share of embeddings and of each branch's outputs dropped in training."""
    attention_dropout_rate: float = 0.1
    """Share of attention weights dropped in training."""
    epsilon: float = 1e-12
    """Of the normalisations."""
    embedded_pieces: int | None = None
    """Pieces that have embeddings, where these are more than the tokenizer's; None = as many. Some checkpoints are
    padded."""
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
    """Gradient by hand (vjp), by autodiff (xla), or JAX's fused kernel on a GPU (cudnn); auto picks what is fastest."""

    def __post_init__(self):
        for name in ("num_layers", "num_heads", "width", "max_positions", "segments"):
            if getattr(self, name) < 1:
                raise ValueError(f"model.{name} must be at least 1, got {getattr(self, name)}")
        if self.hidden_width is not None and self.hidden_width < 1:
            raise ValueError(f"model.hidden_width must be at least 1, got {self.hidden_width}")
        if self.width % self.num_heads:
            raise ValueError(
                f"model.num_heads must divide model.width, got {self.num_heads} heads for width {self.width}"
            )
        if self.positions == "sinusoidal" and self.width % 2:
            raise ValueError(f"model.width must be even for sinusoidal positions, got {self.width}")
        for name in ("dropout_rate", "attention_dropout_rate"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise ValueError(f"model.{name} must lie in [0, 1), got {getattr(self, name)}")
        if not 0.0 < self.epsilon < 1.0:
            raise ValueError(f"model.epsilon must lie in (0, 1), got {self.epsilon}")

    def build(self, vocabulary_size: int) -> "Bert":
        return Bert(self, self.embeddings(vocabulary_size))

    def embeddings(self, vocabulary_size: int) -> int:
        """How many there are, with a tokenizer of so many pieces.

        Raises: ConfigError when these are more.
        """
        if self.embedded_pieces is None:
            return vocabulary_size
        if self.embedded_pieces < vocabulary_size:
            raise ConfigError(
                f"model.encoder.embedded_pieces must be at least the tokenizer's {vocabulary_size}, got "
                f"{self.embedded_pieces}"
            )
        return self.embedded_pieces


@dataclasses.dataclass(frozen=True)
class AroundBertConfig(ModelConfig):
    """What models around a BERT have in common: it is their submodule `encoder`."""

    pretrained: str | None = None
    """Begin with the encoder in this folder, or of this name on the Hugging Face Hub; its shape then replaces that of
    the encoder's fields. None = begin with random weights."""
    pretrained_ignore: tuple[str, ...] = ()
    """Tensors of that encoder to leave alone, by their names or how these begin: heads of other tasks."""
    encoder: BertConfig = dataclasses.field(default_factory=BertConfig)


class Encoding(NamedTuple):
    """What BERT makes of a batch of texts. What is not used, jit leaves out.

    Attributes:
      hidden: of each token, after the last block [B, T, D].
      pooled: of each text, tanh of a dense layer on its first token [B, D]; None without `use_pooler`.
      layers: after the embeddings, and after each block [L + 1, B, T, D]; the last is `hidden` before the final
        normalisation that `pre_norm` has.
    """

    hidden: jax.Array
    pooled: jax.Array | None
    layers: jax.Array


class Bert(nn.Module):
    """Texts as vectors, one for each token and one for the whole.

    Parameters of the blocks are stacked on their first axis, as `models.gpt.GPT` has them.

    Attributes:
      config: shape and variants.
      vocabulary_size: V.
    """

    config: BertConfig
    vocabulary_size: int

    @nn.compact
    def __call__(
        self,
        tokens: jax.Array,
        segments: jax.Array | None = None,
        attention_mask: jax.Array | None = None,
        *,
        deterministic: bool = True,
    ) -> Encoding:
        """Reads texts.

        Args:
          tokens: [B, T] int, in [0, V); T is at most `max_positions`.
          segments: [B, T] int, 0 in the first text and 1 in the second; None = all 0.
          attention_mask: [B, T] bool, False where a token is padding; None = none is. What stands there changes no
            other token's vectors.
          deterministic: no dropout; otherwise the random stream `dropout` is needed.

        Raises:
          ValueError: when T exceeds `max_positions`, the message gives both.
        """
        config = self.config
        positions = tokens.shape[1]
        if positions > config.max_positions:
            raise ValueError(f"a text of {positions} tokens exceeds the {config.max_positions} positions of this model")
        x = self._embed(tokens, segments)
        x = LayerNorm(config.epsilon, config.dtype, name="embedding_norm")(x)
        x = Dropout(config.dropout_rate)(x, deterministic=deterministic)

        scanned = nn.scan(
            nn.remat(EncoderBlock, prevent_cse=not config.scan_layers) if config.remat else EncoderBlock,
            variable_axes={"params": 0, "intermediates": 0},
            split_rngs={"params": True, "dropout": True},
            in_axes=nn.broadcast,
            length=config.num_layers,
            unroll=1 if config.scan_layers else config.num_layers,
        )
        blocks = scanned(
            num_heads=config.num_heads,
            hidden_width=config.hidden_width or 4 * config.width,
            deterministic=deterministic,
            attention_dropout_rate=config.attention_dropout_rate,
            residual_dropout_rate=config.dropout_rate,
            pre_norm=config.pre_norm,
            epsilon=config.epsilon,
            dtype=config.dtype,
            matmul_dtype=operand_dtype(config.matmul_dtype),
            attention_implementation=config.attention_implementation,
            name="blocks",
        )
        hidden, after = blocks(x, None if attention_mask is None else attention_mask[:, None, None])
        layers = jnp.concatenate([x[None], after])
        if config.pre_norm:
            hidden = LayerNorm(config.epsilon, config.dtype, name="final_norm")(hidden)
        pooled = None
        if config.use_pooler:
            pooled = jnp.tanh(Dense(config.width, dtype=config.dtype, name="pooler")(hidden[:, 0]))
        return Encoding(hidden, pooled, layers)

    def _embed(self, tokens: jax.Array, segments: jax.Array | None) -> jax.Array:
        """The sum of what a token, its position and its segment are, [B, T, D]."""
        config, initial = self.config, normal(INITIAL_STDDEV)
        x = nn.Embed(self.vocabulary_size, config.width, config.dtype, embedding_init=initial, name="tokens")(tokens)
        if config.positions == "learned":
            table = self.param("positions", initial, (config.max_positions, config.width))
        else:
            table = sinusoidal_positions(config.max_positions, config.width)
        x = x + table[None, : tokens.shape[1]].astype(config.dtype)
        kinds = self.param("segments", initial, (config.segments, config.width)).astype(config.dtype)
        return x + (kinds[None, :1] if segments is None else kinds[segments])

    def attention_maps(
        self,
        params: Params,
        tokens: jax.Array,
        segments: jax.Array | None = None,
        attention_mask: jax.Array | None = None,
    ) -> tuple[Encoding, jax.Array]:
        """The encoding, and the attention weights that made it: [L, B, H, T, T], float32; each row sums to 1."""
        encoding, found = self.apply({"params": params}, tokens, segments, attention_mask, mutable=["intermediates"])
        (weights,) = jax.tree.leaves(found["intermediates"]["blocks"])
        return encoding, weights


class PretrainingHeads(nn.Module):
    """Which token a masked one was, and whether the second text follows the first.

    Attributes:
      vocabulary_size: V.
      epsilon: of the normalisation.
      dtype: of the computation; parameters stay float32.

    Source: Devlin et al. 2019, section 3.1; the transformation before the output layer is google-research/bert's.
    """

    vocabulary_size: int
    epsilon: float = 1e-12
    dtype: str = "float32"

    @nn.compact
    def __call__(self, hidden: jax.Array, pooled: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Prepares the output layer, whose matrix is the token embedding's.

        Args:
          hidden: of the tokens to predict [N, D].
          pooled: [B, D].

        Returns:
          The output layer's input [N, D], its bias [V], and the logits of the second text following, or not [B, 2].
        """
        x = gelu(Dense(hidden.shape[-1], dtype=self.dtype, name="transform")(hidden))
        x = LayerNorm(self.epsilon, self.dtype, name="norm")(x)
        bias = self.param("token_bias", zeros, (self.vocabulary_size,))
        return x, bias, Dense(2, dtype=self.dtype, name="follows")(pooled)
