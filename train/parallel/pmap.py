"""Data parallelism by `jax.pmap`: one program per device, for code bases and courses that use pmap."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxnlp.models import ModelConfig
from jaxnlp.ops.compiler_options import jit_for
from jaxnlp.ops.devices import compiled_for
from jaxnlp.typing import BATCH_AXIS, Array, Batch, Metrics, Params, PyTree
from train.parallel.rows import accumulation_parts, pad_rows, split_rows
from train.step import Division, StepOutput, TrainState, has_parts

T = TypeVar("T")
DIVISION = Division(BATCH_AXIS, summed=lambda grads: jax.lax.psum(grads, BATCH_AXIS))
"""Each device has its own rows and all parameters."""


class PmapParallel:
    """One program per device, each with a copy of the state and its share of the batch."""

    def __init__(self, devices: list[jax.Device]):
        self._devices = devices
        self.devices = len(devices)
        self.replicated = NamedSharding(Mesh(np.array(devices), (BATCH_AXIS,)), PartitionSpec())

    def of_model(self, model: ModelConfig, params: Params) -> "PmapParallel":
        """See `Parallel`."""
        del model, params
        return self

    def lines(self) -> list[str]:
        """See `Parallel`."""
        return []

    def initialise(self, make: Callable[..., TrainState], *arguments: Any) -> TrainState:
        """See `Parallel`."""
        return self.place(jit_for(self._devices[0], make)(*arguments))

    def like(self, tree: T) -> T:
        """See `Parallel`."""
        here = jax.sharding.SingleDeviceSharding(self._devices[0])
        return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=here), tree)

    def state_of_step(self, state: TrainState) -> None:
        """See `Parallel`."""

    def place(self, tree: Any) -> Any:
        """See `Parallel`."""
        # With the step's axis name. Otherwise the second call of the step would compile it again.
        copy = jax.pmap(lambda _, tree: tree, axis_name=BATCH_AXIS, in_axes=(0, None), devices=self._devices)
        numbers = np.zeros(self.devices)
        if isinstance(tree, TrainState):
            copied = copy(numbers, dataclasses.replace(tree, carry=()))
            return dataclasses.replace(copied, carry=self._by_rows(tree.carry))
        return copy(numbers, tree)

    def _by_rows(self, carry: PyTree) -> PyTree:
        """Arrays [B, ...] as [devices, B / devices, ...], with each device's rows on it."""
        count = self.devices
        parts = jax.tree.map(lambda x: np.asarray(x).reshape(count, len(x) // count, *x.shape[1:]), carry)
        return (
            jax.pmap(lambda x: x, axis_name=BATCH_AXIS, devices=self._devices)(parts)
            if jax.tree.leaves(parts)
            else parts
        )

    def empty_carry(self, empty: Callable[[int], PyTree], rows: int) -> PyTree:
        """See `Parallel`."""
        return self._by_rows(empty(-(-rows // self.devices) * self.devices))

    def put_batch(self, batch: Mapping[str, Any], accumulation_steps: int = 1) -> Batch:
        """See `Parallel`."""
        if has_parts(batch):
            return cast(Batch, {name: self.put_batch(part, accumulation_steps) for name, part in batch.items()})
        count = self.devices
        if accumulation_steps == 1:
            return cast(Batch, split_rows(pad_rows(batch, count), count))
        # Device d takes its share of every part, so that the parts, and their dropout, are the same as on one device.
        parts = accumulation_parts(batch, accumulation_steps, count)
        return cast(
            Batch,
            {
                name: np.swapaxes(x.reshape(accumulation_steps, count, x.shape[1] // count, *x.shape[2:]), 0, 1)
                for name, x in parts.items()
            },
        )

    def compile_train(
        self, step: Callable[..., tuple[TrainState, StepOutput]], state: TrainState
    ) -> Callable[[TrainState, Batch], tuple[TrainState, StepOutput]]:
        """See `Parallel`."""
        del state
        return self._mapped(step, out_axes=(0, None), donate_argnums=0)

    def compile_eval(
        self, step: Callable[..., tuple[Metrics, PyTree]]
    ) -> Callable[[Params, Batch, PyTree], tuple[Metrics, PyTree]]:
        """See `Parallel`."""
        return self._mapped(step, out_axes=(None, 0))

    def compile_outputs(self, function: Callable[[Params, Batch], PyTree]) -> Callable[[Params, Batch], PyTree]:
        """See `Parallel`."""
        return jax.pmap(compiled_for(self._devices[0], function), axis_name=BATCH_AXIS, devices=self._devices)

    def rows_of(self, outputs: PyTree) -> PyTree:
        """See `Parallel`."""
        return jax.tree.map(lambda x: np.asarray(x).reshape(-1, *x.shape[2:]), outputs)

    def _mapped(self, step: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        step = compiled_for(self._devices[0], functools.partial(step, division=DIVISION))
        return jax.pmap(step, axis_name=BATCH_AXIS, devices=self._devices, **options)

    def fetch(self, tree: Any) -> Any:
        """See `Parallel`."""
        if isinstance(tree, TrainState):
            # Each device has the state of its own rows.
            carry = jax.tree.map(lambda x: jnp.asarray(np.asarray(x).reshape(-1, *x.shape[2:])), tree.carry)
            return dataclasses.replace(jax.tree.map(_first_copy, dataclasses.replace(tree, carry=())), carry=carry)
        return jax.tree.map(_first_copy, tree)

    def whole(self, params: Params) -> Params:
        """See `Parallel`."""
        return jax.device_put(self.fetch(params), self.replicated)


def _first_copy(x: Array) -> Array:
    return x.addressable_shards[0].data.reshape(x.shape[1:])
