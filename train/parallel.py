"""Data parallelism, two ways, around the same pure step.

`JitParallel` jits the step once over a batch that is sharded over all devices, and XLA inserts the communication.
`PmapParallel` maps it over a leading device axis, and the step communicates itself; kept for code bases that use pmap.
A checkpoint holds neither's layout: `fetch` gives the state as one device would hold it.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from jaxnlp.typing import BATCH_AXIS, Array, Batch, Metrics, Params, PyTree
from train.step import TrainState, of_several_tasks

ParallelMode = Literal["jit", "pmap"]


def pad_rows(batch: Mapping[str, np.ndarray], multiple: int, *, axis: int = 0) -> dict[str, np.ndarray]:
    """Appends zero rows until the number of rows is a multiple; `loss_mask` is False there, so no loss counts them."""
    if "loss_mask" not in batch:
        raise ValueError(f"a batch needs a loss_mask, or padding would be trained on; it has {', '.join(batch)}")
    missing = -batch["loss_mask"].shape[axis] % multiple
    if not missing:
        return dict(batch)
    widths = [(0, 0)] * axis + [(0, missing)]
    return {name: np.pad(x, widths + [(0, 0)] * (x.ndim - axis - 1)) for name, x in batch.items()}


def split_rows(batch: Mapping[str, np.ndarray], parts: int) -> dict[str, np.ndarray]:
    """[A * B, ...] as [A, B, ...]: part a holds the rows from a * B on."""
    return {name: x.reshape(parts, len(x) // parts, *x.shape[1:]) for name, x in batch.items()}


def accumulation_parts(batch: Mapping[str, np.ndarray], parts: int, devices: int) -> dict[str, np.ndarray]:
    """The batch as [A, B, ...], B a multiple of the devices; a part's examples do not depend on their number."""
    return pad_rows(split_rows(pad_rows(batch, parts), parts), devices, axis=1)


class Parallel(Protocol):
    """What the loop needs of a mode."""

    def replicate(self, tree: Any) -> Any:
        """A copy of a state, or part of one, on every device."""

    def put_batch(self, batch: Mapping[str, Any], accumulation_steps: int = 1) -> Batch:
        """The batch padded, cut into accumulation parts, and laid out over the devices; of several tasks, each's."""

    def empty_carry(self, empty: Callable[[int], PyTree], rows: int) -> PyTree:
        """What is carried into the first batch, of so many rows before padding, laid out as the step takes it."""

    def compile_train(
        self, step: Callable[..., tuple[TrainState, Metrics]]
    ) -> Callable[[TrainState, Batch], tuple[TrainState, Metrics]]:
        """The jitted step; it consumes its state's buffers."""

    def compile_eval(
        self, step: Callable[..., tuple[Metrics, PyTree]]
    ) -> Callable[[Params, Batch, PyTree], tuple[Metrics, PyTree]]:
        """The jitted evaluation step."""

    def fetch(self, tree: Any) -> Any:
        """A state, or part of one, without the device layout; a view where there is nothing to change."""


