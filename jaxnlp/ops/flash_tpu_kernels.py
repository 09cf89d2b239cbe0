"""Kernels of `ops.flash_tpu`: a tile of scores each, whose sums stay on the chip for the next tile.

The last index of a grid, j or i, is the loop's. Blocks have 128 columns, of one head or several: a product of all
columns, with those of other heads 0, costs as much as of 64. Tiles of scores are [s, t], so that maxima and sums over
keys are of whole registers, and the statistics of queries are rows [1, t]; `ops.flash_tiles` has their mathematics.
"""

import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

from jaxnlp.ops import flash_tiles as tiles
from jaxnlp.ops.flash_tiles import Extras, Shape

LANES = 128
"""Columns of a register, and of a block."""


def first_query_block(key_block, blocks: int, shape: Shape):
    """The first of `blocks` of queries that may see a block of keys; the last one if none may."""
    if not shape.options.causal:
        return 0
    first = jnp.maximum(key_block * shape.key_block - shape.options.first_query, 0)
    return jnp.minimum(lax.div(first, shape.query_block), blocks - 1)


def _stops(extras: Extras):
    return None if extras.stops is None else extras.stops[0, 0]


def _heads(width: int):
    """The index of each head of a block, its row of the statistics, and its columns."""
    return [(n, pl.ds(n, 1), slice(n * width, (n + 1) * width)) for n in range(LANES // width)]


def _only(x, columns: slice):
    """x [..., 128], with 0 outside these columns."""
    if columns == slice(0, LANES):
        return x
    at = lax.broadcasted_iota(jnp.int32, x.shape, 1)
    return jnp.where((at >= columns.start) & (at < columns.stop), x, jnp.zeros((), x.dtype))


class _Tile:
    """The tile of a block of queries and a block of keys, for the heads from `head` on."""

    def __init__(self, query_block, key_block, head, extras: Extras, shape: Shape):
        size = (shape.key_block, shape.query_block)
        self.t = query_block * shape.query_block + lax.broadcasted_iota(jnp.int32, (1, shape.query_block), 1)
        self.s = key_block * shape.key_block + lax.broadcasted_iota(jnp.int32, size, 0)
        self.mask = None if extras.mask is None else extras.mask[...].T
        self.seeds = None if extras.seeds is None else [extras.seeds[0, n].astype(jnp.uint32) for n in range(2)]
        self.head, self.shape = head, shape

    def scores(self, q, k):
        products = tiles.product(k, q, (1, 1), self.shape)
        return tiles.scores(products, self.t, self.s, self.mask, self.shape)

    def kept(self, number: int):
        return tiles.kept(self.t, self.s, self.head + number, self.seeds, self.shape)

    def gradients(self, q, k, v, dy, statistic, delta, number: int):
        """A * M and dZ / f, both [s, t] float32."""
        weights = jnp.exp2(self.scores(q, k) - statistic)
        da = tiles.product(v, dy, (1, 1), self.shape)
        return tiles.gradients(weights, da, delta, self.kept(number))


def forward(
    q_ref, k_ref, v_ref, extras: Extras, y_ref, statistic_ref, mixed_ref, most_ref, total_ref, *, shape: Shape, width
):
    """Y [t, 128] and the statistics [heads, t] of a block of queries; Y^T, maxima and sums stay for the next keys."""
    columns, i, j = pl.program_id(1), pl.program_id(2), pl.program_id(3)
    blocks = pl.num_programs(3)

    @pl.when(j == 0)
    def _():
        mixed_ref[...] = jnp.zeros(mixed_ref.shape, jnp.float32)
        most_ref[...] = jnp.full(most_ref.shape, tiles.LOW, jnp.float32)
        total_ref[...] = jnp.zeros(total_ref.shape, jnp.float32)

    @pl.when(j < tiles.key_blocks(i, _stops(extras), shape))
    def _():
        tile = _Tile(i, j, columns * (LANES // width), extras, shape)
        for number, row, own in _heads(width):
            z = tile.scores(_only(q_ref[...], own), k_ref[...])
            higher = jnp.maximum(most_ref[row, :], z.max(axis=0, keepdims=True))
            weights = jnp.exp2(z - higher)
            back = jnp.exp2(most_ref[row, :] - higher)
            most_ref[row, :] = higher
            total_ref[row, :] = total_ref[row, :] * back + weights.sum(axis=0, keepdims=True)
            weights = tiles.dropped(weights, tile.kept(number)).astype(v_ref.dtype)
            mixed = tiles.product(v_ref[...], weights, (0, 0), shape)[own]
            mixed_ref[own, :] = mixed_ref[own, :] * back + mixed

    @pl.when(j == blocks - 1)
    def _():
        total = jnp.where(total_ref[...] == 0.0, 1.0, total_ref[...])  # a fully masked row
        statistic_ref[...] = most_ref[...] + jnp.log2(total)
        for number, _, own in _heads(width):
            mixed_ref[own, :] = mixed_ref[own, :] * (shape.options.factor / total[number : number + 1])
        y_ref[...] = mixed_ref[...].T.astype(y_ref.dtype)


def backward_keys(
    q_ref,
    k_ref,
    v_ref,
    dy_ref,
    statistic_ref,
    delta_ref,
    extras: Extras,
    dk_ref,
    dv_ref,
    dk_sum,
    dv_sum,
    *,
    shape,
    width,
):
    """dK and dV [s, 128] of a block of keys, over all blocks of queries of each query head of the group."""
    columns, j, step = pl.program_id(1), pl.program_id(2), pl.program_id(3)
    steps = pl.num_programs(3)
    blocks = steps // shape.groups
    i, of_group = lax.rem(step, blocks), lax.div(step, blocks)

    @pl.when(step == 0)
    def _():
        dk_sum[...] = jnp.zeros(dk_sum.shape, jnp.float32)
        dv_sum[...] = jnp.zeros(dv_sum.shape, jnp.float32)

    @pl.when(j < tiles.key_blocks(i, _stops(extras), shape))
    def _():
        tile = _Tile(i, j, (columns * shape.groups + of_group) * (LANES // width), extras, shape)
        for number, row, own in _heads(width):
            q, dy = _only(q_ref[...], own), _only(dy_ref[...], own)
            rows = statistic_ref[row, :], delta_ref[row, :]
            dropped, dz = tile.gradients(q, k_ref[...], v_ref[...], dy, *rows, number)
            dv_sum[...] += tiles.product(dropped.astype(dy.dtype), dy, (1, 0), shape)
            dk_sum[...] += tiles.product(dz.astype(q.dtype), q, (1, 0), shape)

    @pl.when(step == steps - 1)
    def _():
        dk_ref[...] = (dk_sum[...] * (shape.options.scale * shape.options.factor)).astype(dk_ref.dtype)
        dv_ref[...] = (dv_sum[...] * shape.options.factor).astype(dv_ref.dtype)


def backward_queries(
    q_ref, k_ref, v_ref, dy_ref, statistic_ref, delta_ref, extras: Extras, dq_ref, dq_sum, *, shape: Shape, width
):
    """dQ [t, 128] of a block of queries; dQ^T stays for the next keys."""
    columns, i, j = pl.program_id(1), pl.program_id(2), pl.program_id(3)
    blocks = pl.num_programs(3)

    @pl.when(j == 0)
    def _():
        dq_sum[...] = jnp.zeros(dq_sum.shape, jnp.float32)

    @pl.when(j < tiles.key_blocks(i, _stops(extras), shape))
    def _():
        tile = _Tile(i, j, columns * (LANES // width), extras, shape)
        for number, row, own in _heads(width):
            q, dy = _only(q_ref[...], own), _only(dy_ref[...], own)
            rows = statistic_ref[row, :], delta_ref[row, :]
            _, dz = tile.gradients(q, k_ref[...], v_ref[...], dy, *rows, number)
            dq_sum[own, :] += tiles.product(k_ref[...], dz.astype(q.dtype), (0, 0), shape)[own]

    @pl.when(j == blocks - 1)
    def _():
        dq_ref[...] = (dq_sum[...].T * (shape.options.scale * shape.options.factor)).astype(dq_ref.dtype)
