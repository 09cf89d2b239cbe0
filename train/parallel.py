"""Data parallelism in two modes, with the same pure step.

`JitParallel` jits the step over a batch that is sharded over all devices, and XLA inserts the communication.
`PmapParallel` maps the step over a leading device axis, with communication inside the step; it is for code bases that
use pmap. A checkpoint has the layout of neither: `fetch` returns the state as on one device.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from jaxnlp.ops.devices import compiled_for
from jaxnlp.saving.serialization import ConfigError
from jaxnlp.typing import BATCH_AXIS, Array, Batch, Metrics, Params, PyTree
from train.compiler_options import jit_for
from train.step import StepOutput, TrainState, has_parts

T = TypeVar("T")
ParallelMode = Literal["jit", "pmap"]


def pad_rows(batch: Mapping[str, np.ndarray], multiple: int, *, axis: int = 0) -> dict[str, np.ndarray]:
    """Appends zero rows until the number of rows is a multiple; `loss_mask` is False there, so no loss counts them."""
    if "loss_mask" not in batch:
        raise ValueError(f"a batch needs a loss_mask that excludes padding; it has only {', '.join(batch)}")
    missing = -batch["loss_mask"].shape[axis] % multiple
    if not missing:
        return dict(batch)
    widths = [(0, 0)] * axis + [(0, missing)]
    return {name: np.pad(x, widths + [(0, 0)] * (x.ndim - axis - 1)) for name, x in batch.items()}


def split_rows(batch: Mapping[str, np.ndarray], parts: int) -> dict[str, np.ndarray]:
    """[A * B, ...] as [A, B, ...]: part a has the B rows from row a * B."""
    return {name: x.reshape(parts, len(x) // parts, *x.shape[1:]) for name, x in batch.items()}


def accumulation_parts(batch: Mapping[str, np.ndarray], parts: int, devices: int) -> dict[str, np.ndarray]:
    """The batch as [A, B, ...], B a multiple of the devices. The examples of a part do not depend on the devices."""
    return pad_rows(split_rows(pad_rows(batch, parts), parts), devices, axis=1)


class Parallel(Protocol):
    """The interface of a mode."""

    devices: int
    """Number of devices that share a batch."""

    def initialise(self, make: Callable[..., TrainState], *arguments: Any) -> TrainState:
        """The state that `make(*arguments)` returns, laid out over the devices, without another copy."""

    def like(self, state: TrainState) -> TrainState:
        """An abstract state (jax.ShapeDtypeStruct) with the shardings for reading a checkpoint."""

    def place(self, tree: Any) -> Any:
        """Lays out a state, or part of one, that was read from a checkpoint, for the step."""

    def put_batch(self, batch: Mapping[str, Any], accumulation_steps: int = 1) -> Batch:
        """Pads a batch, splits it into accumulation parts, and lays it out over the devices; also a batch of each
        part."""

    def empty_carry(self, empty: Callable[[int], PyTree], rows: int) -> PyTree:
        """The carry before the first batch, for this many rows before padding, laid out for the step."""

    def compile_train(
        self, step: Callable[..., tuple[TrainState, StepOutput]], state: TrainState
    ) -> Callable[[TrainState, Batch], tuple[TrainState, StepOutput]]:
        """The jitted step, for states like this abstract one. It donates its state's buffers."""

    def compile_eval(
        self, step: Callable[..., tuple[Metrics, PyTree]]
    ) -> Callable[[Params, Batch, PyTree], tuple[Metrics, PyTree]]:
        """The jitted evaluation step."""

    def compile_outputs(self, function: Callable[[Params, Batch], PyTree]) -> Callable[[Params, Batch], PyTree]:
        """A jitted function of laid-out parameters and a batch of `put_batch`; `rows_of` its result are on the host."""

    def rows_of(self, outputs: PyTree) -> PyTree:
        """The rows that a function of `compile_outputs` returned, on the host."""

    def fetch(self, tree: Any) -> Any:
        """A state, or part of one, without the device layout; a view if nothing changes."""


