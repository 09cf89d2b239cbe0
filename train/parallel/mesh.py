"""One jitted program over a mesh of all devices.

The devices of the axis `data` share the rows of a batch. Each computes the gradient of its rows (shard_map), so fast
paths of one device work, and only sums of gradients and metrics cross the devices. With FSDP they share the parameters,
too: a layer's are gathered where it is computed, and its gradients are scattered. XLA divides the rest, such as the
update, and everything along the axis `model`.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxnlp.models import ModelConfig
from jaxnlp.nn.shards import Shard
from jaxnlp.ops.compiler_options import jit_for
from jaxnlp.typing import BATCH_AXIS, Batch, Metrics, Params, PyTree
from train.parallel.rows import accumulation_parts, pad_rows, places, rows_at
from train.parallel.rules import Placement, by_name, notes, placements, specs_like, values_on_each
from train.step import UNDIVIDED, Division, StepOutput, TrainState, has_parts

T = TypeVar("T")


class MeshParallel:
    """Batch and carry are sharded by rows; parameters, moments and averages by `train.parallel.rules`.

    Args:
      mesh: with the axis `data`, and perhaps `model`.
      fsdp: whether the devices of `data` share the parameters.
      params: the shapes of the parameters; None without `placed`.
      placed: the placement of each parameter, in a tree like `params`; None = all whole. See `of_model`.
    """

    def __init__(self, mesh: Mesh, *, fsdp: bool = False, params: Params = None, placed: PyTree = None):
        self.mesh = mesh
        self.fsdp = fsdp
        self.placements = placed
        self._params = params
        self.devices = mesh.shape[BATCH_AXIS]
        self.replicated = NamedSharding(mesh, PartitionSpec())
        self.by_rows = NamedSharding(mesh, PartitionSpec(BATCH_AXIS))

    def of_model(self, model: ModelConfig, params: Params) -> "MeshParallel":
        """See `Parallel`."""
        if not self.fsdp and self.mesh.size == self.devices:
            return self
        placed = placements(model.parameter, params, self.mesh.shape, fsdp=self.fsdp)
        return MeshParallel(self.mesh, fsdp=self.fsdp, params=params, placed=placed)

    def _jit(self, function: Callable[..., T], **options: Any) -> Callable[..., T]:
        def traced(*arguments: Any) -> T:
            with jax.sharding.use_abstract_mesh(self.mesh.abstract_mesh):  # see `jaxnlp.ops.devices.is_divided`
                return function(*arguments)

        shared = functools.wraps(function)(traced) if self.mesh.size > 1 else function
        return jit_for(self.mesh.devices.flat[0], shared, **options)

    def shardings(self, tree: Any) -> Any:
        """The sharding of each array of a state, or of a part of it."""
        if isinstance(tree, TrainState):
            rest = self.shardings((dataclasses.replace(tree, carry=()),))[0]
            return dataclasses.replace(rest, carry=jax.tree.map(lambda _: self.by_rows, tree.carry))
        if self.placements is None:
            return jax.tree.map(lambda _: self.replicated, tree)
        specs = specs_like(tree, self._params, self._specs)
        return jax.tree.map(lambda spec: NamedSharding(self.mesh, spec), specs)

    @functools.cached_property
    def _specs(self) -> PyTree:
        """The spec of each parameter."""
        return _of_placements(lambda one: one.spec, self.placements)

    # How a device computes its rows.

    @functools.cached_property
    def _shards(self) -> PyTree:
        """The spec of each parameter in a function that is mapped over `data`, or of all."""
        if self.placements is None:
            return PartitionSpec()
        return _of_placements(lambda one: PartitionSpec(*(_data(axis) for axis in one.spec)), self.placements)

    @property
    def _division(self) -> Division:
        if self.devices == 1:
            return UNDIVIDED
        return Division(BATCH_AXIS, self._on_each, self._whole, self._summed)

    def _mapped(self, function: Callable[..., T], takes: Any, gives: Any) -> Callable[..., T]:
        """The function, computed by each device of `data` for its part; XLA divides it along other axes."""
        return jax.shard_map(function, in_specs=takes, out_specs=gives, axis_names={BATCH_AXIS}, check_vma=False)

    def _on_each(self, gradients: Callable[..., Any], rows_axis: int) -> Callable[..., Any]:
        rows, whole = PartitionSpec(BATCH_AXIS), PartitionSpec()
        batch = PartitionSpec(*[None] * rows_axis, BATCH_AXIS)
        mapped = self._mapped(gradients, (self._shards, batch, whole, rows), (self._shards, whole, rows))

        def on_each(params: Params, *others: Any) -> tuple[PyTree, Metrics, PyTree]:
            grads, metrics, carry = mapped(params, *others)
            return jax.lax.with_sharding_constraint(grads, self.shardings(params)), metrics, carry

        return on_each

    def _whole(self, params: Params) -> Params:
        """Whole parameters of a device's shards; shards of stacked layers stay, and each layer gathers its own."""
        if self.placements is None:
            return params

        def whole(one: Placement, x: jax.Array) -> Any:
            if BATCH_AXIS not in one.spec:
                return x
            shard = Shard(x, BATCH_AXIS, tuple(one.spec))
            return shard if one.scanned else shard.gathered()

        return _of_placements(whole, self.placements, params)

    def _summed(self, grads: PyTree) -> PyTree:
        if self.placements is None:
            return jax.lax.psum(grads, BATCH_AXIS)

        def summed(one: Placement, x: jax.Array) -> jax.Array:
            return x if BATCH_AXIS in one.spec else jax.lax.psum(x, BATCH_AXIS)

        return _of_placements(summed, self.placements, grads)

    # The methods of `Parallel`.

    def lines(self) -> list[str]:
        """See `Parallel`."""
        if self.placements is None:
            return []
        shapes = [x.shape for x in jax.tree.leaves(self._params)]
        specs = [one.spec for one in by_name(self.placements).values()]
        values = sum(values_on_each(spec, shape, self.mesh.shape) for spec, shape in zip(specs, shapes, strict=True))
        mesh = ",".join(f"{name}={size}" for name, size in self.mesh.shape.items())
        return [f"mesh {mesh}: each device has {values:,} values of the parameters", *notes(self.placements)]

    def initialise(self, make: Callable[..., TrainState], *arguments: Any) -> TrainState:
        """See `Parallel`."""
        return self.initialiser(make, *arguments)(*jax.device_put(arguments, self.shardings(arguments)))

    def initialiser(self, make: Callable[..., TrainState], *arguments: Any) -> Any:
        """The jitted function of `initialise`."""
        return self._jit(make, out_shardings=self.shardings(jax.eval_shape(make, *arguments)))

    def like(self, tree: T) -> T:
        """See `Parallel`."""
        return jax.tree.map(
            lambda x, sharding: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), tree, self.shardings(tree)
        )

    def state_of_step(self, state: TrainState) -> TrainState:
        """See `Parallel`."""
        return self.like(state)

    def place(self, tree: Any) -> Any:
        """See `Parallel`."""
        return jax.device_put(tree, self.shardings(tree))

    def put_batch(self, batch: Mapping[str, Any], accumulation_steps: int = 1) -> Batch:
        """See `Parallel`."""
        if has_parts(batch):
            return cast(Batch, {name: self.put_batch(part, accumulation_steps) for name, part in batch.items()})
        if jax.process_count() > 1:
            return self._put_rows(batch, accumulation_steps)
        batch, sharding = self._padded(batch, accumulation_steps)
        if self.mesh.size == 1:
            # A jitted call takes NumPy arrays ten times as fast as placing them first.
            return cast(Batch, batch)
        return {name: jax.make_array_from_callback(x.shape, sharding, x.__getitem__) for name, x in batch.items()}

    def _put_rows(self, batch: Mapping[str, np.ndarray], accumulation_steps: int) -> Batch:
        """`put_batch` of one of several processes, which makes the rows of its own devices."""
        rows, sharding = places(batch, accumulation_steps, self.devices), self._batch_sharding(accumulation_steps)
        columns: Any = self.by_rows.addressable_devices_indices_map(rows.shape[-1:]).values()
        mine = sorted({place for (column,) in columns for place in range(rows.shape[-1])[column]})
        return {
            name: jax.make_array_from_process_local_data(sharding, x, rows.shape + x.shape[rows.ndim :])
            for name, x in rows_at(batch, rows[..., mine]).items()
        }

    def _batch_sharding(self, accumulation_steps: int) -> NamedSharding:
        return self.by_rows if accumulation_steps == 1 else NamedSharding(self.mesh, PartitionSpec(None, BATCH_AXIS))

    def batch_like(self, batch: Mapping[str, Any], accumulation_steps: int = 1) -> Any:
        """The abstract result of `put_batch`, also for devices on another machine."""
        if has_parts(batch):
            return {name: self.batch_like(part, accumulation_steps) for name, part in batch.items()}
        batch, sharding = self._padded(batch, accumulation_steps)
        return {name: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding) for name, x in batch.items()}

    def _padded(
        self, batch: Mapping[str, np.ndarray], accumulation_steps: int
    ) -> tuple[dict[str, np.ndarray], NamedSharding]:
        """The batch with rows for all devices, and its sharding."""
        sharding = self._batch_sharding(accumulation_steps)
        if accumulation_steps == 1:
            return pad_rows(batch, self.devices), sharding
        return accumulation_parts(batch, accumulation_steps, self.devices), sharding

    def empty_carry(self, empty: Callable[[int], PyTree], rows: int) -> PyTree:
        """See `Parallel`."""
        carry = empty(-(-rows // self.devices) * self.devices)
        return jax.device_put(carry, self.by_rows)

    def carry_like(self, empty: Callable[[int], PyTree], rows: int) -> PyTree:
        """An abstract carry for this many rows after padding."""
        carry = jax.eval_shape(lambda: empty(rows))
        return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=self.by_rows), carry)

    def compile_train(
        self, step: Callable[..., tuple[TrainState, StepOutput]], state: TrainState
    ) -> Callable[[TrainState, Batch], tuple[TrainState, StepOutput]]:
        """See `Parallel`."""
        step = functools.partial(step, division=self._division)
        return self._jit(step, donate_argnums=0, out_shardings=(self.shardings(state), self.replicated))

    def compile_eval(
        self, step: Callable[..., tuple[Metrics, PyTree]]
    ) -> Callable[[Params, Batch, PyTree], tuple[Metrics, PyTree]]:
        """See `Parallel`."""
        step = functools.partial(step, division=self._division)
        if self.devices > 1:
            rows = PartitionSpec(BATCH_AXIS)
            step = self._mapped(step, (self._shards, rows, rows), (PartitionSpec(), rows))
        return self._jit(step, out_shardings=(self.replicated, self.by_rows))

    def compile_outputs(self, function: Callable[[Params, Batch], PyTree]) -> Callable[[Params, Batch], PyTree]:
        """See `Parallel`."""
        if self.devices == 1:
            return self._jit(function, out_shardings=self.replicated)
        rows = PartitionSpec(BATCH_AXIS)

        def of_rows(params: Params, batch: Batch) -> PyTree:
            return function(self._whole(params), batch)

        return self._jit(self._mapped(of_rows, (self._shards, rows), rows), out_shardings=self.replicated)

    def rows_of(self, outputs: PyTree) -> PyTree:
        """See `Parallel`."""
        return jax.device_get(outputs)

    def fetch(self, tree: Any) -> Any:
        """See `Parallel`."""
        return tree

    def whole(self, params: Params) -> Params:
        """See `Parallel`."""
        return self._gather(params) if self.placements else params

    @functools.cached_property
    def _gather(self) -> Callable[[Params], Params]:
        return self._jit(lambda params: params, out_shardings=self.replicated)


def _of_placements(function: Callable[..., Any], placed: PyTree, *trees: PyTree) -> PyTree:
    """The function of each placement, and of the leaves of other trees at its path."""
    return jax.tree.map(function, placed, *trees, is_leaf=lambda x: isinstance(x, Placement))


def _data(axis: Any) -> Any:
    return axis if axis == BATCH_AXIS else None
