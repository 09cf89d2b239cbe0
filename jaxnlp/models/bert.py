"""BERT: a bidirectional Transformer encoder.

RoBERTa, XLM-RoBERTa, DistilBERT, ELECTRA and ModernBERT are variants, whose fields `jaxnlp.convert.encoders` sets.

Sources: Devlin et al. 2019; google-research/bert for details that the paper leaves open; Liu et al. 2019 and Conneau et
al. 2020 for RoBERTa and XLM-RoBERTa, whose positions leave out padding; Sanh et al. 2019 for DistilBERT; Clark et al.
2020 for ELECTRA, whose embeddings may be narrower than the model; Warner et al. 2024 for ModernBERT, with rotary
positions, gated feed-forward layers, layers with a local window, and no biases.
"""

import dataclasses
import functools
import operator
from collections.abc import Callable
from typing import Any, ClassVar, Literal, NamedTuple, Self

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.nn.initializers import normal

from jaxnlp.config import Config, Count, Layers, Natural, Positive, ProperFraction, Rate
from jaxnlp.models import (
    Adopted,
    ModelConfig,
    Parameter,
    is_own,
    padded_rows,
    parameter_table,
    transformer_note,
    with_own_fields,
)
from jaxnlp.nn.attention import Rotary, SelfAttention
from jaxnlp.nn.compute import TransformerCompute
from jaxnlp.nn.dense import INITIAL_STDDEV, Dense
from jaxnlp.nn.dropout import Dropout
from jaxnlp.nn.embedding import Embed
from jaxnlp.nn.feed_forward import FeedForward, gelu
from jaxnlp.nn.normalization import LayerNorm
from jaxnlp.nn.transformer import TransformerBlock, stack
from jaxnlp.ops import masks
from jaxnlp.ops.embeddings import embed
from jaxnlp.ops.matrix_products import added
from jaxnlp.ops.positions import ranks, sinusoidal_positions
from jaxnlp.text.encoder_vocabulary import encoder_vocabulary
from jaxnlp.typing import Params


