"""Kernels of `ops.flash_gpu`: a block of queries or of keys each, whose weights never leave the processor.

Each kernel is called for one example b and one head, and reads arrays of a whole head block by block. Tiles of scores
are [t, s]; `ops.flash_tiles` has their mathematics.
"""

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

from jaxnlp.ops import flash_tiles as tiles
from jaxnlp.ops.flash_tiles import Extras, Shape


def _positions(block, size: int):
    return block * size + lax.iota(jnp.int32, size)


def _seeds(extras: Extras):
    """Both numbers, read once."""
    return None if extras.seeds is None else (extras.seeds[0], extras.seeds[1])


def _stops(extras: Extras):
    return None if extras.stops is None else extras.stops[0]


def _scores(q, k, t, s, mask, shape: Shape):
    mask = None if mask is None else mask[None, :]
    return tiles.scores(tiles.product(q, k, (1, 1), shape), t[:, None], s[None, :], mask, shape)


def _kept(t, s, head, seeds, shape: Shape):
    return tiles.kept(t[:, None], s[None, :], head, seeds, shape)


def forward(q_ref, k_ref, v_ref, extras: Extras, y_ref, statistic_ref, *, shape: Shape):
    """Y [t, K] and the statistic [t] of a block of queries, one pass over the keys [S, K] and values [S, K]."""
    block, head = pl.program_id(0), pl.program_id(1)
    t, q, seeds = _positions(block, shape.query_block), q_ref[...], _seeds(extras)

    def step(j, carry):
        mixed, most, total = carry
        at, s = pl.ds(j * shape.key_block, shape.key_block), _positions(j, shape.key_block)
        z = _scores(q, k_ref[at, :], t, s, None if extras.mask is None else extras.mask[at], shape)
        higher = jnp.maximum(most, z.max(axis=1))
        weights = jnp.exp2(z - higher[:, None])
        back = jnp.exp2(most - higher)
        total = total * back + weights.sum(axis=1)
        weights = tiles.dropped(weights, _kept(t, s, head, seeds, shape))
        v = v_ref[at, :]
        return mixed * back[:, None] + tiles.product(weights.astype(v.dtype), v, (1, 0), shape), higher, total

    start = (
        jnp.zeros(q.shape, jnp.float32),
        jnp.full(shape.query_block, tiles.LOW, jnp.float32),
        jnp.zeros(shape.query_block, jnp.float32),
    )
    blocks = tiles.key_blocks(block, _stops(extras), shape)
    mixed, most, total = lax.fori_loop(0, blocks, step, start)
    total = jnp.where(total == 0.0, 1.0, total)  # a fully masked row
    y_ref[...] = (mixed * (shape.options.factor / total)[:, None]).astype(y_ref.dtype)
    statistic_ref[...] = most + jnp.log2(total)


def _gradients(q, k, v, dy, statistic, delta, t, s, head, mask, seeds, shape: Shape):
    """A * M and dZ / f, both [t, s] float32."""
    weights = jnp.exp2(_scores(q, k, t, s, mask, shape) - statistic[:, None])
    da = tiles.product(dy, v, (1, 1), shape)
    return tiles.gradients(weights, da, delta[:, None], _kept(t, s, head, seeds, shape))


def backward_keys(q_ref, k_ref, v_ref, dy_ref, statistic_ref, delta_ref, extras: Extras, *out_refs, slots, shape):
    """dK and dV [s, K] of a block of keys, one pass over the queries [T, heads of the group, K].

    `out_refs` are two [s, 1, K], or one [s, N, K] in which the gradients have these slots.
    """
    block, key_head = pl.program_id(0), pl.program_id(1)
    s, k, v, seeds = _positions(block, shape.key_block), k_ref[...], v_ref[...], _seeds(extras)
    mask = None if extras.mask is None else extras.mask[...]
    blocks = q_ref.shape[0] // shape.query_block
    first: jax.Array | int = 0
    if shape.options.causal:
        first = lax.div(jnp.maximum(block * shape.key_block - shape.options.first_query, 0), shape.query_block)
        first = jnp.minimum(first, blocks)
    if extras.stops is not None:  # 1 if no query sees a key of this block
        first = jnp.maximum(first, (block * shape.key_block >= extras.stops[0]).astype(jnp.int32) * blocks)

    def head_of_group(number, carry):
        def step(i, carry):
            dk, dv = carry
            at, t = pl.ds(i * shape.query_block, shape.query_block), _positions(i, shape.query_block)
            q, dy = q_ref[at, number, :], dy_ref[at, number, :]
            head = key_head * shape.groups + number
            rows = statistic_ref[number, at], delta_ref[number, at]
            dropped, dz = _gradients(q, k, v, dy, *rows, t, s, head, mask, seeds, shape)
            dv = dv + tiles.product(dropped.astype(dy.dtype), dy, (0, 0), shape)
            return dk + tiles.product(dz.astype(q.dtype), q, (0, 0), shape), dv

        return lax.fori_loop(first, blocks, step, carry)

    zeros = jnp.zeros(k.shape, jnp.float32)
    if shape.groups == 1:
        dk, dv = head_of_group(0, (zeros, zeros))
    else:
        dk, dv = lax.fori_loop(0, shape.groups, head_of_group, (zeros, zeros))
    dk, dv = dk * (shape.options.scale * shape.options.factor), dv * shape.options.factor
    for ref, slot, gradient in zip((out_refs[0], out_refs[-1]), slots, (dk, dv), strict=True):
        ref[:, slot, :] = gradient.astype(ref.dtype)


def backward_queries(q_ref, k_ref, v_ref, dy_ref, statistic_ref, delta_ref, extras: Extras, _, dq_ref, *, shape: Shape):
    """dQ [t, K] of a block of queries, one pass over the keys. The argument before dq_ref is the array to fill."""
    block, head = pl.program_id(0), pl.program_id(1)
    t = _positions(block, shape.query_block)
    q, dy, statistic, delta = q_ref[...], dy_ref[...], statistic_ref[...], delta_ref[...]
    seeds = _seeds(extras)

    def step(j, dq):
        at, s = pl.ds(j * shape.key_block, shape.key_block), _positions(j, shape.key_block)
        k, mask = k_ref[at, :], None if extras.mask is None else extras.mask[at]
        _, dz = _gradients(q, k, v_ref[at, :], dy, statistic, delta, t, s, head, mask, seeds, shape)
        return dq + tiles.product(dz.astype(k.dtype), k, (1, 0), shape)

    blocks = tiles.key_blocks(block, _stops(extras), shape)
    dq = lax.fori_loop(0, blocks, step, jnp.zeros(q.shape, jnp.float32))
    dq_ref[...] = (dq * (shape.options.scale * shape.options.factor)).astype(dq_ref.dtype)
