"""Shards of the batch, or of the parameters, for layers and losses in a function mapped over devices."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from jaxnlp.ops.devices import target_platform
from jaxnlp.typing import BATCH_AXIS, Params

T = TypeVar("T")


def first_row_of_shard(rows: int) -> jax.Array | int:
    """Position of the first row of this device's shard in the whole batch.

    Inside pmap, shard_map or vmap over `BATCH_AXIS` each shard has `rows` rows of the batch, in order. Otherwise, also
    under jit with a sharded batch, the program sees the whole batch, and the result is 0.
    """
    try:
        return jax.lax.axis_index(BATCH_AXIS) * rows
    except NameError:  # JAX's error for an axis that is not mapped here
        return 0


def rows_of_all_shards(rows: int) -> int:
    """Number of rows of the whole batch, of which this device's shard has `rows`; see `first_row_of_shard`."""
    try:
        return jax.lax.axis_size(BATCH_AXIS) * rows
    except NameError:
        return rows


def sum_over_shards(x: jax.Array) -> jax.Array:
    """The sum of x over the shards of the batch, in its shape; x itself where the program sees the whole batch."""
    try:
        return jax.lax.psum(x, BATCH_AXIS)
    except NameError:
        return x


@flax.struct.dataclass
class Shard:
    """A device's shard of a parameter, inside a function that is mapped over the devices (shard_map).

    Attributes:
      value: the shard, or a slice of it: one layer of stacked ones.
      axis_name: the mapped axis of the mesh.
      spec: the axis of the mesh along which devices share each axis of `value`, or None; of a slice the last ones.
    """

    value: jax.Array
    axis_name: str = flax.struct.field(pytree_node=False)
    spec: tuple[str | None, ...] = flax.struct.field(pytree_node=False)

    def gathered(self, dtype: jax.typing.DTypeLike | None = None) -> jax.Array:
        """The parameter in its whole shape, except along other shared axes of the mesh.

        Each device gets the sum of all devices' gradients for its shard, in the type of the shard.

        Args: dtype: type that the shards are rounded to before they are gathered; None = their own.
        """
        spec = self.spec[len(self.spec) - self.value.ndim :]
        axis, name, of_shard = spec.index(self.axis_name), self.axis_name, self.value.dtype

        def gather_rounded(x: jax.Array) -> jax.Array:
            rounded = x if dtype is None else x.astype(dtype)
            if rounded.dtype == of_shard or target_platform() != "cpu":
                return jax.lax.all_gather(rounded, name, axis=axis, tiled=True)
            # On CPUs XLA has transfers of bfloat16 in float32; words of as many bits stay as they are.
            words = jax.lax.bitcast_convert_type(rounded, jnp.dtype(f"u{rounded.dtype.itemsize}"))
            return jax.lax.bitcast_convert_type(jax.lax.all_gather(words, name, axis=axis, tiled=True), rounded.dtype)

        def scatter_sum(residuals: None, dy: jax.Array) -> tuple[jax.Array]:
            del residuals
            return (jax.lax.psum_scatter(dy.astype(of_shard), name, scatter_dimension=axis, tiled=True),)

        gather = jax.custom_vjp(gather_rounded)
        gather.defvjp(lambda x: (gather_rounded(x), None), scatter_sum)
        others = [name for name in spec if name not in (None, self.axis_name)]
        if others:  # XLA would gather these axes as well
            kept = PartitionSpec(*(name if name in others else None for name in spec))
            gather = jax.shard_map(gather, in_specs=kept, out_specs=kept, axis_names=set(others), check_vma=False)
        return gather(self.value)


def _is_shard(x: Any) -> bool:
    return isinstance(x, Shard)


def gathered(params: Params, of_kernels: jax.typing.DTypeLike | None = None) -> Params:
    """The whole parameters. Args: of_kernels: type that kernels are rounded to first; None = their own."""

    def whole(path: tuple[Any, ...], x: Any) -> Any:
        if not _is_shard(x):
            return x
        return x.gathered(of_kernels if getattr(path[-1], "key", None) == "kernel" else None)

    return jax.tree_util.tree_map_with_path(whole, params, is_leaf=_is_shard)


def gathered_in(module: nn.Module, call: Callable[..., T], *arguments: Any, activations: jax.typing.DTypeLike) -> T:
    """`call(module, *arguments)`, for a module that may have shards: its parameters are gathered for this call.

    Args: activations: their type in the module, to which kernels are rounded before they are gathered. Each product
    rounds its kernel to it anyway, and so its gradient: the results have the same bits.
    """
    shards = jax.tree.leaves(module.variables.get("params", {}), is_leaf=_is_shard)
    if not any(map(_is_shard, shards)):
        return call(module, *arguments)
    whole = functools.partial(gathered, of_kernels=activations)
    return nn.map_variables(call, "params", trans_in_fn=whole)(module, *arguments)
