"""Kernels of `ops.flash_attention`: a block of queries or of keys each, whose weights never leave the processor.

Each kernel is called for one example b and one head; arrays of a whole head are read block by block. Scores are in
units of log 2, so that exp2 serves. A row's statistic is log2(sum_s(exp2(Z))), from which the backward pass computes
the weights again. With the dropout factor f = 1 / (1 - rate) and the kept weights M, 0 or 1:

    dV = f (A * M)^T dY
    dZ = A * (f M * dA - delta) = f A * (M * dA - delta / f),  delta = sum_k(Y * dY)

so the kernels multiply by f once, at the end, and `delta` arrives divided by f.
"""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

from jaxnlp.ops.dropout_masks import keeps

LOG2_E = math.log2(math.e)
HIDDEN = -1e30
"""Score of a hidden key. It is far below LOW, from which the maximum of a row begins: so its weight is 0 without a
further comparison, in rows that see no key too."""
LOW = -1e29


class Shape(NamedTuple):
    """Static arguments of the kernels: T and S before padding, blocks of them, query heads for each key head; the
    precision of products, as `jax_default_matmul_precision` has it."""

    queries: int
    keys: int
    query_block: int
    key_block: int
    groups: int
    causal: bool
    first_query: int
    scale: float
    rate: float
    precision: str | None

    @property
    def hides_padding(self) -> bool:
        """Whether a query that counts may come to a key of the padding."""
        return self.keys % self.key_block != 0 and not (self.causal and self.first_query + self.queries <= self.keys)

    @property
    def factor(self) -> float:
        """1 / (1 - rate)."""
        return 1.0 / (1.0 - self.rate)


class Extras(NamedTuple):
    """Arrays of the kernels that not every call has; refs of one example inside a kernel.

    seeds: of each row's dropout mask [B, 2] uint32.
    mask: keys that may be seen [B, S] int32, 0 = hidden, with `stops` [B, 1] int32: no key from there on is seen.
    """

    seeds: Any = None
    mask: Any = None
    stops: Any = None


def _positions(block, size: int):
    return block * size + lax.iota(jnp.int32, size)


def _product(x, y, summed: tuple[int, int], shape: Shape):
    """x and y [m, n] multiplied over these axes, in float32."""
    axes = (((summed[0],), (summed[1],)), ((), ()))
    return lax.dot_general(x, y, axes, precision=shape.precision, preferred_element_type=jnp.float32)


def _seen(t, s, mask, shape: Shape):
    """Which of the pairs of queries t [t] and keys s [s] attend: [t, s] bool; None = all."""
    rows, columns = t[:, None], s[None, :]
    parts = []
    if shape.causal:
        parts.append(columns <= rows + shape.first_query)
    if mask is not None:
        parts.append(jnp.broadcast_to((mask != 0)[None, :], (len(t), len(s))))
    elif shape.hides_padding:
        parts.append(jnp.broadcast_to(columns < shape.keys, (len(t), len(s))))
    return functools.reduce(jnp.logical_and, parts) if parts else None


def _seeds(extras: Extras):
    """Both numbers, read once."""
    return None if extras.seeds is None else (extras.seeds[0], extras.seeds[1])


def _kept(t, s, head, seeds, shape: Shape):
    """Which pairs dropout keeps: [t, s] bool, as `keep_mask` of [B, H, T, S] has it."""
    start = jnp.asarray(head).astype(jnp.uint32) * jnp.uint32(shape.queries * shape.keys)
    columns = (start + t.astype(jnp.uint32) * jnp.uint32(shape.keys))[:, None] + s.astype(jnp.uint32)[None, :]
    return keeps(columns, seeds[0], seeds[1], shape.rate)


def _scores(q, k, t, s, mask, shape: Shape):
    """Z in units of log 2, [t, s]."""
    z = _product(q, k, (1, 1), shape) * (shape.scale * LOG2_E)
    seen = _seen(t, s, mask, shape)
    return z if seen is None else jnp.where(seen, z, HIDDEN)


def _key_blocks(query_block, blocks: int, stops, shape: Shape):
    """The number of blocks of keys, of `blocks`, that a block of queries may see."""
    stop: Any = blocks * shape.key_block
    if shape.causal:
        stop = jnp.minimum(stop, shape.first_query + (query_block + 1) * shape.query_block)
    if stops is not None:
        stop = jnp.minimum(stop, stops[0])
    return lax.div(stop + (shape.key_block - 1), shape.key_block)


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
        if seeds is not None:
            weights = jnp.where(_kept(t, s, head, seeds, shape), weights, 0.0)
        v = v_ref[at, :]
        return mixed * back[:, None] + _product(weights.astype(v.dtype), v, (1, 0), shape), higher, total

    start = (
        jnp.zeros(q.shape, jnp.float32),
        jnp.full(shape.query_block, LOW, jnp.float32),
        jnp.zeros(shape.query_block, jnp.float32),
    )
    blocks = _key_blocks(block, k_ref.shape[0] // shape.key_block, extras.stops, shape)
    mixed, most, total = lax.fori_loop(0, blocks, step, start)
    total = jnp.where(total == 0.0, 1.0, total)  # a fully masked row
    y_ref[...] = (mixed * (shape.factor / total)[:, None]).astype(y_ref.dtype)
    statistic_ref[...] = most + jnp.log2(total)


def _gradients(q, k, v, dy, statistic, delta, t, s, head, mask, seeds, shape: Shape):
    """A * M and dZ / f, both [t, s] float32."""
    weights = jnp.exp2(_scores(q, k, t, s, mask, shape) - statistic[:, None])
    da, dropped = _product(dy, v, (1, 1), shape), weights
    if seeds is not None:
        kept = _kept(t, s, head, seeds, shape)
        dropped, da = jnp.where(kept, weights, 0.0), jnp.where(kept, da, 0.0)
    return dropped, weights * (da - delta[:, None])


def backward_keys(q_ref, k_ref, v_ref, dy_ref, statistic_ref, delta_ref, extras: Extras, *out_refs, slots, shape):
    """dK and dV [s, K] of a block of keys, one pass over the queries [T, heads of the group, K].

    `out_refs` are two [s, 1, K], or one [s, N, K] in which the gradients have these slots.
    """
    block, key_head = pl.program_id(0), pl.program_id(1)
    s, k, v, seeds = _positions(block, shape.key_block), k_ref[...], v_ref[...], _seeds(extras)
    mask = None if extras.mask is None else extras.mask[...]
    blocks = q_ref.shape[0] // shape.query_block
    first: jax.Array | int = 0
    if shape.causal:
        first = lax.div(jnp.maximum(block * shape.key_block - shape.first_query, 0), shape.query_block)
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
            dv = dv + _product(dropped.astype(dy.dtype), dy, (0, 0), shape)
            return dk + _product(dz.astype(q.dtype), q, (0, 0), shape), dv

        return lax.fori_loop(first, blocks, step, carry)

    zeros = jnp.zeros(k.shape, jnp.float32)
    if shape.groups == 1:
        dk, dv = head_of_group(0, (zeros, zeros))
    else:
        dk, dv = lax.fori_loop(0, shape.groups, head_of_group, (zeros, zeros))
    dk, dv = dk * (shape.scale * shape.factor), dv * shape.factor
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
        return dq + _product(dz.astype(k.dtype), k, (1, 0), shape)

    blocks = _key_blocks(block, k_ref.shape[0] // shape.key_block, extras.stops, shape)
    dq = lax.fori_loop(0, blocks, step, jnp.zeros(q.shape, jnp.float32))
    dq_ref[...] = (dq * (shape.scale * shape.factor)).astype(dq_ref.dtype)
