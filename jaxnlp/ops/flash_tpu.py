"""Calls of the kernels of flash attention for TPUs, which Pallas's Mosaic backend compiles.

A TPU stores the last two axes of an array in tiles of 8 or 16 by 128: [B, T, H, K] would take twice its size or more.
So the kernels read arrays [B, T, N H K], as a projection wrote them, in blocks of 128 columns. Each head is padded to
128 columns where whole heads do not fill such blocks, or several query heads share a key head.

The program (b, h, i, j) of a grid computes a tile of example b and of the block h of columns.
"""

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from jaxnlp.ops import flash_tpu_kernels
from jaxnlp.ops.flash_tiles import Extras, Options, Parts, Shape, kernel_name, key_blocks, like, padded, slots
from jaxnlp.ops.flash_tpu_kernels import LANES, first_query_block

MAX_BLOCK = 512
"""Maximum number of queries or keys in a block."""

Place = Callable[[Any, Any, Any], tuple[Any, Any]]
"""The indices of a block of positions and of a block of columns, from the last three indices of a program."""


def head_width(width: int, heads: int, key_heads: int) -> int:
    """K of the kernels: a power of two, at least 16, with whole heads in blocks of columns; otherwise 128."""
    wide = max(16, pl.next_power_of_2(width))
    return wide if heads == key_heads and heads * wide % LANES == 0 else LANES