class JitParallel:
    """One program over a mesh of all devices: batch and carry sharded by rows, all else replicated."""

    def __init__(self, devices: list[jax.Device]):
        self.mesh = jax.sharding.Mesh(np.array(devices), (BATCH_AXIS,))
        self.devices = self.mesh.size
        self.replicated = NamedSharding(self.mesh, PartitionSpec())
        self.by_rows = NamedSharding(self.mesh, PartitionSpec(BATCH_AXIS))

    def _jit(self, function: Callable[..., T], **options: Any) -> Callable[..., T]:
        return jit_for(self.mesh.devices.flat[0], function, **options)

    def _shardings(self, state: TrainState) -> TrainState:
        """The sharding of each array of a state."""
        rest = jax.tree.map(lambda _: self.replicated, dataclasses.replace(state, carry=()))
        return dataclasses.replace(rest, carry=jax.tree.map(lambda _: self.by_rows, state.carry))

    def initialise(self, make: Callable[..., TrainState], *arguments: Any) -> TrainState:
        """See `Parallel`."""
        return self.initialiser(make, *arguments)(*jax.device_put(arguments, self.replicated))

    def initialiser(self, make: Callable[..., TrainState], *arguments: Any) -> Any:
        """The jitted function of `initialise`."""
        return self._jit(make, out_shardings=self._shardings(jax.eval_shape(make, *arguments)))

    def like(self, state: TrainState) -> TrainState:
        """See `Parallel`."""
        return jax.tree.map(
            lambda x, sharding: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), state, self._shardings(state)
        )

    def place(self, tree: Any) -> Any:
        """See `Parallel`."""
        if isinstance(tree, TrainState):
            return jax.device_put(tree, self._shardings(tree))
        return jax.device_put(tree, self.replicated)

    def put_batch(self, batch: Mapping[str, Any], accumulation_steps: int = 1) -> Batch:
        """See `Parallel`."""
        if has_parts(batch):
            return cast(Batch, {name: self.put_batch(part, accumulation_steps) for name, part in batch.items()})
        batch, sharding = self._padded(batch, accumulation_steps)
        if self.mesh.size == 1:
            # A jitted call takes NumPy arrays ten times as fast as placing them first.
            return cast(Batch, batch)
        # Each process has made the whole batch, and keeps the rows of its own devices.
        return {name: jax.make_array_from_callback(x.shape, sharding, x.__getitem__) for name, x in batch.items()}

    def batch_like(self, batch: Mapping[str, Any], accumulation_steps: int = 1) -> Any:
        """The abstract batch that `put_batch` returns, also for devices that are not on this machine."""
        if has_parts(batch):
            return {name: self.batch_like(part, accumulation_steps) for name, part in batch.items()}
        batch, sharding = self._padded(batch, accumulation_steps)
        return {name: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding) for name, x in batch.items()}

    def _padded(
        self, batch: Mapping[str, np.ndarray], accumulation_steps: int
    ) -> tuple[dict[str, np.ndarray], NamedSharding]:
        """The batch with rows for all devices, and its sharding."""
        if accumulation_steps == 1:
            return pad_rows(batch, self.mesh.size), self.by_rows
        parts = accumulation_parts(batch, accumulation_steps, self.mesh.size)
        return parts, NamedSharding(self.mesh, PartitionSpec(None, BATCH_AXIS))

    def empty_carry(self, empty: Callable[[int], PyTree], rows: int) -> PyTree:
        """See `Parallel`."""
        carry = empty(-(-rows // self.mesh.size) * self.mesh.size)
        return jax.device_put(carry, self.by_rows)

    def carry_like(self, empty: Callable[[int], PyTree], rows: int) -> PyTree:
        """An abstract carry for this many rows after padding."""
        carry = jax.eval_shape(lambda: empty(rows))
        return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=self.by_rows), carry)

    def compile_train(
        self, step: Callable[..., tuple[TrainState, StepOutput]], state: TrainState
    ) -> Callable[[TrainState, Batch], tuple[TrainState, StepOutput]]:
        """See `Parallel`."""
        return self._jit(step, donate_argnums=0, out_shardings=(self._shardings(state), self.replicated))

    def compile_eval(
        self, step: Callable[..., tuple[Metrics, PyTree]]
    ) -> Callable[[Params, Batch, PyTree], tuple[Metrics, PyTree]]:
        """See `Parallel`."""
        return self._jit(step, out_shardings=(self.replicated, self.by_rows))

    def compile_outputs(self, function: Callable[[Params, Batch], PyTree]) -> Callable[[Params, Batch], PyTree]:
        """See `Parallel`."""
        return self._jit(function, out_shardings=self.replicated)

    def rows_of(self, outputs: PyTree) -> PyTree:
        """See `Parallel`."""
        return jax.device_get(outputs)

    def fetch(self, tree: Any) -> Any:
        """See `Parallel`."""
        return tree


class PmapParallel:
    """One program per device, each with a copy of the state and its share of the batch."""

    def __init__(self, devices: list[jax.Device]):
        self._devices = devices
        self.devices = len(devices)

    def initialise(self, make: Callable[..., TrainState], *arguments: Any) -> TrainState:
        """See `Parallel`."""
        return self.place(jit_for(self._devices[0], make)(*arguments))

    def like(self, state: TrainState) -> TrainState:
        """See `Parallel`."""
        here = jax.sharding.SingleDeviceSharding(self._devices[0])
        return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=here), state)

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
        return jax.pmap(lambda x: x, axis_name=BATCH_AXIS, devices=self._devices)(parts) if parts else parts

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
        step = compiled_for(self._devices[0], functools.partial(step, axis_name=BATCH_AXIS))
        return jax.pmap(step, axis_name=BATCH_AXIS, devices=self._devices, **options)

    def fetch(self, tree: Any) -> Any:
        """See `Parallel`."""
        if isinstance(tree, TrainState):
            # Each device has the state of its own rows.
            carry = jax.tree.map(lambda x: jnp.asarray(np.asarray(x).reshape(-1, *x.shape[2:])), tree.carry)
            return dataclasses.replace(jax.tree.map(_first_copy, dataclasses.replace(tree, carry=())), carry=carry)
        return jax.tree.map(_first_copy, tree)


def _first_copy(x: Array) -> Array:
    return x.addressable_shards[0].data.reshape(x.shape[1:])


def make_parallel(mode: ParallelMode, devices: list[jax.Device] | None = None) -> Parallel:
    """The mode over these devices; None = all of them, or with pmap those of this process.

    Raises: ConfigError for pmap with several processes, which would train separately.
    """
    if mode == "jit":
        return JitParallel(jax.devices() if devices is None else devices)
    if jax.process_count() > 1:
        raise ConfigError(f"pmap supports only one process, but there are {jax.process_count()}; use jit")
    return PmapParallel(jax.local_devices() if devices is None else devices)
