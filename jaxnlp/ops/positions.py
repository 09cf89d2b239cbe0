"""Positions as vectors."""

import jax
import jax.numpy as jnp


def sinusoidal_positions(positions: int, width: int) -> jax.Array:
    """A fixed vector for each position: sines and cosines of wavelengths from 2 pi to 10,000 times that.

    p_t,2i = sin(t / 10000^(2i / D)),   p_t,2i+1 = cos(t / 10000^(2i / D))

    Args:
      positions: T.
      width: D, even.

    Returns:
      [T, D], float32.

    Raises:
      ValueError: when the width is odd.

    Source: Vaswani et al. 2017, section 3.5.
    """
    if width % 2:
        raise ValueError(f"sinusoidal positions come in pairs of sine and cosine: the width must be even, got {width}")
    rates = jnp.exp(-jnp.log(10_000.0) / width * jnp.arange(0.0, width, 2.0))
    angles = jnp.arange(positions, dtype=jnp.float32)[:, None] * rates[None]
    return jnp.stack([jnp.sin(angles), jnp.cos(angles)], axis=-1).reshape(positions, width)
