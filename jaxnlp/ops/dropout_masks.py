"""Counter-based dropout: the mask is a hash of the key and of each element's index. It is never stored.

`jax.random.bernoulli` draws a random word per element, which on a CPU costs more than the matrix product before it. A
hash of (key, row, column) is one fused loop, and the backward pass computes the mask again. The mask depends only on
the example's position in the whole batch: a device with rows 8 to 15 passes `first_row=8`.
"""

import functools
import math

import jax
import jax.numpy as jnp

from jaxnlp.ops.checks import expect
from jaxnlp.ops.matrix_products import accumulator


@functools.partial(jax.jit, inline=True)  # traced once for each shape
def _mix(x: jax.Array) -> jax.Array:
    """A bijection of uint32 in which every input bit flips each output bit with probability near 1/2.

    Source: the `lowbias32` constants of Wellons 2018, "Prospecting for hash functions" (bias 0.17).
    """
    x = _mix_high(x)
    return x ^ (x >> 16)


def _mix_high(x: jax.Array) -> jax.Array:
    """`_mix` without its last step, which changes only the low 16 bits."""
    x = (x ^ (x >> 16)) * jnp.uint32(0x7FEB352D)
    return (x ^ (x >> 15)) * jnp.uint32(0x846CA68B)


def check_rate(rate: float) -> None:
    """Raises ValueError when a dropout rate is outside [0, 1)."""
    if not 0.0 <= rate < 1.0:
        raise ValueError(f"dropout rate must be in [0, 1), got {rate}")


def check_row_size(shape: tuple[int, ...]) -> None:
    """Raises ValueError when a row of a dropout mask has 2^32 elements or more, whose indices would be ambiguous."""
    if math.prod(shape[1:]) >= 2**32:
        raise ValueError(f"a row of a dropout mask must have fewer than 2^32 elements, got the shape {shape}")


def keep_mask(
    key: jax.Array,
    shape: tuple[int, ...],
    rate: float,
    *,
    first_row: int | jax.Array = 0,
    whole: tuple[int, ...] | None = None,
    offset: tuple[int, ...] | None = None,
) -> jax.Array:
    """True where dropout keeps an element, with probability 1 - rate.

    Args:
      key: typed random key.
      shape: of the mask; the first axis counts rows, the others are one row's elements, fewer than 2^32.
      rate: share dropped, in [0, 1).
      first_row: the index of the first row.
      whole: shape of the whole array, if this mask covers a window of it; None = the same.
      offset: the window's start in a row, one index for each axis but the first; None = zeros.

    Returns:
      bool of that shape; row r is a function only of (key, first_row + r).

    Raises: ValueError when rate is outside [0, 1), or a row has 2^32 elements or more.
    """
    check_rate(rate)
    check_row_size(whole or shape)
    first_seed, second_seed = (
        seed.reshape((-1,) + (1,) * (len(shape) - 1)) for seed in row_seeds(key, shape[0], first_row)
    )
    columns = jnp.zeros(shape[1:], jnp.uint32)
    strides = _strides(shape[1:] if whole is None else whole[1:])
    for axis, (stride, start) in enumerate(zip(strides, offset or (0,) * len(strides), strict=True)):
        index = jax.lax.broadcasted_iota(jnp.uint32, shape[1:], axis) + jnp.uint32(start)
        columns = columns + index * jnp.uint32(stride)
    return keeps(columns[None], first_seed, second_seed, rate)


def row_seeds(key: jax.Array, rows: int, first_row: int | jax.Array = 0) -> tuple[jax.Array, jax.Array]:
    """Both seeds of each row's mask: [rows] uint32 each; see `keep_mask` for the arguments."""
    words = jax.random.key_data(key).astype(jnp.uint32).reshape(-1)
    numbers = jnp.arange(rows, dtype=jnp.uint32) + jnp.asarray(first_row, jnp.uint32)
    # Each row has two words of seed. With one word, two of a few thousand rows would likely share their mask. Rows are
    # small numbers, and so are keys such as `key(0)`: their XORs would often be equal. So a row is mixed before its XOR
    # with the key's second word.
    return _mix(_mix(numbers ^ words[0]) + words[-1]), _mix(_mix(~numbers ^ words[0]) ^ words[-1])


