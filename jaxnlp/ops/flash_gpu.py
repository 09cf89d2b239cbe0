"""Calls of the kernels of flash attention for Nvidia GPUs.

The kernels are written for Pallas's Triton backend. It is deprecated since JAX 0.11 in favour of Mosaic GPU, but
compiles in every version that jaxnlp supports. Mosaic GPU needs a GPU of the Hopper generation at least, and a kernel
for each generation, with barriers, copies and register layouts by hand.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from jaxnlp.ops import flash_gpu_kernels
from jaxnlp.ops.flash_tiles import Extras, Options, Parts, Shape, kernel_name, like, padded, slots


def head_width(width: int, heads: int, key_heads: int) -> int:
    """K of the kernels: a power of two, at least 16, the processor's unit of multiplication."""
    del heads, key_heads
    return max(16, pl.next_power_of_2(width))


def _shape(parts: Parts, options: Options, blocks: tuple[int, int]) -> Shape:
    (q, k, _), _ = slots(parts)
    halves = q.dtype.itemsize // 2  # twice as wide numbers, half as many: registers hold both
    query_block, key_block = (
        max(16, min(most // halves, pl.next_power_of_2(x.shape[1]))) for x, most in zip((q, k), blocks, strict=True)
    )
    return Shape(
        queries=q.shape[1],
        keys=k.shape[1],
        query_block=query_block,
        key_block=key_block,
        groups=q.shape[3] // k.shape[3],
        options=options,
    )


def _whole_blocks(parts: Parts, extras: Extras, shape: Shape) -> tuple[Parts, Extras]:
    """Padded to whole blocks of queries and of keys."""
    if extras.mask is not None:
        extras = extras._replace(mask=padded(extras.mask, shape.key_block))
    if len(parts) == 1:
        return (padded(parts[0], max(shape.query_block, shape.key_block)),), extras
    sizes = (shape.query_block, shape.key_block, shape.key_block)
    return tuple(padded(x, size) for x, size in zip(parts, sizes, strict=False)), extras


# What the program of block i, head h and example b reads and writes.


def _block(positions: int, width: int, slot: int = 0) -> pl.BlockSpec:
    """A block of positions of a head of [B, T, N, H, K]."""
    return pl.BlockSpec((None, positions, None, None, width), lambda i, h, b: (b, i, slot, h, 0))


def _head(positions: int, width: int, slot: int, groups: int) -> pl.BlockSpec:
    """All positions of a key head of [B, S, N, G, K], for one of its query heads."""
    return pl.BlockSpec((None, positions, None, None, width), lambda i, h, b: (b, 0, slot, jax.lax.div(h, groups), 0))


def _group(positions: int, width: int, slot: int, groups: int) -> pl.BlockSpec:
    """All positions of the query heads of a key head."""
    return pl.BlockSpec((None, positions, None, groups, width), lambda i, h, b: (b, 0, slot, h, 0))


def _extra_specs(extras: Extras, block: int | None = None) -> Extras:
    """The mask of all keys, or of a block of them."""
    if extras.mask is None:
        mask = None
    elif block is None:
        mask = pl.BlockSpec((None, extras.mask.shape[1]), lambda i, h, b: (b, 0))
    else:
        mask = pl.BlockSpec((None, block), lambda i, h, b: (b, i))
    row = pl.BlockSpec((None, 1), lambda i, h, b: (b, 0))
    pair = pl.BlockSpec((None, 2), lambda i, h, b: (b, 0))
    return Extras(None if extras.seeds is None else pair, mask, None if mask is None else row)


def _call(
    kernel: Callable[..., None],
    grid: tuple[int, int, int],
    arrays: Sequence[Any],
    specs: Sequence[Any],
    results: Sequence[jax.ShapeDtypeStruct],
    result_specs: Sequence[pl.BlockSpec],
    *,
    width: int,
    **options: Any,
) -> Sequence[jax.Array]:
    return pl.pallas_call(
        kernel,
        grid=grid,
        in_specs=specs,
        out_specs=result_specs,
        out_shape=results,
        compiler_params=triton.CompilerParams(num_warps=4 if width <= 64 else 8, num_stages=2),
        **options,
    )(*arrays)


def forward(options: Options, parts: Parts, extras: Extras) -> tuple[jax.Array, jax.Array]:
    """Y [B, T, H, K], and the statistic of each row [B, H, T] float32."""
    shape = _shape(parts, options, (128, 64))
    parts, extras = _whole_blocks(parts, extras, shape)
    (q, k, v), (at_q, at_k, at_v) = slots(parts)
    rows, positions, _, heads, width = q.shape
    y, statistic = _call(
        functools.partial(flash_gpu_kernels.forward, shape=shape),
        (positions // shape.query_block, heads, rows),
        (q, k, v, extras),
        (
            _block(shape.query_block, width, at_q),
            _head(k.shape[1], width, at_k, shape.groups),
            _head(k.shape[1], width, at_v, shape.groups),
            _extra_specs(extras),
        ),
        (like(q, (rows, positions, 1, heads, width)), like(q, (rows, heads, positions), jnp.float32)),
        (
            _block(shape.query_block, width),
            pl.BlockSpec((None, None, shape.query_block), lambda i, h, b: (b, h, i)),
        ),
        width=width,
        interpret=options.interpret,
        name=kernel_name("forward", options),
    )
    return y[:, : shape.queries, 0], statistic[:, :, : shape.queries]


def backward(
    options: Options, parts: Parts, extras: Extras, y: jax.Array, statistic: jax.Array, dy: jax.Array
) -> Parts:
    """The gradients of the parts, from y and dy [B, T, H, K]."""
    shape = _shape(parts, options, (64, 64))
    lengths = [x.shape[1] for x in parts]
    delta = (y.astype(jnp.float32) * dy.astype(jnp.float32)).sum(axis=-1).swapaxes(1, 2) * (1.0 - options.rate)
    parts, extras = _whole_blocks(parts, extras, shape)
    (q, k, v), (at_q, at_k, at_v) = slots(parts)
    rows, positions, _, heads, width = q.shape
    dy = padded(dy[:, :, None], positions)
    arrays = (q, k, v, dy, *(padded(x, positions, axis=2) for x in (statistic, delta)), extras)
    outputs = parts[1:] or parts
    group_rows = pl.BlockSpec((None, shape.groups, positions), lambda i, h, b: (b, h, 0))
    of_keys = _call(
        functools.partial(flash_gpu_kernels.backward_keys, slots=(at_k, at_v), shape=shape),
        (k.shape[1] // shape.key_block, k.shape[3], rows),
        arrays,
        (
            _group(positions, width, at_q, shape.groups),
            _block(shape.key_block, width, at_k),
            _block(shape.key_block, width, at_v),
            _group(positions, width, 0, shape.groups),
            group_rows,
            group_rows,
            _extra_specs(extras, shape.key_block),
        ),
        [like(x, x.shape) for x in outputs],
        [
            pl.BlockSpec((None, shape.key_block, x.shape[2], None, width), lambda i, h, b: (b, i, 0, h, 0))
            for x in outputs
        ],
        width=width,
        interpret=options.interpret,
        name=kernel_name("backward_keys", options),
    )
    block_rows = pl.BlockSpec((None, None, shape.query_block), lambda i, h, b: (b, h, i))
    # Where q, k and v are one array, so are the gradients: that of q is written into the array of the others.
    packed = len(parts) == 1
    [of_queries] = _call(
        functools.partial(flash_gpu_kernels.backward_queries, shape=shape),
        (positions // shape.query_block, heads, rows),
        (*arrays, of_keys[0] if packed else None),
        (
            _block(shape.query_block, width, at_q),
            _head(k.shape[1], width, at_k, shape.groups),
            _head(k.shape[1], width, at_v, shape.groups),
            _block(shape.query_block, width),
            block_rows,
            block_rows,
            _extra_specs(extras),
            _block(shape.query_block, width) if packed else None,
        ),
        [like(q, q.shape)],
        [_block(shape.query_block, width, at_q)],
        width=width,
        interpret=options.interpret,
        name=kernel_name("backward_queries", options),
        input_output_aliases={len(jax.tree.leaves(arrays)): 0} if packed else {},
    )
    gradients = (of_queries,) if packed else (of_queries, *of_keys)
    return tuple(x[:, :length] for x, length in zip(gradients, lengths, strict=True))
