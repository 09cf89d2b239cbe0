"""Kernels on the rows of a batch, which tell XLA and JAX that rows are independent."""

from collections.abc import Callable
from itertools import chain
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import NamedSharding, PartitionSpec


def by_rows(function: Callable[..., Any], *arrays: Any) -> Any:
    """`function(*arrays)`, computed by each device on its own rows.

    XLA cannot divide a kernel among devices: it would gather the whole batch on each. `vmap` would give a kernel one
    more index than GPUs have. Here a device takes its rows, and mapped calls are rows of one.

    Args:
      function: arrays to arrays, trees of them, all with the same rows on the first axis; each row of the results must
        depend on the same row of the arguments only.
      arrays: [B, ...], trees of them.
    """
    divided = custom_partitioning(function)

    def partition(mesh, shapes, results):
        spec = jax.tree.leaves(shapes)[0].sharding.spec
        rows = NamedSharding(mesh, PartitionSpec(spec[0] if spec else None))
        return mesh, function, jax.tree.map(lambda _: rows, results), jax.tree.map(lambda _: rows, shapes)

    def rule(mesh, operands, results):
        del mesh
        rest = [[f"x{n}_{axis}" for axis in range(1, len(x.shape))] for n, x in enumerate((*operands, *results))]
        names = [" ".join(["rows", *axes]) for axes in rest]
        sides = names[: len(operands)], names[len(operands) :]
        return " -> ".join(map(", ".join, sides)), {"need_replication_factors": tuple(chain(*rest))}

    divided.def_partition(partition, sharding_rule=rule)
    mapped = custom_vmap(divided)

    @mapped.def_vmap
    def _(size, is_mapped, *arrays):
        def joined(x, has_axis):
            x = x if has_axis else jnp.broadcast_to(x, (size, *x.shape))
            return x.reshape(-1, *x.shape[2:])

        y = by_rows(function, *jax.tree.map(joined, arrays, tuple(is_mapped)))
        return jax.tree.map(lambda x: x.reshape(size, -1, *x.shape[1:]), y), jax.tree.map(lambda _: True, y)

    return mapped(*arrays)