@dataclasses.dataclass(frozen=True)
class BertConfig(Config):
    """Shape and variants of a BERT, the `encoder` of a model config. The defaults are those of BERT-base."""

    section: ClassVar[str] = "model.encoder"

    num_layers: Layers = 12
    """Number of blocks, L."""
    num_heads: Count = 12
    """Attention heads, H; must divide the width."""
    width: Count = 768
    """Model width, D."""
    embedding_width: Count | None = None
    """Width of the embeddings, E; a dense layer maps another width to the model's, as in small ELECTRAs; None = D."""
    feed_forward_width: Count | None = None
    """Width of the feed-forward layers, F; None = 4 x width."""
    max_positions: Count = 512
    """Maximum length in tokens."""
    num_segments: Natural = 2
    """Number of segment embeddings: one for the first text, one for the second; 0 = none, as in DistilBERT."""
    positions: Literal["learned", "sinusoidal", "rotary"] = "learned"
    """A learned vector for each position, as in the original; fixed sines and cosines; or rotary: queries and keys are
    rotated by their positions, as in ModernBERT."""
    rotary_base: Positive = 10_000.0
    """Base of the rates of rotation; a larger base rotates more slowly, for longer texts."""
    local_layers: tuple[Natural, ...] = ()
    """Indices, from 0, of layers with local attention; empty = all attend to the whole text."""
    local_window: Natural = 128
    """Window of local attention in tokens, half before a token and half after it."""
    local_rotary_base: Positive = 10_000.0
    """Base of the rates of rotation in local layers."""
    padding_id: Natural | None = None
    """Id of the padding token, as in RoBERTa: padding has this position, and other tokens count from the next one. None
    = the positions of all tokens count from 0."""
    scale_embeddings: bool = False
    """Multiply token embeddings by the square root of the width, because fixed positions have values up to 1."""
    pre_norm: bool = False
    """Normalise before each branch and once at the end; the original BERT normalises after each sum."""
    first_norm: bool = True
    """With pre_norm, normalise before the first attention, too; ModernBERT does not, since its embeddings are
    normalised."""
    gated: bool = False
    """Multiply the activation in feed-forward layers by the output of a third dense layer, as in ModernBERT."""
    use_bias: bool = True
    """Whether dense layers and normalisations have biases; ModernBERT's do not."""
    use_pooler: bool = True
    """Compute a vector for the whole text: a dense layer on its first token, and an activation."""
    pooler_activation: Literal["tanh", "relu", "gelu"] = "tanh"
    """Activation of the pooler: tanh, ReLU as in DistilBERT's classifier, or GELU as in ELECTRA's."""
    pooler_input: Literal["cls", "mean", "each"] = "cls"
    """Input of the pooler: the vector of the first token (cls), the mean of all, or each token's vector, without a
    vector for the whole text, as in ModernBERT's token classifiers."""
    pooler_norm: bool = False
    """Normalise after the activation of the pooler, as ModernBERT's classifier."""
    dropout_rate: Rate = 0.1
    """Share of embeddings and of each branch's outputs dropped in training."""
    attention_dropout_rate: Rate = 0.1
    """Share of attention weights dropped in training."""
    epsilon: ProperFraction = 1e-12
    """Epsilon of the normalisations."""
    padded_vocabulary_size: Count | None = None
    """Number of token embeddings, if a checkpoint has more than the tokenizer has tokens; None = equal."""
    model_type: str = "bert"
    """Model type of the exported encoder in Transformers, such as roberta."""

    def __post_init__(self):
        super().__post_init__()
        if self.width % self.num_heads:
            raise ValueError(
                f"model.encoder.num_heads must divide model.encoder.width, got {self.num_heads} heads for width "
                f"{self.width}"
            )
        rotary = self.positions == "rotary"
        self.only_if(rotary, "model.encoder.positions rotary", "rotary_base", "local_rotary_base")
        self.only_if(self.local_layers, "an encoder with local layers", "local_window", "local_rotary_base")
        self.only_if(self.pre_norm, "model.encoder.pre_norm True", "first_norm")
        self.only_if(not rotary, "embeddings of positions", "padding_id")
        if any(layer >= self.num_layers for layer in self.local_layers):
            raise ValueError(
                f"model.encoder.local_layers must be below model.encoder.num_layers, {self.num_layers}, got "
                f"{self.local_layers}"
            )
        if rotary and self.width // self.num_heads % 2:
            raise ValueError(
                f"model.encoder.width / model.encoder.num_heads must be even for rotary positions, got "
                f"{self.width // self.num_heads}"
            )
        if self.positions == "sinusoidal" and self.embedded_width % 2:
            name = "width" if self.embedding_width is None else "embedding_width"
            raise ValueError(f"model.encoder.{name} must be even for sinusoidal positions, got {self.embedded_width}")

    @property
    def hidden_width(self) -> int:
        """Width of the feed-forward layers, F."""
        return self.feed_forward_width or 4 * self.width

    @property
    def embedded_width(self) -> int:
        """Width of the embeddings, E."""
        return self.embedding_width or self.width

    @property
    def pools(self) -> bool:
        """Whether there is a vector of the whole text."""
        return self.use_pooler and self.pooler_input != "each"

    def unread_by_tokens(self, path: tuple[str, ...]) -> bool:
        """Whether a parameter, by its path below the encoder, belongs to a pooler of texts."""
        return self.pooler_input != "each" and path[:1] in (("pooler",), ("pooler_norm",))

    def of_tokens(self) -> Self:
        """This encoder in Transformers' token classifiers: its pooler, if it has a norm, is a layer of each token."""
        return dataclasses.replace(self, use_pooler=True, pooler_input="each") if self.pooler_norm else self

    @property
    def position_rows(self) -> int:
        """Number of position embeddings, padding's and unused earlier ones included."""
        return self.max_positions + (0 if self.padding_id is None else self.padding_id + 1)

    def has_segments(self, segments: int) -> bool:
        """Whether there are enough segment embeddings for a tokenizer, or none, so that segments are not read."""
        return self.num_segments == 0 or self.num_segments >= segments

    def check_segments(self, segments: int) -> None:
        """Raises: ValueError when a tokenizer numbers more segments than there are embeddings."""
        if not self.has_segments(segments):
            raise ValueError(
                f"model.encoder.num_segments must be at least {segments}, for the first and the second text, got "
                f"{self.num_segments}"
            )

    def embeddings(self, vocabulary_size: int) -> int:
        """See `padded_rows`."""
        return padded_rows(vocabulary_size, self.padded_vocabulary_size, "model.encoder.padded_vocabulary_size")

    def parameter(self, path: tuple[str, ...]) -> Parameter:
        """See `ModelConfig.parameter`; the path starts below `encoder`."""
        norm = functools.partial(parameter_table.norm, use_bias=self.use_bias)
        dense = functools.partial(parameter_table.dense, use_bias=self.use_bias)
        below = {("tokens", "embedding"): "VE"} | norm(("embedding_norm",), "E")
        below |= {("segments",): "2E"} if self.num_segments else {}
        below |= {("positions",): "TE"} if self.positions == "learned" else {}
        below |= dense(("embedding_projection",), "ED") if self.embedded_width != self.width else {}
        above = norm(("final_norm",)) if self.pre_norm else {}
        above |= dense(("pooler",), "DD") if self.use_pooler else {}
        above |= norm(("pooler_norm",)) if self.use_pooler and self.pooler_norm else {}
        block = parameter_table.block(gated=self.gated, use_bias=self.use_bias)
        blocks = parameter_table.entries(block, 0, prefix=("blocks",), stacked=True)
        table = parameter_table.entries(below, "below") | blocks | parameter_table.entries(above)
        return parameter_table.find(table, path)

    def architecture(self) -> dict[str, Any]:
        """See `ModelConfig.architecture`."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        fields |= {"feed_forward_width": self.hidden_width, "embedding_width": self.embedded_width}
        return {name: value for name, value in fields.items() if not is_own(name)}


@dataclasses.dataclass(frozen=True)
class BertModelConfig(ModelConfig):
    """Configures models with a BERT encoder, their submodule `encoder`."""

    length_field: ClassVar[str] = "encoder.max_positions"

    encoder: BertConfig = dataclasses.field(default_factory=BertConfig)
    compute: TransformerCompute = dataclasses.field(default_factory=TransformerCompute, kw_only=True)

    @property
    def max_length(self) -> int:
        return self.encoder.max_positions

    @property
    def attends(self) -> bool:
        return True

    @property
    def bert_path(self) -> tuple[str, ...] | None:
        """Path of the BERT's parameters; None = no BERT."""
        return ("encoder",)

    def architecture(self) -> dict[str, Any]:
        return super().architecture() | {"encoder": self.encoder.architecture()}

    def with_encoder(self, encoder: BertConfig) -> Self:
        """This config with a pretrained encoder's config."""
        return dataclasses.replace(self, encoder=encoder)

    def adopt(self, pretrained: Any) -> Adopted:
        """The encoder of any model with a BERT, and its shape; dropout rates stay those of this config."""
        theirs = pretrained.model.config
        path = getattr(theirs, "bert_path", None)
        if path is None:
            raise ValueError(f"it does not have a BERT: its model is a {type(theirs).__name__}; give a run with a BERT")
        encoder = with_own_fields(theirs.encoder, self.encoder)
        return Adopted(
            self.with_encoder(encoder),
            {"encoder": functools.reduce(operator.getitem, path, pretrained.params)},
            encoder_vocabulary(pretrained.processor),
            (transformer_note("encoder", encoder, pretrained.name),),
        )


