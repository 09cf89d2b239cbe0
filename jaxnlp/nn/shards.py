"""Parameters of which each device has a shard, gathered where a layer uses them."""

from typing import Any

import flax.linen as nn
import flax.struct
import jax

from jaxnlp.typing import Params


@flax.struct.dataclass
class Shard:
    """A device's shard of a parameter, inside a function that is mapped over the devices (shard_map).

    Attributes:
      value: the shard.
      axis_name: the mapped axis.
      axis: the axis that the devices share, counted from the last, -1. So it stays valid for a slice of stacked layers.
    """

    value: jax.Array
    axis_name: str = flax.struct.field(pytree_node=False)
    axis: int = flax.struct.field(pytree_node=False)

    def gathered(self) -> jax.Array:
        """The whole parameter. Its gradient is added up over the devices and scattered: each gets its shard."""
        axis = self.axis + self.value.ndim
        return jax.lax.all_gather(self.value, self.axis_name, axis=axis, tiled=True)


def _is_shard(x: Any) -> bool:
    return isinstance(x, Shard)


def gathered(params: Params) -> Params:
    """The parameters, whole."""
    return jax.tree.map(lambda x: x.gathered() if _is_shard(x) else x, params, is_leaf=_is_shard)


def gathered_in(module: nn.Module, call: Any, *arguments: Any) -> Any:
    """`call(module, *arguments)`, for a module that may have shards: its parameters are gathered for this call."""
    shards = jax.tree.leaves(module.variables.get("params", {}), is_leaf=_is_shard)
    if not any(map(_is_shard, shards)):
        return call(module, *arguments)
    return nn.map_variables(call, "params", trans_in_fn=gathered)(module, *arguments)
