"""The mathematics of `ops.flash_attention`'s kernels on a tile of scores: some queries and some keys of one head.

A tile is [t, s] on GPUs and [s, t] on TPUs: positions t and s, masks and statistics of rows broadcast to it. Scores are
in units of log 2, so that exp2 serves. A row's statistic is log2(sum_s(exp2(Z))), from which the backward pass computes
the weights again. With the dropout factor f = 1 / (1 - rate) and the kept weights M, 0 or 1:

    dV = f (A * M)^T dY
    dZ = A * (f M * dA - delta) = f A * (M * dA - delta / f),  delta = sum_k(Y * dY)

so the kernels multiply by f once, at the end, and get `delta` divided by f.
"""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxnlp.ops.dropout_masks import keeps

LOG2_E = math.log2(math.e)
HIDDEN = -1e30
"""Score of a hidden key, far below LOW, the initial maximum of a row: its weight is 0 without a further comparison,
also in rows that see no key."""
LOW = -1e29

Parts = tuple[jax.Array, ...]
"""q, k and v in one, two or three arrays [B, T, N, H, K]: N is 3 for all of them, 2 for k and v, 1 for one."""


class Options(NamedTuple):
    """Static arguments. `precision` is that of products, as in `jax_default_matmul_precision`."""

    causal: bool
    first_query: int
    scale: float
    rate: float
    precision: str | None
    platform: str
    interpret: bool

    @property
    def factor(self) -> float:
        """1 / (1 - rate)."""
        return 1.0 / (1.0 - self.rate)


class Shape(NamedTuple):
    """Static arguments of the kernels: T and S before padding, blocks of them, query heads for each key head."""

    queries: int
    keys: int
    query_block: int
    key_block: int
    groups: int
    options: Options

    @property
    def hides_padding(self) -> bool:
        """Whether a real query may come to a key of the padding."""
        causal = self.options.causal and self.options.first_query + self.queries <= self.keys
        return self.keys % self.key_block != 0 and not causal


class Extras(NamedTuple):
    """Optional arrays of the kernels; refs of one example inside a kernel.

    seeds: of each row's dropout mask [B, 2] uint32.
    mask: visible keys [B, S] int32, 0 = hidden, with `stops` [B, 1] int32: the end of the visible keys.
    """

    seeds: Any = None
    mask: Any = None
    stops: Any = None


def slots(parts: Parts) -> tuple[tuple[jax.Array, jax.Array, jax.Array], tuple[int, int, int]]:
    """The arrays [B, T, N, H, K] with q, k and v, and their indices on the axis N."""
    if len(parts) == 1:
        return (parts[0], parts[0], parts[0]), (0, 1, 2)
    if len(parts) == 2:
        return (parts[0], parts[1], parts[1]), (0, 0, 1)
    return (parts[0], parts[1], parts[2]), (0, 0, 0)


def padded(x: jax.Array, multiple: int, axis: int = 1) -> jax.Array:
    """x [...] with zeros appended to an axis, up to a multiple."""
    missing = -x.shape[axis] % multiple
    return jnp.pad(x, [(0, missing if a == axis else 0) for a in range(x.ndim)]) if missing else x


def like(x: jax.Array, shape: tuple[int, ...], dtype: Any = None) -> jax.ShapeDtypeStruct:
    """A result that differs between devices as x does, which `shard_map` requires."""
    return jax.ShapeDtypeStruct(shape, dtype or x.dtype, manual_axis_type=jax.typeof(x).manual_axis_type)


def kernel_name(kernel: str, options: Options) -> str:
    """The kernel's name in profiles and in a program's text, by which `train.programs.roofline` counts products."""
    return f"flash_{kernel}{'_causal' if options.causal else ''}"


def product(x, y, summed: tuple[int, int], shape: Shape):
    """x and y [m, n] multiplied over these axes, in float32."""
    axes = (((summed[0],), (summed[1],)), ((), ()))
    # Products of bfloat16 are exact, and the compiler for TPUs refuses another precision of them.
    precision = shape.options.precision if x.dtype == jnp.float32 else lax.Precision.DEFAULT
    return lax.dot_general(x, y, axes, precision=precision, preferred_element_type=jnp.float32)


def scores(products, t, s, mask, shape: Shape):
    """Z in units of log 2, of the products of queries and keys."""
    z = products * (shape.options.scale * LOG2_E)
    parts = []
    if shape.options.causal:
        parts.append(s <= t + shape.options.first_query)
    if mask is not None:
        parts.append(jnp.broadcast_to(mask != 0, z.shape))
    elif shape.hides_padding:
        parts.append(jnp.broadcast_to(s < shape.keys, z.shape))
    return jnp.where(functools.reduce(jnp.logical_and, parts), z, HIDDEN) if parts else z


def kept(t, s, head, seeds, shape: Shape):
    """The pairs that dropout keeps, as `keep_mask` of [B, H, T, S]: bool; None = all."""
    if seeds is None:
        return None
    start = jnp.asarray(head).astype(jnp.uint32) * jnp.uint32(shape.queries * shape.keys)
    columns = (start + t.astype(jnp.uint32) * jnp.uint32(shape.keys)) + s.astype(jnp.uint32)
    return keeps(columns, seeds[0], seeds[1], shape.options.rate)


def dropped(x, pairs):
    """x where dropout keeps the pairs, 0 elsewhere."""
    return x if pairs is None else jnp.where(pairs, x, 0.0)


def gradients(weights, da, delta, pairs):
    """A * M and dZ / f, of A and of dA = dY V^T."""
    return dropped(weights, pairs), weights * (dropped(da, pairs) - delta)


def key_blocks(query_block, stops, shape: Shape):
    """The number of blocks of keys that a block of queries may see, without blocks of only padding."""
    stop: Any = shape.keys
    if shape.options.causal:
        stop = jnp.minimum(stop, shape.options.first_query + (query_block + 1) * shape.query_block)
    if stops is not None:
        stop = jnp.minimum(stop, stops)
    return lax.div(stop + (shape.key_block - 1), shape.key_block)
