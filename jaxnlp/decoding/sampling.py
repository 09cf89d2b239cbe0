"""Sampling of the next token, given its logits."""

import dataclasses
import math
from typing import Annotated

import jax
import jax.numpy as jnp

from jaxnlp.config import Config, Count, Within
from jaxnlp.nn.shards import first_row_of_shard, rows_of_all_shards
from jaxnlp.ops.largest import top_k

LOWEST_TEMPERATURE = 1e-6
"""Lowest positive temperature: a much lower one would be 0 in float32, and 0 / 0 is NaN."""


@dataclasses.dataclass(frozen=True)
class Sampling(Config):
    """Options of sampling."""

    temperature: float = 1.0
    """Divides the logits: values below 1 favour probable tokens, values above 1 give more varied ones. 0 always takes
    the most probable token; other values must be at least 1e-6."""
    top_k: Count | None = None
    """Sample only from this many most probable tokens; None = all."""
    top_p: Annotated[float, Within("(0, 1]")] | None = None
    """Sample only from the smallest set of tokens with this total probability (nucleus sampling); None = all."""

    def __post_init__(self):
        super().__post_init__()
        if self.temperature != 0.0 and not LOWEST_TEMPERATURE <= self.temperature < math.inf:
            raise ValueError(
                f"temperature must be 0, or finite and at least {LOWEST_TEMPERATURE}, got {self.temperature}"
            )


def filtered_logits(logits: jax.Array, sampling: Sampling) -> jax.Array:
    """Logits minus their maximum, divided by the temperature; -inf for tokens that may not be drawn.

    Args:
      logits: [..., V], float.
      sampling: its temperature must be positive.

    Returns:
      [..., V] float32. Top-k is applied before top-p. The most probable token always remains, and so do tokens as
      probable as the last of the top k.

    Source: Fan et al. 2018 (top-k); Holtzman et al. 2020, section 3.1 (top-p).
    """
    logits = logits.astype(jnp.float32)
    # The maximum becomes 0 at any temperature. Otherwise rounding would change the softmax of logits near 10^10.
    logits = (logits - logits.max(axis=-1, keepdims=True)) / sampling.temperature
    if sampling.top_k is not None and sampling.top_k < logits.shape[-1]:
        threshold = top_k(logits, sampling.top_k)[0][..., -1:]
        logits = jnp.where(logits >= threshold, logits, -jnp.inf)
    if sampling.top_p is not None and sampling.top_p < 1.0:
        order = jnp.argsort(-logits, axis=-1)
        probabilities = jnp.take_along_axis(jax.nn.softmax(logits, axis=-1), order, axis=-1)
        before = jnp.cumsum(probabilities, axis=-1) - probabilities  # total probability of all more probable tokens
        kept = jnp.take_along_axis(before < sampling.top_p, jnp.argsort(order, axis=-1), axis=-1)
        logits = jnp.where(kept, logits, -jnp.inf)
    return logits


def sample(logits: jax.Array, key: jax.Array, sampling: Sampling) -> jax.Array:
    """One token for each row of logits [B, V]: [B] int32; at temperature 0 the most probable one, for any key."""
    if sampling.temperature == 0.0:
        return jnp.argmax(logits, axis=-1).astype(jnp.int32)
    rows, size = logits.shape
    # The noise of the whole batch, so that a row's token is the same on any number of devices.
    noise = jax.random.gumbel(key, (rows_of_all_shards(rows), size), jnp.float32)
    noise = jax.lax.dynamic_slice_in_dim(noise, first_row_of_shard(rows), rows)
    return jnp.argmax(filtered_logits(logits, sampling) + noise, axis=-1).astype(jnp.int32)
