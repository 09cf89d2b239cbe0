"""Whether cuDNN or `flash` can serve a call of attention, and if not, why; `ops.attention` chooses between them."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from jaxnlp.ops import masks
from jaxnlp.ops.devices import cuda_capability, target_platform
from jaxnlp.typing import MODEL_AXIS

SMALL_SHARED_MEMORY = ((8, 6), (8, 9), (12, 0), (12, 1))
"""Compute capabilities of GPUs, most of them for desktops, whose processors have 100 KB of shared memory."""


def moved(first_query: int | jax.Array) -> bool:
    """Whether `first_query`, [] int, may be nonzero."""
    return not (isinstance(first_query, int | np.integer) and first_query == 0)


def _why_not_here(devices: str = "an Nvidia GPU") -> str | None:
    """Why kernels for Nvidia GPUs are not available; None = they are."""
    capability = cuda_capability()
    if capability is None:
        return f"needs {devices}, and the program is for the platform {target_platform()}"
    if capability < (8, 0):
        return f"needs a GPU of compute capability 8.0, got {'.'.join(map(str, capability))}"
    return None


def why_not_flash(
    q: jax.Array,
    k: jax.Array,
    attention_mask: jax.Array | None,
    bias: jax.Array | None,
    causal: bool,
    first_query: int | jax.Array,
) -> str | None:
    """Why `ops.flash_attention` cannot compute this call of q [B, T, H, K] and k [B, S, G, K]; None = it can."""
    on_tpu = target_platform() == "tpu"
    if not on_tpu and (refusal := _why_not_here("an Nvidia GPU or a TPU")) is not None:
        return refusal
    mesh = jax.sharding.get_abstract_mesh()
    if not mesh.empty and mesh.shape.get(MODEL_AXIS, 1) > 1:
        return f"computes all heads, and the devices of the mesh's axis {MODEL_AXIS} share them"
    if q.dtype not in (jnp.bfloat16, jnp.float32) and (on_tpu or q.dtype != jnp.float16):
        return f"computes in bfloat16, in float32, and on GPUs in float16, got {q.dtype}"
    # More would need more registers of a GPU than there are, or more shared memory.
    small = not on_tpu and (q.dtype == jnp.float32 or cuda_capability() in SMALL_SHARED_MEMORY)
    most = 64 if small else 128
    if q.shape[-1] > most:
        return f"takes head widths up to {most} here in {q.dtype}, got {q.shape[-1]}"
    if bias is not None:
        return "takes no bias, whose gradient is an array of all queries and keys"
    if attention_mask is not None and attention_mask.shape[1:3] != (1, 1):
        return f"takes a mask of keys [B or 1, 1, 1, S], got {attention_mask.shape}"
    if causal and not isinstance(first_query, int | np.integer):
        return "needs a first_query that is a number, got a traced array"
    if 0 in q.shape or 0 in k.shape:
        return f"needs at least one query and one key, got q {q.shape} and k {k.shape}"
    return None


def why_not_cudnn(q: jax.Array, dropout_key: jax.Array | None, bias: jax.Array | None) -> str | None:
    """Why cuDNN cannot compute this call of q [B, T, H, K]; None = it can."""
    if (refusal := _why_not_here()) is not None:
        return refusal
    if q.dtype not in (jnp.bfloat16, jnp.float16):
        return f"computes in bfloat16 or float16, got {q.dtype}"
    if q.shape[-1] % 8 or q.shape[-1] > 128:
        return f"takes head widths up to 128 that 8 divides, got {q.shape[-1]}"
    if dropout_key is not None:
        return "has no dropout that a second run or a second device could repeat"
    if bias is not None:
        return "takes no bias here"
    return None


def attend_cudnn(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    attention_mask: jax.Array | None,
    causal: bool,
    first_query: int | jax.Array,
    scale: float,
) -> jax.Array:
    """`dot_product_attention` by JAX's call of cuDNN."""
    queries, keys = q.shape[1], k.shape[1]
    if causal and moved(first_query):  # cuDNN's own causal mask has its first query at position 0
        past = masks.causal(queries, keys, first_query=first_query)
        attention_mask, causal = past if attention_mask is None else attention_mask & past, False
    if attention_mask is not None:  # JAX's cuDNN call broadcasts no mask over queries or keys
        attention_mask = jnp.broadcast_to(attention_mask, (*attention_mask.shape[:2], queries, keys))

    def attend(q: jax.Array, k: jax.Array, v: jax.Array, attention_mask: jax.Array | None) -> jax.Array:
        return jax.nn.dot_product_attention(
            q, k, v, mask=attention_mask, scale=scale, is_causal=causal, implementation="cudnn"
        )

    y = _by_heads(attend, attention_mask)(q, k, v, attention_mask)
    if attention_mask is None:
        return y
    visible = attention_mask & masks.causal(queries, keys) if causal else attention_mask
    return jnp.where(visible.any(axis=-1).swapaxes(1, 2)[..., None], y, 0)


def _by_heads(attend: Callable[..., jax.Array], attention_mask: jax.Array | None) -> Callable[..., jax.Array]:
    """The attention of q, k, v and a mask; devices that share the axis `model` compute their own heads.

    JAX cannot lower its call of cuDNN in a function that is mapped over one axis of a mesh and divided along another.
    """
    mesh = jax.sharding.get_abstract_mesh()
    kinds = dict(zip(mesh.axis_names, mesh.axis_types, strict=True))
    divided = {name for name, kind in kinds.items() if kind != jax.sharding.AxisType.Manual}
    if MODEL_AXIS not in divided:
        return attend
    heads = PartitionSpec(None, None, MODEL_AXIS, None)
    one_mask = attention_mask is None or attention_mask.shape[1] == 1
    mask = PartitionSpec() if one_mask else PartitionSpec(None, MODEL_AXIS, None, None)
    return jax.shard_map(
        attend, in_specs=(heads, heads, heads, mask), out_specs=heads, axis_names=divided, check_vma=False
    )


def attend_flash(
    packed: tuple[jax.Array, ...],
    attention_mask: jax.Array | None,
    causal: bool,
    first_query: int,
    scale: float,
    dropout_rate: float,
    dropout_key: jax.Array | None,
    *,
    first_row: jax.Array,
) -> jax.Array:
    """`packed_attention` by `ops.flash_attention`."""
    from jaxnlp.ops.flash import flash_attention  # here: only accelerators need its compilers

    key_mask = None
    if attention_mask is not None:
        key_mask = jnp.broadcast_to(attention_mask[:, 0, 0], packed[-1].shape[:2])
    return flash_attention(
        *packed,
        key_mask=key_mask,
        causal=causal,
        first_query=int(first_query) if causal else 0,
        scale=float(scale),
        dropout_rate=dropout_rate,
        dropout_key=dropout_key,
        first_row=first_row,
    )
