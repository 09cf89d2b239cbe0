"""Flash attention with the library's dropout, for Nvidia GPUs: no array [T, S] is ever in memory.

It computes what `ops.attention.dot_product_attention` computes, with the same dropout mask. It reads queries, keys and
values where the projection wrote them: [B, T, H, K], or packed in one array, without a transposition.

The kernels are written for Pallas's Triton backend. It is deprecated since JAX 0.11 in favour of Mosaic GPU, and it
compiles in every version that jaxnlp supports. Mosaic GPU needs a GPU of the Hopper generation at least, and another
kernel for each generation: with barriers, copies and layouts of registers by hand.

Source: Dao 2023 (FlashAttention-2) for the order of the loops. Differs: two kernels for the gradient, one over keys and
one over queries, so that no sum depends on the order in which processors finish.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jax.experimental import pallas as pl
from jax.experimental.custom_partitioning import custom_partitioning
from jax.experimental.pallas import triton
from jax.sharding import NamedSharding, PartitionSpec

from jaxnlp.ops import flash_kernels
from jaxnlp.ops.dropout_masks import check_row_size, row_seeds
from jaxnlp.ops.flash_kernels import Extras, Shape

MAX_WIDTH = 128


class _Options(NamedTuple):
    """Static arguments."""

    causal: bool
    first_query: int
    scale: float
    rate: float
    interpret: bool


def flash_attention(
    *packed: jax.Array,
    key_mask: jax.Array | None = None,
    causal: bool = False,
    first_query: int = 0,
    scale: float | None = None,
    dropout_rate: float = 0.0,
    dropout_key: jax.Array | None = None,
    first_row: int | jax.Array = 0,
    interpret: bool = False,
) -> jax.Array:
    """Values mixed by how well their keys match each query.

    Args:
      packed: q [B, T, H, K], k and v [B, S, G, K]; or q and kv [B, S, 2, G, K]; or qkv [B, T, 3, H, K]. bfloat16,
        float16 or float32, K at most 128; G divides H.
      key_mask: [B, S] bool, True = may be seen; None = all.
      causal, first_query, scale, dropout_rate, dropout_key, first_row: as for
        `ops.attention.dot_product_attention`; first_query and scale are Python numbers.
      interpret: compute on any device with JAX's interpreter of kernels, which is slow: for tests.

    Returns:
      [B, T, H, K], dtype of q. A fully masked row is zero, and so is its gradient.
    """
    q, _, _ = unpacked(packed)
    rows, width = q.shape[0], q.shape[-1]
    scale = width**-0.5 if scale is None else scale
    seeds = mask = stops = None
    if dropout_key is not None and dropout_rate > 0.0:
        keys = packed[-1].shape[1]
        check_row_size((rows, q.shape[2], q.shape[1], keys))
        seeds = jnp.stack(row_seeds(dropout_key, rows, first_row), axis=1)
    if key_mask is not None:
        mask = key_mask.astype(jnp.int32)
        stops = (mask * jnp.arange(1, mask.shape[1] + 1, dtype=mask.dtype)[None]).max(axis=1, keepdims=True)
    rate = 0.0 if seeds is None else dropout_rate
    # Blocks have powers of two, at least 16 wide: what the processor multiplies at once.
    wide = max(16, pl.next_power_of_2(width))
    parts = tuple(_padded(x if x.ndim == 5 else x[:, :, None], wide, axis=4) for x in packed)
    y = _flash(parts, Extras(seeds, mask, stops), _Options(causal, first_query, scale, rate, interpret))
    return y[..., :width]


def unpacked(packed: tuple[jax.Array, ...]) -> tuple[jax.Array, jax.Array, jax.Array]:
    """q, k, v of the arrays that `flash_attention` takes."""
    q, k, v = (
        x[:, :, n] if x.ndim == 5 else x for x, n in zip(*_slots(packed), strict=True)
    )
    return q, k, v


def _slots(packed: tuple[jax.Array, ...]) -> tuple[tuple[jax.Array, jax.Array, jax.Array], tuple[int, int, int]]:
    """The arrays that have q, k and v, and the indices of these on the packed axis."""
    if len(packed) == 1:
        return (packed[0], packed[0], packed[0]), (0, 1, 2)
    if len(packed) == 2:
        return (packed[0], packed[1], packed[1]), (0, 0, 1)
    return (packed[0], packed[1], packed[2]), (0, 0, 0)


def _padded(x: jax.Array, multiple: int, axis: int = 1) -> jax.Array:
    missing = -x.shape[axis] % multiple
    return jnp.pad(x, [(0, missing if a == axis else 0) for a in range(x.ndim)]) if missing else x


def _like(x: jax.Array, shape: tuple[int, ...], dtype: Any = None) -> jax.ShapeDtypeStruct:
    """A result that differs between devices as x does, which `shard_map` asks."""
    return jax.ShapeDtypeStruct(shape, dtype or x.dtype, manual_axis_type=jax.typeof(x).manual_axis_type)


def _block(length: int, limit: int) -> int:
    return max(16, min(limit, pl.next_power_of_2(length)))


def _shape(parts: tuple[jax.Array, ...], options: _Options, blocks: tuple[int, int]) -> Shape:
    (q, k, _), _ = _slots(parts)
    halves = q.dtype.itemsize // 2  # twice as wide numbers, half as many: registers hold both
    sizes = (_block(q.shape[1], blocks[0] // halves), _block(k.shape[1], blocks[1] // halves))
    return Shape(q.shape[1], k.shape[1], *sizes, q.shape[3] // k.shape[3], *options[:4])


def _whole_blocks(parts: tuple[jax.Array, ...], extras: Extras, shape: Shape) -> tuple[tuple[jax.Array, ...], Extras]:
    """Padded to whole blocks of queries and of keys."""
    if extras.mask is not None:
        extras = extras._replace(mask=_padded(extras.mask, shape.key_block))
    if len(parts) == 1:
        return (_padded(parts[0], max(shape.query_block, shape.key_block)),), extras
    sizes = (shape.query_block, shape.key_block, shape.key_block)
    return tuple(_padded(x, size) for x, size in zip(parts, sizes, strict=False)), extras


# What a program reads. Its indices are those of its block i, its head h and its example b.


def _head(positions: int, width: int, slot: int = 0, *, whole: bool = False, shared: int = 1) -> pl.BlockSpec:
    """Positions of one head of an array [B, T, N, H, K]: a block or the whole; `shared` query heads have one head."""
    return pl.BlockSpec(
        (None, positions, None, None, width),
        lambda i, h, b: (b, 0 if whole else i, slot, jax.lax.div(h, shared) if shared > 1 else h, 0),
    )


def _group(positions: int, width: int, groups: int, slot: int = 0) -> pl.BlockSpec:
    """All positions of the query heads that share a key head."""
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


def _by_rows(function: Callable[..., Any], *arrays: Any) -> Any:
    """`function(*arrays)`, computed by each device on its own rows.

    XLA cannot divide a kernel among devices, and JAX's `vmap` would give it a fourth index. But rows are independent of
    each other: a device takes those it has, and mapped calls are the rows of one.
    """
    divided = custom_partitioning(function)

    def partition(mesh, shapes, results):
        spec = jax.tree.leaves(shapes)[0].sharding.spec
        rows = NamedSharding(mesh, PartitionSpec(spec[0] if spec else None))
        return mesh, function, jax.tree.map(lambda _: rows, results), jax.tree.map(lambda _: rows, shapes)

    def rule(mesh, operands, results):
        del mesh
        axes = [
            ("rows", *(f"x{number}_{axis}" for axis in range(1, len(x.shape))))
            for number, x in enumerate((*operands, *results))
        ]
        sides = (" , ".join(map(" ".join, side)).replace(" ,", ",") for side in (axes[: len(operands)], axes[len(operands) :]))
        whole = tuple(name for names in axes for name in names[1:])
        return " -> ".join(sides), {"need_replication_factors": whole}

    divided.def_partition(partition, sharding_rule=rule)
    mapped = custom_vmap(divided)

    @mapped.def_vmap
    def _(size, is_mapped, *arrays):
        def joined(x, has_axis):
            x = x if has_axis else jnp.broadcast_to(x, (size, *x.shape))
            return x.reshape(-1, *x.shape[2:])

        y = _by_rows(function, *jax.tree.map(joined, arrays, tuple(is_mapped)))
        return jax.tree.map(lambda x: x.reshape(size, -1, *x.shape[1:]), y), jax.tree.map(lambda _: True, y)

    return mapped(*arrays)


def _call(kernel: Callable[..., None], blocks: int, heads: int, arrays, specs, like, out_specs, *, wide: int, interpret, **options):
    """A kernel for each block, head and example."""
    rows = jax.tree.leaves(arrays)[0].shape[0]
    return pl.pallas_call(
        kernel,
        grid=(blocks, heads, rows),
        in_specs=specs,
        out_specs=out_specs,
        out_shape=like,
        compiler_params=triton.CompilerParams(num_warps=4 if wide <= 64 else 8, num_stages=2),
        interpret=interpret,
        **options,
    )(*arrays)


@functools.partial(jax.jit, static_argnums=2)
def _forward(parts, extras: Extras, options: _Options):
    """Y [B, T, H, K] and the statistic of each row [B, H, T], float32."""
    return _by_rows(lambda *x: _forward_rows(*x, options), parts, extras)


def _forward_rows(parts, extras, options: _Options):
    shape = _shape(parts, options, (128, 64))
    parts, extras = _whole_blocks(parts, extras, shape)
    (q, k, v), (at_q, at_k, at_v) = _slots(parts)
    rows, positions, _, heads, width = q.shape
    block = _head(shape.query_block, width, at_q)
    keys = [_head(k.shape[1], width, slot, whole=True, shared=shape.groups) for slot in (at_k, at_v)]
    y, statistic = _call(
        functools.partial(flash_kernels.forward, shape=shape),
        positions // shape.query_block,
        heads,
        (q, k, v, extras),
        (block, *keys, _extra_specs(extras)),
        (
            _like(q, (rows, positions, 1, heads, width)),
            _like(q, (rows, heads, positions), jnp.float32),
        ),
        (
            _head(shape.query_block, width),
            pl.BlockSpec((None, None, shape.query_block), lambda i, h, b: (b, h, i)),
        ),
        wide=width,
        interpret=options.interpret,
        name="flash_forward",
    )
    return y[:, : shape.queries, 0], statistic[:, :, : shape.queries]


@functools.partial(jax.jit, static_argnums=5)
def _backward(parts, extras: Extras, y, statistic, dy, options: _Options):
    """The gradients of the parts."""
    return _by_rows(lambda *x: _backward_rows(*x, options), parts, extras, y, statistic, dy)


def _backward_rows(parts, extras, y, statistic, dy, options: _Options):
    shape = _shape(parts, options, (64, 64))
    lengths = [x.shape[1] for x in parts]
    delta = (y.astype(jnp.float32) * dy.astype(jnp.float32)).sum(axis=-1).swapaxes(1, 2) * (1.0 - shape.rate)
    parts, extras = _whole_blocks(parts, extras, shape)
    (q, k, v), (at_q, at_k, at_v) = _slots(parts)
    rows, positions, _, heads, width = q.shape
    dy = _padded(dy[:, :, None], positions)
    statistic, delta = (_padded(x, positions, axis=2) for x in (statistic, delta))
    arrays = (q, k, v, dy, statistic, delta, extras)
    one_row = pl.BlockSpec((None, None, shape.query_block), lambda i, h, b: (b, h, i))
    group_rows = pl.BlockSpec((None, shape.groups, positions), lambda i, h, b: (b, h, 0))
    options_of_call = {"wide": width, "interpret": options.interpret}

    blocks_of_keys = [_head(shape.key_block, width, slot) for slot in (at_k, at_v)]
    outputs = parts[1:] or parts
    dkv = _call(
        functools.partial(flash_kernels.backward_keys, slots=(at_k, at_v), shape=shape),
        k.shape[1] // shape.key_block,
        k.shape[3],
        arrays,
        (
            _group(positions, width, shape.groups, at_q),
            *blocks_of_keys,
            _group(positions, width, shape.groups),
            group_rows,
            group_rows,
            _extra_specs(extras, shape.key_block),
        ),
        [_like(x, x.shape) for x in outputs],
        [
            pl.BlockSpec((None, shape.key_block, x.shape[2], None, width), lambda i, h, b: (b, i, 0, h, 0))
            for x in outputs
        ],
        name="flash_backward_keys",
        **options_of_call,
    )
    gradients = _call(
        functools.partial(flash_kernels.backward_queries, shape=shape),
        positions // shape.query_block,
        heads,
        (*arrays, dkv[0] if len(parts) == 1 else None),
        (
            _head(shape.query_block, width, at_q),
            *(_head(k.shape[1], width, slot, whole=True, shared=shape.groups) for slot in (at_k, at_v)),
            _head(shape.query_block, width),
            one_row,
            one_row,
            _extra_specs(extras),
            _head(shape.query_block, width) if len(parts) == 1 else None,
        ),
        _like(q, q.shape),
        _head(shape.query_block, width, at_q),
        name="flash_backward_queries",
        # The same array, in which the queries' part is still missing.
        input_output_aliases={len(jax.tree.leaves(arrays)): 0} if len(parts) == 1 else {},
        **options_of_call,
    )
    gradients = (gradients,) if len(parts) == 1 else (gradients, *dkv)
    return tuple(x[:, :length] for x, length in zip(gradients, lengths, strict=True))


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def _flash(parts, extras: Extras, options: _Options):
    return _forward(parts, extras, options)[0]


def _flash_forward(parts, extras, options):
    y, statistic = _forward(parts, extras, options)
    return y, (parts, extras, y, statistic)


def _flash_backward(options, residuals, dy):
    parts, extras, y, statistic = residuals
    return _backward(parts, extras, y, statistic, dy, options), None


_flash.defvjp(_flash_forward, _flash_backward)