def _block_size(positions: int) -> int:
    """All positions, or equal parts of them."""
    if positions <= MAX_BLOCK:
        return positions + -positions % 16
    part = -(-positions // -(-positions // MAX_BLOCK))
    return part + -part % LANES


def _block(size: int, place: Place, first_column: int = 0) -> pl.BlockSpec:
    """A block of positions and of columns of [B, T, N H K]."""

    def index(b, *ids):
        position, column = place(*ids)
        return b, position, first_column + column

    return pl.BlockSpec((None, size, LANES), index)


class _Call:
    """A call's arrays as the kernels read them, and the blocks of each.

    Attributes:
      shape: static arguments of the kernels.
      blocks: numbers of blocks of queries and of keys.
      columns: numbers of blocks of columns of queries and of keys.
      heads: number of heads in a block of columns.
    """

    def __init__(self, options: Options, parts: Parts, extras: Extras):
        (q, k, _), self.slots = slots(parts)
        queries, keys, heads, self.width = q.shape[1], k.shape[1], q.shape[3], q.shape[4]
        sizes = _block_size(queries), _block_size(keys)
        self.rows, self.heads = len(q), LANES // self.width
        self.columns = heads // self.heads, k.shape[3] // self.heads
        self.shape = Shape(queries, keys, *sizes, heads // k.shape[3], options)
        self.blocks = -(-queries // sizes[0]), -(-keys // sizes[1])
        self.qkv, _ = slots(tuple(self.flat(x, size) for x, size in zip(parts, (*sizes, sizes[1]), strict=False)))
        seeds, mask, stops = extras
        self.extras = Extras(
            None if seeds is None else lax.bitcast_convert_type(seeds, jnp.int32)[:, None],
            None if mask is None else padded(mask, sizes[1])[:, None],
            None if stops is None else stops[:, None],
        )

    @staticmethod
    def flat(x: jax.Array, block: int) -> jax.Array:
        """x [B, T, ..., K] as [B, T, N H K], padded to whole blocks of positions."""
        return padded(x.reshape(*x.shape[:2], -1), block)

    def qkv_specs(self, queries: Place, keys: Place) -> list[pl.BlockSpec]:
        sizes = self.shape.query_block, self.shape.key_block, self.shape.key_block
        columns = self.columns[0], self.columns[1], self.columns[1]
        places = queries, keys, keys
        return [_block(*x) for x in zip(sizes, places, map(operator.mul, self.slots, columns), strict=True)]

    def rows_spec(self, queries: Place) -> pl.BlockSpec:
        """Statistics [B, blocks of columns, heads in one, T] of a block of queries."""
        return pl.BlockSpec(
            (None, None, self.heads, self.shape.query_block), lambda b, *ids: (b, queries(*ids)[1], 0, queries(*ids)[0])
        )

    def extra_specs(self, keys: Place) -> Extras:
        """Numbers in the memory of scalars, and the mask of a block of keys."""
        mask = pl.BlockSpec((None, 1, self.shape.key_block), lambda b, *ids: (b, 0, keys(*ids)[0]))
        pair, one = (pl.BlockSpec((None, 1, n), lambda b, *ids: (b, 0, 0), memory_space=pltpu.SMEM) for n in (2, 1))
        return Extras(*(None if x is None else spec for x, spec in zip(self.extras, (pair, mask, one), strict=True)))

    def __call__(
        self,
        kernel: Callable[..., None],
        grid: tuple[int, int, int],
        arrays: Sequence[Any],
        specs: Sequence[Any],
        results: Sequence[jax.ShapeDtypeStruct],
        result_specs: Sequence[pl.BlockSpec],
        sums: Sequence[tuple[int, int]],
    ) -> Sequence[jax.Array]:
        return pl.pallas_call(
            functools.partial(kernel, shape=self.shape, width=self.width),
            grid=(self.rows, *grid),
            in_specs=specs,
            out_specs=result_specs,
            out_shape=results,
            scratch_shapes=[pltpu.VMEM(size, jnp.float32) for size in sums],
            compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel", "parallel", "arbitrary")),
            interpret=self.shape.options.interpret,
            name=kernel_name(kernel.__name__, self.shape.options),
        )(*arrays)

    def over_keys(self) -> tuple[Place, Place]:
        """The blocks of queries and of keys of a program (h, i, j). Instead of a block of keys that no query may see,
        the last visible one is read."""

        def keys(h, i, j):
            return jnp.minimum(j, key_blocks(i, None, self.shape) - 1), lax.div(h, self.shape.groups)

        return lambda h, i, j: (i, h), keys

    def over_queries(self) -> tuple[Place, Place]:
        """The blocks of queries and of keys of a program (h, j, step), as `over_keys`. Each query head of a key head
        has its steps."""

        def queries(h, j, step):
            first = first_query_block(j, self.blocks[0], self.shape)
            i, of_group = lax.rem(step, self.blocks[0]), lax.div(step, self.blocks[0])
            return jnp.maximum(i, first), h * self.shape.groups + of_group

        return queries, lambda h, j, step: (j, h)


def forward(options: Options, parts: Parts, extras: Extras) -> tuple[jax.Array, jax.Array]:
    """Y [B, T, H, K], and the statistics [B, blocks of columns, heads in one, T] float32."""
    call = _Call(options, parts, extras)
    q, (queries, keys), (block, _) = parts[0], call.over_keys(), call.shape[2:4]
    positions, heads = call.blocks[0] * block, q.shape[3]
    y, statistic = call(
        flash_tpu_kernels.forward,
        (call.columns[0], *call.blocks),
        (*call.qkv, call.extras),
        (*call.qkv_specs(queries, keys), call.extra_specs(keys)),
        (
            like(q, (call.rows, positions, heads * call.width)),
            like(q, (call.rows, call.columns[0], call.heads, positions), jnp.float32),
        ),
        (_block(block, queries), call.rows_spec(queries)),
        ((LANES, block), (call.heads, block), (call.heads, block)),
    )
    return y[:, : q.shape[1]].reshape(*q.shape[:2], heads, call.width), statistic


def backward(
    options: Options, parts: Parts, extras: Extras, y: jax.Array, statistic: jax.Array, dy: jax.Array
) -> Parts:
    """The gradients of the parts, from y and dy [B, T, H, K]."""
    call = _Call(options, parts, extras)
    (q, k, _), _ = slots(parts)
    query_block, key_block = call.shape[2:4]
    delta = (y.astype(jnp.float32) * dy.astype(jnp.float32)).sum(axis=-1).swapaxes(1, 2) * (1.0 - options.rate)
    delta = padded(delta, query_block, axis=2).reshape(statistic.shape)
    arrays = (*call.qkv, call.flat(dy, query_block), statistic, delta, call.extras)

    def specs(queries: Place, keys: Place) -> list[Any]:
        rows = call.rows_spec(queries)
        return [*call.qkv_specs(queries, keys), _block(query_block, queries), rows, rows, call.extra_specs(keys)]

    queries, keys = call.over_queries()
    dk, dv = call(
        flash_tpu_kernels.backward_keys,
        (call.columns[1], call.blocks[1], call.shape.groups * call.blocks[0]),
        arrays,
        specs(queries, keys),
        [like(k, (call.rows, call.blocks[1] * key_block, k.shape[3] * call.width))] * 2,
        [_block(key_block, keys)] * 2,
        [(key_block, LANES)] * 2,
    )
    queries, keys = call.over_keys()
    [dq] = call(
        flash_tpu_kernels.backward_queries,
        (call.columns[0], *call.blocks),
        arrays,
        specs(queries, keys),
        [like(q, (call.rows, call.blocks[0] * query_block, q.shape[3] * call.width))],
        [_block(query_block, queries)],
        [(LANES, query_block)],
    )
    by_part = {1: [[dq, dk, dv]], 2: [[dq], [dk, dv]], 3: [[dq], [dk], [dv]]}[len(parts)]
    joined = (jnp.concatenate(gradients, axis=2) for gradients in by_part)
    return tuple(x[:, : part.shape[1]].reshape(part.shape) for x, part in zip(joined, parts, strict=True))