def keeps(columns: jax.Array, first_seed: jax.Array, second_seed: jax.Array, rate: float) -> jax.Array:
    """True where dropout keeps elements of rows with these seeds: bool, for element indices `columns`, all uint32."""
    # Each row has an odd factor of its own, a bijection: without it, some rows would be others, reordered or shifted.
    bits = _mix_high((columns ^ first_seed) * (second_seed | jnp.uint32(1)))
    return bits >= jnp.uint32(math.floor(rate * 2.0**32))


def _strides(shape: tuple[int, ...]) -> list[int]:
    return [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]


def scaled(x: jax.Array, kept: jax.Array, rate: float) -> jax.Array:
    """x / (1 - rate) where it is kept, 0 elsewhere: x [...] float, `kept` bool, of a shape that broadcasts to it.

    The factor is applied in float32 at least: 1 / 0.9 in bfloat16 would be too small by 0.2 %.
    """
    wide = accumulator(x.dtype)
    return jnp.where(kept, x.astype(wide) * jnp.asarray(1.0 / (1.0 - rate), wide), jnp.zeros((), wide)).astype(x.dtype)


@functools.partial(jax.custom_vjp, nondiff_argnums=(1, 2))
def _drop(x, rate, shared_axis, key, first_row):
    """Dropout with one mask for all positions along `shared_axis`, unless it is None."""
    shape = tuple(1 if axis == shared_axis else size for axis, size in enumerate(x.shape))
    return scaled(x, keep_mask(key, shape, rate, first_row=first_row), rate)


def _drop_forward(x, rate, shared_axis, key, first_row):
    return _drop(x, rate, shared_axis, key, first_row), (key, first_row)


def _drop_backward(rate, shared_axis, residuals, dy):
    key, first_row = residuals
    return _drop(dy, rate, shared_axis, key, first_row), None, None


_drop.defvjp(_drop_forward, _drop_backward)


def dropout(x: jax.Array, rate: float, key: jax.Array, *, first_row: int | jax.Array = 0) -> jax.Array:
    """Zeroes each element with probability `rate` and scales the others by 1 / (1 - rate).

    Args:
      x: [B, ...], float.
      rate: share dropped, in [0, 1).
      key: typed random key; the same key gives the same mask.
      first_row: position of x's first row in the whole batch.

    Returns:
      Same shape and dtype as x; its mean over keys is x. The gradient uses the same mask, computed again.

    Raises: ValueError when rate is outside [0, 1).

    Source: Srivastava et al. 2014, section 4, in the inverted form.
    """
    if rate == 0.0:
        return x
    return _drop(x, rate, None, key, jnp.asarray(first_row, jnp.uint32))


def locked_dropout(x: jax.Array, rate: float, key: jax.Array, *, first_row: int | jax.Array = 0) -> jax.Array:
    """Dropout with one mask for all time steps of a sequence: a feature is dropped at all of them or at none.

    Args:
      x: [B, T, D], float.
      rate: share of the (sequence, feature) pairs dropped, in [0, 1).
      key: typed random key.
      first_row: as for `dropout`.

    Returns:
      [B, T, D], dtype of x.

    Raises: ValueError when x has another rank, or rate is outside [0, 1).

    Source: Gal and Ghahramani 2016, section 4 ("variational"); Merity et al. 2018, section 4.2 ("locked").
    """
    expect(x.ndim == 3, "x [B, T, D]", x=x)
    if rate == 0.0:
        return x
    return _drop(x, rate, 1, key, jnp.asarray(first_row, jnp.uint32))


def embedding_dropout(table: jax.Array, rate: float, key: jax.Array) -> jax.Array:
    """Dropout of whole words: a dropped word's embedding is zero at all its positions in the batch.

    Args:
      table: embeddings [V, D], float.
      rate: share of the words dropped, in [0, 1).
      key: typed random key.

    Returns:
      [V, D], dtype of table; the words that stay are scaled by 1 / (1 - rate).

    Raises: ValueError when the table has another rank, or rate is outside [0, 1).

    Source: Gal and Ghahramani 2016, section 4.2; Merity et al. 2018, section 4.3.
    """
    expect(table.ndim == 2, "table [V, D]", table=table)
    if rate == 0.0:
        return table
    return _drop(table, rate, 1, key, jnp.zeros((), jnp.uint32))