def notes_of_tokens(encoder: BertConfig, params: Params, name: str) -> tuple[str, ...]:
    """A note for a model of tokens, if the pretrained encoder's layer of each token is missing, so random."""
    random = encoder.use_pooler and not encoder.pools and "pooler" not in params
    return (f"{name} does not have the layer of each token: initialised at random",) if random else ()


class BertOutput(NamedTuple):
    """The outputs of BERT. jit removes unused ones.

    Attributes:
      hidden: of each token, after the last block [B, T, D], or after a pooler of each token.
      pooled: of each text [B, D]; None without a pooler of texts.
      layers: after the embeddings, and after each block [L + 1, B, T, D]; with `pre_norm` the last is `hidden` before
        the final normalisation.
    """

    hidden: jax.Array
    pooled: jax.Array | None
    layers: jax.Array


class Bert(nn.Module):
    """Computes a vector for each token of a text, and one for the whole text.

    Parameters of the blocks are stacked on their first axis, see `nn.transformer.stack`.

    Attributes:
      config: shape and variants.
      vocabulary_size: V.
      compute: types and implementations.
    """

    config: BertConfig
    vocabulary_size: int
    compute: TransformerCompute = TransformerCompute()

    @nn.compact
    def __call__(
        self,
        tokens: jax.Array,
        segments: jax.Array | None = None,
        attention_mask: jax.Array | None = None,
        *,
        texts: jax.Array | None = None,
        deterministic: bool = True,
    ) -> BertOutput:
        """Encodes texts, one a row; or several packed in a row, without padding between them.

        Args:
          tokens: [B, T] int, in [0, V); T is at most `max_positions`.
          segments: [B, T] int, 0 in the first text and 1 in the second; None = all 0. Ignored without segment
            embeddings.
          attention_mask: [B, T] bool, False for padding, which does not change the vectors of other tokens; None = no
            padding. Padding before a text moves its positions, unless it has the id `padding_id`.
          texts: [B, T] int, the number of each token's text in a row of several, from 1; 0 = padding. It replaces the
            mask, and there is no vector of the whole text.
          deterministic: no dropout; otherwise the random stream `dropout` is needed.

        Raises: ValueError when T exceeds `max_positions`.
        """
        config = self.config
        chex.assert_rank(tokens, 2)
        chex.assert_shape([x for x in (segments, attention_mask) if x is not None], tokens.shape)
        positions = tokens.shape[1]
        if positions > config.max_positions:
            raise ValueError(
                f"the text has {positions} tokens, but the model has only {config.max_positions} positions"
            )
        x = self._embed(tokens, segments, texts)
        norm = functools.partial(LayerNorm, config.epsilon, config.use_bias, self.compute)
        dense = functools.partial(Dense, config.width, config.use_bias, compute=self.compute)
        x = norm(name="embedding_norm")(x)
        x = Dropout(config.dropout_rate)(x, deterministic=deterministic)
        if config.embedded_width != config.width:
            x = dense(name="embedding_projection")(x.reshape(-1, x.shape[-1])).reshape(*tokens.shape, -1)

        block = functools.partial(
            TransformerBlock,
            functools.partial(
                SelfAttention,
                config.num_heads,
                causal=False,
                attention_dropout_rate=config.attention_dropout_rate,
                dropout_rate=config.dropout_rate,
                use_bias=config.use_bias,
                compute=self.compute,
                positions=Rotary(config.rotary_base) if config.positions == "rotary" else None,
            ),
            functools.partial(
                FeedForward,
                config.hidden_width,
                dropout_rate=config.dropout_rate,
                gated=config.gated,
                use_bias=config.use_bias,
                compute=self.compute,
            ),
            norm,
            order="pre" if config.pre_norm else "post",
        )
        mask = None if attention_mask is None else attention_mask[:, None, None]
        mask = mask if texts is None else masks.segments(texts)
        hidden, after, _ = stack(
            block,
            config.num_layers,
            self.compute,
            x,
            deterministic=deterministic,
            attention_mask=mask,
            layer_inputs=self._layer_inputs(positions, mask),
            return_layers=True,
        )
        assert after is not None
        layers = jnp.concatenate([x[None], after])
        if config.pre_norm:
            hidden = norm(name="final_norm")(hidden)
        pooled = None
        if config.use_pooler and (texts is None or not config.pools):
            activation = {"tanh": jnp.tanh, "relu": nn.relu, "gelu": gelu}[config.pooler_activation]
            vectors = hidden.reshape(-1, config.width) if config.pooler_input == "each" else hidden[:, 0]
            if config.pooler_input == "mean":
                vectors = hidden.mean(axis=1, where=None if attention_mask is None else attention_mask[:, :, None])
            pooled = activation(dense(name="pooler")(vectors))
            pooled = norm(name="pooler_norm")(pooled) if config.pooler_norm else pooled
            if config.pooler_input == "each":
                hidden, pooled = pooled.reshape(hidden.shape), None
        return BertOutput(hidden, pooled, layers)

    def _layer_inputs(self, positions: int, mask: jax.Array | None) -> Callable[[jax.Array], dict[str, Any]] | None:
        """The inputs of `stack` that differ among layers; None = none. Args: positions: T; mask: [B, 1, 1 or T, T]."""
        config = self.config
        if config.first_norm and not config.local_layers:
            return None
        half = config.local_window // 2
        near = masks.local(positions, positions, before=half, after=half)

        def inputs(layer: jax.Array) -> dict[str, Any]:
            local = jnp.isin(layer, jnp.array(config.local_layers, jnp.int32))
            given: dict[str, Any] = {} if config.first_norm else {"normalised": layer == 0}
            if config.local_layers:
                given["attention_mask"] = (near | ~local) & (True if mask is None else mask)
                if config.positions == "rotary":
                    given["rotary_base"] = jnp.where(local, config.local_rotary_base, config.rotary_base)
            return given

        return inputs

    def _embed(self, tokens: jax.Array, segments: jax.Array | None, texts: jax.Array | None) -> jax.Array:
        """The sum of the embeddings of token, position and segment [B, T, E]."""
        config, dtype, initial = self.config, self.compute.activation_dtype, normal(INITIAL_STDDEV)
        width = config.embedded_width
        x = Embed(self.vocabulary_size, width, dtype, embedding_init=initial, name="tokens")(tokens)
        if config.scale_embeddings:
            x = x * width**0.5
        table = None
        if config.positions == "learned":
            table = self.param("positions", initial, (config.position_rows, width))
        elif config.positions == "sinusoidal":
            table = sinusoidal_positions(config.position_rows, width)
        if table is not None:
            if config.padding_id is None and texts is None:
                x = added(x, table[None, : tokens.shape[1]])
            else:
                counted = jnp.ones_like(tokens, bool) if config.padding_id is None else tokens != config.padding_id
                first = -1 if config.padding_id is None else config.padding_id
                x = added(x, embed(table, first + ranks(counted, texts), dtype))
        if not config.num_segments:
            return x
        kinds = self.param("segments", initial, (config.num_segments, width))
        return added(x, kinds[None, :1] if segments is None else kinds[segments])

    def attention_maps(
        self,
        params: Params,
        tokens: jax.Array,
        segments: jax.Array | None = None,
        attention_mask: jax.Array | None = None,
    ) -> dict[str, jax.Array]:
        """`blocks` [L, B, H, T, T], float32: the attention weights of all layers; each row sums to 1."""
        _, state = self.apply({"params": params}, tokens, segments, attention_mask, mutable=["intermediates"])
        (weights,) = jax.tree.leaves(state["intermediates"]["blocks"])
        return {"blocks": weights}
