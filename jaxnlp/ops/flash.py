"""Flash attention with the library's dropout, for Nvidia GPUs and TPUs, without an array [T, S] in memory.

It computes `ops.attention.dot_product_attention`, where the gradient is derived, with the same dropout mask. It reads
queries, keys and values where the projection wrote them: [B, T, H, K], or packed in one array, without a transposition.

Source: Dao 2023 (FlashAttention-2) for the order of the loops. Differs: two kernels for the gradient, one over keys and
one over queries, so that no sum depends on the order in which processors finish.
"""

import functools
from types import ModuleType

import jax
import jax.numpy as jnp

from jaxnlp.ops import flash_gpu, flash_tpu
from jaxnlp.ops.devices import target_platform
from jaxnlp.ops.dropout_masks import check_row_size, row_seeds
from jaxnlp.ops.flash_tiles import Extras, Options, Parts, padded
from jaxnlp.ops.row_kernels import by_rows


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
        float16 or float32, K at most 128 (see `ops.attention_kernels.why_not_flash`); G divides H.
      key_mask: [B, S] bool, True = may be seen; None = all.
      causal, first_query, scale, dropout_rate, dropout_key, first_row: as for
        `ops.attention.dot_product_attention`; first_query and scale are Python numbers.
      interpret: for tests: compute on any device with JAX's slow interpreter of kernels.

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
    platform = target_platform()
    wide = _backend(platform).head_width(width, heads, packed[-1].shape[-2])
    parts = tuple(padded(x if x.ndim == 5 else x[:, :, None], wide, axis=4) for x in packed)
    # The kernels of the gradient, and those of a division among devices, are traced when this context has ended.
    precision = jax.config.jax_default_matmul_precision  # type: ignore[attr-defined]
    options = Options(causal, first_query, scale, rate, precision, platform, interpret)
    y = _flash(parts, Extras(seeds, mask, stops), options)
    return y[..., :width]


def _backend(platform: str) -> ModuleType:
    """The calls of the kernels: those for GPUs also for the interpreter on a CPU."""
    return flash_tpu if platform == "tpu" else flash_gpu


@functools.partial(jax.jit, static_argnums=2)  # traced and lowered once for all layers
def _forward(parts: Parts, extras: Extras, options: Options) -> tuple[jax.Array, jax.Array]:
    """Y [B, T, H, K], and the statistics of its rows [B, ...] float32."""
    return by_rows(functools.partial(_backend(options.platform).forward, options), parts, extras)


@functools.partial(jax.jit, static_argnums=5)
def _backward(
    parts: Parts, extras: Extras, y: jax.Array, statistic: jax.Array, dy: jax.Array, options: Options
) -> Parts:
    """The gradients of the parts."""
    return by_rows(functools.partial(_backend(options.platform).backward, options), parts, extras, y, statistic, dy)


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