class JitParallel:
    """One program over a mesh of all devices: batch sharded, state replicated."""

    def __init__(self, devices: list[jax.Device]):
        self.mesh = jax.sharding.Mesh(np.array(devices), (BATCH_AXIS,))
        self.replicated = NamedSharding(self.mesh, PartitionSpec())

    def replicate(self, tree: Any) -> Any:
        """See `Parallel`."""
        # Without the copy the caller's arrays would be donated with ours.
        return jax.device_put(jax.tree.map(jnp.copy, tree), self.replicated)

    def put_batch(self, batch: Mapping[str, Any], accumulation_steps: int = 1) -> Batch:
        """See `Parallel`."""
        if of_several_tasks(batch):
            return cast(Batch, {task: self.put_batch(part, accumulation_steps) for task, part in batch.items()})
        if accumulation_steps == 1:
            batch, spec = pad_rows(batch, self.mesh.size), PartitionSpec(BATCH_AXIS)
        else:
            batch = accumulation_parts(batch, accumulation_steps, self.mesh.size)
            spec = PartitionSpec(None, BATCH_AXIS)
        if self.mesh.size == 1:
            # A jitted call takes NumPy arrays in a tenth of the time that it takes to place them first.
            return cast(Batch, batch)
        sharding = NamedSharding(self.mesh, spec)
        return {name: jax.make_array_from_process_local_data(sharding, x) for name, x in batch.items()}

    def empty_carry(self, empty: Callable[[int], PyTree], rows: int) -> PyTree:
        """See `Parallel`."""
        return self.replicate(empty(-(-rows // self.mesh.size) * self.mesh.size))

    def compile_train(
        self, step: Callable[..., tuple[TrainState, Metrics]]
    ) -> Callable[[TrainState, Batch], tuple[TrainState, Metrics]]:
        """See `Parallel`."""
        return jax.jit(step, donate_argnums=0, out_shardings=self.replicated)

    def compile_eval(
        self, step: Callable[..., tuple[Metrics, PyTree]]
    ) -> Callable[[Params, Batch, PyTree], tuple[Metrics, PyTree]]:
        """See `Parallel`."""
        return jax.jit(step, out_shardings=self.replicated)

    def fetch(self, tree: Any) -> Any:
        """See `Parallel`."""
        return tree


class PmapParallel:
    """One program a device, each with a copy of the state and its share of the batch."""

    def __init__(self, devices: list[jax.Device]):
        self.devices = devices

    def replicate(self, tree: Any) -> Any:
        """See `Parallel`."""
        # With the step's axis name, or its second call, on the first call's output, would compile it again.
        copy = jax.pmap(lambda _, tree: tree, axis_name=BATCH_AXIS, in_axes=(0, None), devices=self.devices)
        if isinstance(tree, TrainState):
            copied = copy(np.zeros(len(self.devices)), dataclasses.replace(tree, carry=()))
            return dataclasses.replace(copied, carry=self._shared(tree.carry))
        return copy(np.zeros(len(self.devices)), tree)

    def _shared(self, carry: PyTree) -> PyTree:
        """Arrays [B, ...] as [devices, B / devices, ...], each device's rows on it."""
        count = len(self.devices)
        parts = jax.tree.map(lambda x: np.asarray(x).reshape(count, len(x) // count, *x.shape[1:]), carry)
        return jax.pmap(lambda x: x, axis_name=BATCH_AXIS, devices=self.devices)(parts) if parts else parts

    def empty_carry(self, empty: Callable[[int], PyTree], rows: int) -> PyTree:
        """See `Parallel`."""
        return self._shared(empty(-(-rows // len(self.devices)) * len(self.devices)))

    def put_batch(self, batch: Mapping[str, Any], accumulation_steps: int = 1) -> Batch:
        """See `Parallel`."""
        if of_several_tasks(batch):
            return cast(Batch, {task: self.put_batch(part, accumulation_steps) for task, part in batch.items()})
        count = len(self.devices)
        if accumulation_steps == 1:
            return cast(Batch, split_rows(pad_rows(batch, count), count))
        # Device d takes its share of every part, so that the parts, and their dropout, are those of one device.
        parts = accumulation_parts(batch, accumulation_steps, count)
        return cast(
            Batch,
            {
                name: np.swapaxes(x.reshape(accumulation_steps, count, x.shape[1] // count, *x.shape[2:]), 0, 1)
                for name, x in parts.items()
            },
        )

    def compile_train(
        self, step: Callable[..., tuple[TrainState, Metrics]]
    ) -> Callable[[TrainState, Batch], tuple[TrainState, Metrics]]:
        """See `Parallel`."""
        return jax.pmap(
            functools.partial(step, axis_name=BATCH_AXIS),
            axis_name=BATCH_AXIS,
            devices=self.devices,
            donate_argnums=0,
            out_axes=(0, None),
        )

    def compile_eval(
        self, step: Callable[..., tuple[Metrics, PyTree]]
    ) -> Callable[[Params, Batch, PyTree], tuple[Metrics, PyTree]]:
        """See `Parallel`."""
        return jax.pmap(
            functools.partial(step, axis_name=BATCH_AXIS),
            axis_name=BATCH_AXIS,
            devices=self.devices,
            out_axes=(None, 0),
        )

    def fetch(self, tree: Any) -> Any:
        """See `Parallel`."""
        if isinstance(tree, TrainState):
            # Each device carries the state of its own rows.
            carry = jax.tree.map(lambda x: jnp.asarray(np.asarray(x).reshape(-1, *x.shape[2:])), tree.carry)
            return dataclasses.replace(jax.tree.map(_first_copy, dataclasses.replace(tree, carry=())), carry=carry)
        return jax.tree.map(_first_copy, tree)


def _first_copy(x: Array) -> Array:
    return x.addressable_shards[0].data.reshape(x.shape[1:])


def make_parallel(mode: ParallelMode, devices: list[jax.Device] | None = None) -> Parallel:
    """The mode over these devices; None = all of this process."""
    devices = jax.local_devices() if devices is None else devices
    return JitParallel(devices) if mode == "jit" else PmapParallel(devices)
