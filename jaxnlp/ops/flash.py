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
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from jaxnlp.ops import flash_kernels
from jaxnlp.ops.dropout_masks import check_row_size, row_seeds
from jaxnlp.ops.flash_kernels import Extras, Shape
from jaxnlp.ops.row_kernels import by_rows

Parts = tuple[jax.Array, ...]
"""q, k and v in one, two or three arrays [B, T, N, H, K]: N is 3 for all of them, 2 for k and v, 1 for one."""


class _Options(NamedTuple):
    """Static arguments."""

    causal: bool
    first_query: int
    scale: float
    rate: float
    precision: str | None
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
        float16 or float32, K at most 128 (see `ops.fused_attention.why_not_flash`); G divides H.
      key_mask: [B, S] bool, True = may be seen; None = all.
      causal, first_query, scale, dropout_rate, dropout_key, first_row: as for
        `ops.attention.dot_product_attention`; first_query and scale are Python numbers.
      interpret: compute on any device with JAX's interpreter of kernels, which is slow: for tests.

    Returns:
      [B, T, H, K], dtype of q. A fully masked row is zero, and so is its gradient. Products of float32 are in TF32, or
      in float32 where `jax_default_matmul_precision` is "highest"; those of the gradient are like those of the values.
    """
    rows, queries, *_, heads, width = packed[0].shape
    scale = width**-0.5 if scale is None else scale
    seeds = mask = stops = None
    if dropout_key is not None and dropout_rate > 0.0:
        check_row_size((rows, heads, queries, packed[-1].shape[1]))
        seeds = jnp.stack(row_seeds(dropout_key, rows, first_row), axis=1)
    if key_mask is not None:
        mask = key_mask.astype(jnp.int32)
        stops = (mask * jnp.arange(1, mask.shape[1] + 1, dtype=mask.dtype)[None]).max(axis=1, keepdims=True)
    rate = 0.0 if seeds is None else dropout_rate
    # Blocks have powers of two, at least 16 wide: what the processor multiplies at once.
    wide = max(16, pl.next_power_of_2(width))
    parts = tuple(_padded(x if x.ndim == 5 else x[:, :, None], wide, axis=4) for x in packed)
    # The kernels of the gradient, and those of a division among devices, are traced when this context has ended.
    precision = jax.config.jax_default_matmul_precision  # type: ignore[attr-defined]
    options = _Options(causal, first_query, scale, rate, precision, interpret)
    y = _flash(parts, Extras(seeds, mask, stops), options)
    return y[..., :width]


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


def _shape(parts: Parts, options: _Options, blocks: tuple[int, int]) -> Shape:
    (q, k, _), _ = _slots(parts)
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
        causal=options.causal,
        first_query=options.first_query,
        scale=options.scale,
        rate=options.rate,
        precision=options.precision,
    )


def _whole_blocks(parts: Parts, extras: Extras, shape: Shape) -> tuple[Parts, Extras]:
    """Padded to whole blocks of queries and of keys."""
    if extras.mask is not None:
        extras = extras._replace(mask=_padded(extras.mask, shape.key_block))
    if len(parts) == 1:
        return (_padded(parts[0], max(shape.query_block, shape.key_block)),), extras
    sizes = (shape.query_block, shape.key_block, shape.key_block)
    return tuple(_padded(x, size) for x, size in zip(parts, sizes, strict=False)), extras


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


@functools.partial(jax.jit, static_argnums=2)  # traced and lowered once for all layers
def _forward(parts: Parts, extras: Extras, options: _Options) -> tuple[jax.Array, jax.Array]:
    """Y [B, T, H, K], and the statistic of each row [B, H, T] float32."""
    return by_rows(functools.partial(_forward_rows, options), parts, extras)


def _forward_rows(options: _Options, parts: Parts, extras: Extras) -> tuple[jax.Array, jax.Array]:
    shape = _shape(parts, options, (128, 64))
    parts, extras = _whole_blocks(parts, extras, shape)
    (q, k, v), (at_q, at_k, at_v) = _slots(parts)
    rows, positions, _, heads, width = q.shape
    y, statistic = _call(
        functools.partial(flash_kernels.forward, shape=shape),
        (positions // shape.query_block, heads, rows),
        (q, k, v, extras),
        (
            _block(shape.query_block, width, at_q),
            _head(k.shape[1], width, at_k, shape.groups),
            _head(k.shape[1], width, at_v, shape.groups),
            _extra_specs(extras),
        ),
        (_like(q, (rows, positions, 1, heads, width)), _like(q, (rows, heads, positions), jnp.float32)),
        (
            _block(shape.query_block, width),
            pl.BlockSpec((None, None, shape.query_block), lambda i, h, b: (b, h, i)),
        ),
        width=width,
        interpret=options.interpret,
        name="flash_forward",
    )
    return y[:, : shape.queries, 0], statistic[:, :, : shape.queries]


@functools.partial(jax.jit, static_argnums=5)
def _backward(
    parts: Parts, extras: Extras, y: jax.Array, statistic: jax.Array, dy: jax.Array, options: _Options
) -> Parts:
    """The gradients of the parts."""
    return by_rows(functools.partial(_backward_rows, options), parts, extras, y, statistic, dy)


def _backward_rows(
    options: _Options, parts: Parts, extras: Extras, y: jax.Array, statistic: jax.Array, dy: jax.Array
) -> Parts:
    shape = _shape(parts, options, (64, 64))
    lengths = [x.shape[1] for x in parts]
    delta = (y.astype(jnp.float32) * dy.astype(jnp.float32)).sum(axis=-1).swapaxes(1, 2) * (1.0 - shape.rate)
    parts, extras = _whole_blocks(parts, extras, shape)
    (q, k, v), (at_q, at_k, at_v) = _slots(parts)
    rows, positions, _, heads, width = q.shape
    dy = _padded(dy[:, :, None], positions)
    arrays = (q, k, v, dy, *(_padded(x, positions, axis=2) for x in (statistic, delta)), extras)
    outputs = parts[1:] or parts
    group_rows = pl.BlockSpec((None, shape.groups, positions), lambda i, h, b: (b, h, 0))
    of_keys = _call(
        functools.partial(flash_kernels.backward_keys, slots=(at_k, at_v), shape=shape),
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
        [_like(x, x.shape) for x in outputs],
        [
            pl.BlockSpec((None, shape.key_block, x.shape[2], None, width), lambda i, h, b: (b, i, 0, h, 0))
            for x in outputs
        ],
        width=width,
        interpret=options.interpret,
        name="flash_backward_keys",
    )
    block_rows = pl.BlockSpec((None, None, shape.query_block), lambda i, h, b: (b, h, i))
    # Where q, k and v are one array, so are the gradients: that of q is written into the array of the others.
    packed = len(parts) == 1
    [of_queries] = _call(
        functools.partial(flash_kernels.backward_queries, shape=shape),
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
        [_like(q, q.shape)],
        [_block(shape.query_block, width, at_q)],
        width=width,
        interpret=options.interpret,
        name="flash_backward_queries",
        input_output_aliases={len(jax.tree.leaves(arrays)): 0} if packed else {},
    )
    gradients = (of_queries,) if packed else (of_queries, *of_keys)
    return tuple(x[:, :length] for x, length in zip(gradients, lengths, strict=True))


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def _flash(parts, extras, options):
    return _forward(parts, extras, options)[0]


def _flash_forward(parts, extras, options):
    y, statistic = _forward(parts, extras, options)
    return y, (parts, extras, y, statistic)


def _flash_backward(options, residuals, dy):
    parts, extras, y, statistic = residuals
    return _backward(parts, extras, y, statistic, dy, options), None


_flash.defvjp(_flash_forward, _flash_backward)
