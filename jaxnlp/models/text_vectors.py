"""Vectors of texts by a BERT, features of pairs of vectors, and the base of configs of their heads.

Source: Devlin et al. 2019 for the vectors of the first token and of the pooler; Reimers and Gurevych 2019 for means
over tokens and the cosine; Conneau et al. 2017 for the features of a pair; Shen et al. 2020 for token cutoff.
"""

import dataclasses
import math
from typing import Any, Literal, NamedTuple

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxnlp.config import ReadWhen, refuse_unread
from jaxnlp.models.bert import Bert, BertModelConfig, BertOutput
from jaxnlp.nn.dropout import first_row_of_shard
from jaxnlp.ops.dropout_masks import keep_mask
from jaxnlp.targets import Targets

Pooling = Literal["cls", "pooler", "mean", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]
"""Poolings, with the names of sentence-transformers."""


class TargetHead(NamedTuple):
    """A dense layer on the vector of an input, which gives scores to classes, or predicts a number.

    Attributes:
      head: the name of its parameters.
      targets: the classes, or the scale of the number.
      texts: of an example, 1, or 2 that are read together.
    """

    head: str
    targets: Targets
    texts: int = 1


@dataclasses.dataclass(frozen=True)
class TextVectorsConfig(BertModelConfig):
    """The base of configs of a BERT whose heads read the vectors of texts."""

    pooling: Pooling = "pooler"
    """A text's vector: that of its first token (cls), the pooler's, or the mean over its tokens; or, over its tokens,
    the maximum of each entry (max), the sum divided by the root of their number (mean_sqrt_len_tokens), or the mean
    weighted by position (weightedmean); or that of its last token."""
    cosine_logit: tuple[float, float] | None = None
    """Slope and threshold, for pairs whose texts are encoded separately: add slope * (cosine - threshold) to the logit
    of a paraphrase, or of the second of two classes. It helps sentence encoders before the head is trained. None = only
    the head."""
    head_dropout_rate: float = 0.1
    """Share of the heads' inputs dropped in training."""
    freeze_encoder: bool = False
    """Train only the heads."""

    def __post_init__(self):
        super().__post_init__()
        if not 0.0 <= self.head_dropout_rate < 1.0:
            raise ValueError(f"model.head_dropout_rate must be in [0, 1), got {self.head_dropout_rate}")
        if self.cosine_logit is not None and not (
            0.0 < self.cosine_logit[0] < math.inf and math.isfinite(self.cosine_logit[1])
        ):
            raise ValueError(
                "model.cosine_logit must be a positive slope and a threshold, both finite, got "
                f"{' '.join(map(str, self.cosine_logit))}"
            )
        if self.pooling == "pooler" and not self.encoder.use_pooler:
            raise ValueError("model.pooling pooler needs an encoder with a pooler; set model.pooling to cls or mean")
        rates = ("dropout_rate", "attention_dropout_rate")
        what = "models without model.freeze_encoder"
        refuse_unread(self.encoder, [ReadWhen(name, 0.1, not self.freeze_encoder, what) for name in rates])

    def note_on_heads(self, pretrained: Any) -> str | None:
        """Why this model does not use the heads of a pretrained model of the same kind; None = it uses them."""
        fields = ("pooling", "similarity", "pair_layer", "cosine_logit")
        theirs = pretrained.model.config
        changed = [f"model.{name}" for name in fields if getattr(theirs, name) != getattr(self, name)]
        return (
            f"the heads of {pretrained.name} are not used, since its {', '.join(changed)} differs" if changed else None
        )

    def only_head(self, processor: Any) -> TargetHead | None:
        """The only head, where the processor's data has one kind of targets, of inputs with one vector each."""
        del processor
        return None

    def frozen(self, path: tuple[str, ...]) -> bool:
        # An unused pooler has no gradient, but weight decay would change it.
        unread = self.pooling != "pooler" and path[:2] == ("encoder", "pooler")
        return unread or (self.freeze_encoder and path[0] == "encoder")


