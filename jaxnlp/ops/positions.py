"""Positions as vectors, and as rotations of vectors."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxnlp.ops.checks import expect, expect_float
from jaxnlp.ops.matrix_products import accumulator


def sinusoidal_positions(positions: int, width: int, *, sines_first: bool = False) -> jax.Array:
    """A fixed vector for each position: sines and cosines of wavelengths from 2 pi to 10,000 times that.

    p_t,2i = sin(t / 10000^(2i / D)),   p_t,2i+1 = cos(t / 10000^(2i / D))

    Args:
      positions: T.
      width: D, even.
      sines_first: whether all sines come before all cosines; otherwise they alternate.

    Returns:
      [T, D], float32.

    Raises: ValueError when the width is odd.

    Source: Vaswani et al. 2017, section 3.5.
    """
    if width % 2:
        raise ValueError(f"sinusoidal positions come in pairs of sine and cosine: the width must be even, got {width}")
    rates = jnp.exp(-jnp.log(10_000.0) / width * jnp.arange(0.0, width, 2.0))
    angles = jnp.arange(positions, dtype=jnp.float32)[:, None] * rates[None]
    return jnp.stack([jnp.sin(angles), jnp.cos(angles)], axis=1 if sines_first else 2).reshape(positions, width)


class RotaryScaling(NamedTuple):
    """Slower rotation, for longer texts than a model was trained on.

    A pair of features turns n = original_length r_i / (2 pi) times in a text of the original length. Its rate becomes

        r_i ((1 - a_i) / factor + a_i),     a_i = (n - fewest_turns) / (most_turns - fewest_turns), clipped to [0, 1]

    Attributes:
      factor: rates are divided by it.
      fewest_turns, most_turns: pairs with fewer turns have slower rates, pairs with more turns keep theirs.
      original_length: of texts in training, in tokens; None = all rates are divided.

    Sources: Chen et al. 2023 for the same factor for all rates; Dubey et al. 2024 (Llama 3.1) for the rest.
    """

    factor: float
    fewest_turns: float = 1.0
    most_turns: float = 4.0
    original_length: int | None = None

    def scaled(self, rates: jax.Array) -> jax.Array:
        """The rates [K / 2], slower."""
        if self.original_length is None:
            return rates / self.factor
        turns = rates * (self.original_length / (2.0 * math.pi))
        kept = jnp.clip((turns - self.fewest_turns) / (self.most_turns - self.fewest_turns), 0.0, 1.0)
        return rates * ((1.0 - kept) / self.factor + kept)


def rotary(
    x: jax.Array, positions: jax.Array, *, base: jax.typing.ArrayLike = 10_000.0, scaling: RotaryScaling | None = None
) -> jax.Array:
    """Rotates queries or keys by angles that grow with their position: their products depend only on distances.

    y_t,i       = x_t,i cos(t r_i) - x_t,i+K/2 sin(t r_i)
    y_t,i+K/2   = x_t,i sin(t r_i) + x_t,i+K/2 cos(t r_i),      r_i = base^(-2i / K),  i = 0 .. K/2 - 1

    The complex number x_i + j x_i+K/2 is multiplied by exp(j t r_i). So lengths stay, and the product of a query at t
    and a key at s is a function of t - s. The gradient is the rotation by the opposite angles.

    Args:
      x: [B, T, H, K], float, K even.
      positions: [T] or [B, T] of each vector, int or float.
      base: of the rates, a number or [] float; a larger base rotates more slowly, for longer texts.
      scaling: of the rates; None = none.

    Returns:
      [B, T, H, K], dtype of x; computed in float32 at least.

    Raises: ValueError when shapes do not fit, x is not float, or K is odd.

    Source: Su et al. 2021, section 3.2.2. Differs: features i and i + K/2 are a pair, as in GPT-NeoX and Llama, instead
    of 2i and 2i + 1.
    """
    fit = x.ndim == 4 and positions.shape in (x.shape[1:2], x.shape[:2])
    expect(fit, "x [B, T, H, K], positions [T] or [B, T]", x=x, positions=positions)
    expect_float(x=x)
    width = x.shape[3]
    if width % 2:
        raise ValueError(f"rotary positions rotate pairs of features: the head width must be even, got {width}")
    wide = accumulator(x.dtype)
    rates = jnp.asarray(base, wide) ** (jnp.arange(0, width, 2, dtype=wide) / -width)
    rates = rates if scaling is None else scaling.scaled(rates)
    angles = positions.astype(wide)[..., None] * rates.reshape((1,) * positions.ndim + (-1,))
    angles = jnp.broadcast_to(angles, (*x.shape[:2], width // 2))[:, :, None]  # [B, T, 1, K/2]
    cos, sin = jnp.cos(angles), jnp.sin(angles)
    first, second = x[..., : width // 2].astype(wide), x[..., width // 2 :].astype(wide)
    return jnp.concatenate([first * cos - second * sin, first * sin + second * cos], axis=-1).astype(x.dtype)


def ranks(counted: jax.Array, texts: jax.Array | None = None) -> jax.Array:
    """The rank of each counted token among those of its text, from 1; 0 for others.

    Args:
      counted: [B, T] bool.
      texts: [B, T] int, the number of each token's text, whose tokens are consecutive; None = a text a row.

    Returns:
      [B, T] int32.

    >>> ranks(jnp.array([[True, True, False, True]]), jnp.array([[1, 1, 1, 2]])).tolist()
    [[1, 2, 0, 1]]
    """
    ones = counted.astype(jnp.int32)
    order = jnp.cumsum(ones, axis=1)
    if texts is not None:  # less those of earlier texts
        starts = jnp.diff(texts, axis=1, prepend=0) != 0
        order -= jax.lax.cummax(jnp.where(starts, order - ones, 0), axis=1)
    return ones * order
