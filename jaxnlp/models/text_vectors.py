"""Vectors of texts from the outputs of a BERT, and features of pairs of vectors.

Source: Devlin et al. 2019 for the vectors of the first token and of the pooler; Reimers and Gurevych 2019 for means
over tokens and the cosine; Conneau et al. 2017 for the features of a pair.
"""

from typing import Literal, get_args

import chex
import jax
import jax.numpy as jnp

from jaxnlp.models.bert import BertOutput

Pooling = Literal["cls", "pooler", "mean", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]
"""Poolings, by their names in sentence-transformers."""


def pool(output: BertOutput, attention_mask: jax.Array, pooling: Pooling, *, skip: int = 0) -> jax.Array:
    """A vector of each text [B, D].

    Args:
      output: of the encoder.
      attention_mask: [B, T] bool, False for padding.
      pooling: its kind.
      skip: number of first tokens to leave out, such as those of a prompt; the pooler reads them.

    Raises: ValueError for another pooling, and for the pooling pooler without a pooler.
    """
    if pooling not in get_args(Pooling):
        raise ValueError(f"pooling must be one of {', '.join(get_args(Pooling))}, got {pooling!r}")
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