def embed(
    module: nn.Module,
    encoder: Bert,
    config: TextVectorsConfig,
    tokens: jax.Array,
    segments: jax.Array | None,
    attention_mask: jax.Array,
    *,
    token_dropout_rate: float = 0.0,
    deterministic: bool,
) -> jax.Array:
    """The vectors of texts [B, D]; without a gradient if the encoder is frozen.

    Args:
      module: the model; needs the random stream `dropout` unless `deterministic`.
      encoder: reads the texts.
      config: pooling, and whether the encoder is frozen.
      tokens: [B, T] int.
      segments: [B, T] int; None = all 0.
      attention_mask: [B, T] bool, False for padding.
      token_dropout_rate: share of the tokens hidden in training, except the first.
      deterministic: no dropout.
    """
    seen = attention_mask
    if token_dropout_rate and not deterministic:
        first = first_row_of_shard(len(tokens))
        kept = keep_mask(module.make_rng("dropout"), tokens.shape, token_dropout_rate, first_row=first)
        seen &= kept.at[:, 0].set(True)  # a text has at least one token
    output = encoder(tokens, segments, seen, deterministic=deterministic or config.freeze_encoder)
    if config.freeze_encoder:
        output = jax.lax.stop_gradient(output)
    vectors = pool(output, seen, config.pooling)
    chex.assert_shape(vectors, (len(tokens), config.encoder.width))
    return vectors


def pool(output: BertOutput, attention_mask: jax.Array, pooling: Pooling, *, skip: int = 0) -> jax.Array:
    """A vector of each text [B, D].

    Args:
      output: of the encoder.
      attention_mask: [B, T] bool, False for padding.
      pooling: as in `TextVectorsConfig`.
      skip: number of first tokens to leave out, such as those of a prompt; the pooler reads them.
    """
    if pooling == "pooler":
        if output.pooled is None:
            raise ValueError("this encoder has no pooler; set pooling to cls or mean")
        return output.pooled
    skip = min(skip, attention_mask.shape[1] - 1)
    hidden, mask = output.hidden[:, skip:], attention_mask[:, skip:, None]
    positions = 1.0 + jnp.arange(skip, attention_mask.shape[1], dtype=jnp.float32)[:, None]
    if pooling == "cls":
        return hidden[:, 0]
    if pooling == "max":
        return jnp.where(mask, hidden, -jnp.inf).max(axis=1)
    if pooling == "lasttoken":
        last = jnp.where(mask, positions, 0.0).argmax(axis=1, keepdims=True)
        return jnp.take_along_axis(hidden, last, axis=1)[:, 0]
    weights = jnp.where(mask, positions if pooling == "weightedmean" else 1.0, 0.0)
    total, count = (hidden.astype(jnp.float32) * weights).sum(axis=1), jnp.maximum(weights.sum(axis=1), 1.0)
    return (total / (jnp.sqrt(count) if pooling == "mean_sqrt_len_tokens" else count)).astype(hidden.dtype)


def pair_features(u: jax.Array, v: jax.Array) -> jax.Array:
    """Features of a pair of vectors [B, D]: u, v, u - v, |u - v| and u v, concatenated [B, 5 D]."""
    chex.assert_equal_shape([u, v])  # [1, D] would be broadcast
    return jnp.concatenate([u, v, u - v, jnp.abs(u - v), u * v], axis=-1)


def cosine(u: jax.Array, v: jax.Array) -> jax.Array:
    """Cosine similarity of vectors [B, D] and [B, D]: [B], float32; 0 for a zero vector, with finite gradients."""
    chex.assert_equal_shape([u, v])
    u, v = (x.astype(jnp.float32) for x in (u, v))
    squares = (u * u).sum(axis=-1) * (v * v).sum(axis=-1)
    return (u * v).sum(axis=-1) * jax.lax.rsqrt(jnp.maximum(squares, 1e-12))
