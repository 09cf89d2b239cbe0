"""Choosing the next token from its scores."""

import dataclasses
import math

import jax
import jax.numpy as jnp

from jaxnlp.ops.top_k import top_k

LOWEST_TEMPERATURE = 1e-6
"""float32 would round a far lower one to 0, and 0 over it is NaN."""


@dataclasses.dataclass(frozen=True)
class Sampling:
    """How to draw a token."""

    temperature: float = 1.0
    """Divides the scores: below 1 likelier tokens, above 1 more varied ones; 0 takes the likeliest, else
    at least 1e-6."""
    top_k: int | None = None
    """Draw among this many likeliest tokens; None = all."""
    top_p: float | None = None
    """Draw among the fewest likeliest tokens that have this share of the probability together; None = all."""

    def __post_init__(self):
        if self.temperature != 0.0 and not LOWEST_TEMPERATURE <= self.temperature < math.inf:
            raise ValueError(
                f"temperature must be 0, or finite and at least {LOWEST_TEMPERATURE}, got {self.temperature}"
            )
        if self.top_k is not None and self.top_k < 1:
            raise ValueError(f"top_k must be at least 1, got {self.top_k}")
        if self.top_p is not None and not 0.0 < self.top_p <= 1.0:
            raise ValueError(f"top_p must lie in (0, 1], got {self.top_p}")


def filtered_logits(logits: jax.Array, sampling: Sampling) -> jax.Array:
    """Scores below the highest, over the temperature; -inf for tokens that may not be drawn.

    Args:
      logits: [..., V], float.
      sampling: its temperature must be positive.

    Returns:
      [..., V] float32. First top-k, then top-p of what is left; at least the likeliest token stays. Tokens that tie
      with the last of the top k stay too.

    Source: Fan et al. 2018 (top-k); Holtzman et al. 2020, section 3.1 (top-p).
    """
    logits = logits.astype(jnp.float32)
    # The highest is then 0 at any temperature: among scores of 10^10, rounding would hide it from the softmax.
    logits = (logits - logits.max(axis=-1, keepdims=True)) / sampling.temperature
    if sampling.top_k is not None and sampling.top_k < logits.shape[-1]:
        threshold = top_k(logits, sampling.top_k)[0][..., -1:]
        logits = jnp.where(logits >= threshold, logits, -jnp.inf)
    if sampling.top_p is not None and sampling.top_p < 1.0:
        order = jnp.argsort(-logits, axis=-1)
        probabilities = jnp.take_along_axis(jax.nn.softmax(logits, axis=-1), order, axis=-1)
        likelier = jnp.cumsum(probabilities, axis=-1) - probabilities  # probability of the tokens before it
        kept = jnp.take_along_axis(likelier < sampling.top_p, jnp.argsort(order, axis=-1), axis=-1)
        logits = jnp.where(kept, logits, -jnp.inf)
    return logits


def sample(logits: jax.Array, key: jax.Array, sampling: Sampling) -> jax.Array:
    """One token a row: logits [B, V] -> [B] int32. At temperature 0 the likeliest, whatever the key."""
    if sampling.temperature == 0.0:
        return jnp.argmax(logits, axis=-1).astype(jnp.int32)
    return jax.random.categorical(key, filtered_logits(logits, sampling), axis=-1).astype(jnp.int32)
