"""Devices that share the rows of a search: each continues its own rows.

Inside a jitted step nothing crosses the devices. With several processes, `on_host` gathers the tokens after each step.

A search runs over the devices of its parameters, which share its rows if the parameters are whole on each device of a
mesh with the axis `data`; see `jaxnlp.typing.BATCH_AXIS`.
"""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxnlp.ops.compiler_options import jit
from jaxnlp.typing import BATCH_AXIS, Params, PyTree

T = TypeVar("T")


def mesh_of(params: Params) -> Mesh | None:
    """The mesh of the devices that share the rows; None = one device has all of them."""
    sharding = next((getattr(x, "sharding", None) for x in jax.tree.leaves(params)), None)
    mesh = sharding.mesh if isinstance(sharding, NamedSharding) else None
    return mesh if isinstance(mesh, Mesh) and mesh.shape.get(BATCH_AXIS, 1) > 1 else None


def by_rows(mesh: Mesh | None, function: Callable[..., T], params: Params, *arrays: PyTree) -> T:
    """`function(params, *arrays)`, computed by each device for its rows, in a jitted function.

    Args:
      mesh: see `mesh_of`; without one, the function sees all rows.
      function: its results have the rows of `arrays`; its scalars are for all rows.
      params: whole on each device.
      arrays: trees of arrays [B, ...], B a multiple of the devices, and of scalars for all rows.
    """
    if mesh is None:
        return function(params, *arrays)
    results = _specs(jax.eval_shape(function, params, *arrays))
    specs = PartitionSpec(), *map(_specs, arrays)
    return jax.shard_map(function, mesh=mesh, in_specs=specs, out_specs=results, check_vma=False)(params, *arrays)


def rows_like(mesh: Mesh | None, tree: PyTree) -> PyTree:
    """Abstract arrays with the shardings of a result of `by_rows`."""
    if mesh is None:
        return tree
    return jax.tree.map(
        lambda x, spec: jax.ShapeDtypeStruct(
            x.shape, x.dtype, sharding=NamedSharding(mesh, spec), weak_type=x.weak_type
        ),
        tree,
        _specs(tree),
    )


def with_rows_for_all(mesh: Mesh | None, x: np.ndarray) -> np.ndarray:
    """[N, ...] with copies of the first row until the devices divide N: a search ends when all its rows end."""
    missing = 0 if mesh is None else -len(x) % mesh.shape[BATCH_AXIS]
    return np.concatenate([x, np.repeat(x[:1], missing, axis=0)]) if missing else x


def on_host(x: jax.Array) -> np.ndarray:
    """An array of `by_rows` on the host, also the rows of other processes' devices."""
    if x.is_fully_addressable or x.is_fully_replicated:
        return np.asarray(x)
    return np.asarray(multihost_utils.process_allgather(x, tiled=True))


def jitted_by_rows(function: Callable[..., Any]) -> Callable[..., Any]:
    """A jitted function of parameters and NumPy arrays [B, ...]; the devices of the parameters share the rows. Its
    results [B, ...] are on the host."""

    @functools.partial(jit, static_argnums=0)
    def program(mesh: Mesh | None, params: Params, *arrays: Any) -> Any:
        return by_rows(mesh, function, params, *arrays)

    def call(params: Params, *arrays: np.ndarray) -> Any:
        mesh = mesh_of(params)
        results = program(mesh, params, *(with_rows_for_all(mesh, x) for x in arrays))
        return jax.tree.map(lambda x: on_host(x)[: len(arrays[0])], results)

    return call


def _specs(tree: PyTree) -> Any:
    return jax.tree.map(lambda x: PartitionSpec(BATCH_AXIS) if jnp.ndim(x) else PartitionSpec(), tree)
