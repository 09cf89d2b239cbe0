"""How devices share a step, in modes with the same pure step and the same results.

    jit     devices share the rows of a batch; each has all parameters
    fsdp    they share the parameters, moments and averages, too
    tensor  they share heads, feed-forward widths and vocabularies; with a mesh of two axes also the rows
    pmap    as jit, with one program per device, for code bases that use pmap

Checkpoints do not depend on the mode, so a run may continue in another one.
"""

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeVar

import jax
import numpy as np

from jaxnlp.config import Config
from jaxnlp.models import ModelConfig
from jaxnlp.saving.serialization import ConfigError
from jaxnlp.typing import BATCH_AXIS, MODEL_AXIS, Batch, Metrics, Params, PyTree
from train.parallel.mesh import MeshParallel
from train.parallel.pmap import PmapParallel
from train.step import StepOutput, TrainState

T = TypeVar("T")
MeshMode = Literal["jit", "fsdp", "tensor"]
ParallelMode = Literal["jit", "fsdp", "tensor", "pmap"]


@dataclasses.dataclass(frozen=True)
class DeviceOptions(Config):
    """Options that say how devices share a step."""

    parallel: ParallelMode = "jit"
    """How devices share a step. jit: the rows of a batch. fsdp: also the parameters. tensor: heads, feed-forward widths
    and vocabularies. pmap: as jit, with one program per device."""
    mesh: str | None = None
    """The number of devices along each axis, such as data=4,model=2; None = all along model with tensor, otherwise
    along data."""


class Parallel(Protocol):
    """The interface of a mode."""

    devices: int
    """Number of devices that share a batch."""
    replicated: jax.sharding.NamedSharding
    """The sharding of an array that is whole on each device."""

    def of_model(self, model: ModelConfig, params: Params) -> "Parallel":
        """The same devices, with parameters of these shapes laid out over them as the mode says.

        Raises: ConfigError when the devices do not divide an axis that they must.
        """

    def lines(self) -> list[str]:
        """Lines that a run prints about its devices, if parameters are not whole on each of them."""

    def initialise(self, make: Callable[..., TrainState], *arguments: Any) -> TrainState:
        """The state that `make(*arguments)` returns, laid out over the devices, without another copy."""

    def like(self, tree: T) -> T:
        """An abstract state (jax.ShapeDtypeStruct), or part of one, with the shardings for reading a checkpoint."""

    def state_of_step(self, state: TrainState) -> TrainState | None:
        """The abstract state that the step takes; None = the mode knows it only from the state itself."""

    def place(self, tree: Any) -> Any:
        """Lays out a state, or part of one, from a checkpoint, for the step."""

    def put_batch(self, batch: Mapping[str, Any], accumulation_steps: int = 1) -> Batch:
        """Pads a batch, or one of each part, splits it into accumulation parts, and lays it out over the devices."""

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
        """A jitted function of laid-out parameters and a batch of `put_batch`; `rows_of` brings its result to the
        host."""

    def rows_of(self, outputs: PyTree) -> PyTree:
        """The rows of a result of `compile_outputs`, on the host."""

    def fetch(self, tree: Any) -> Any:
        """A state, or part of one, without the device layout; a view if nothing changes."""

    def whole(self, params: Params) -> Params:
        """The parameters whole on each device, for functions that are not mapped over the devices."""


def make_parallel(
    mode: ParallelMode = "jit", devices: Sequence[jax.Device] | None = None, *, mesh: str | None = None
) -> Parallel:
    """The mode over these devices.

    Args:
      mode: see the module.
      devices: None = all devices, or with pmap those of this process.
      mesh: see `DeviceOptions`.

    Raises: ValueError for an unknown mode; ConfigError for pmap with several processes, which would train separately,
      and for a mesh that does not fit the mode or the devices.
    """
    DeviceOptions(mode, mesh)  # checks the mode
    if mode == "pmap":
        if mesh is not None:
            raise ConfigError(f"pmap has no mesh, got {mesh}; remove --mesh, or use jit, fsdp or tensor")
        if jax.process_count() > 1:
            raise ConfigError(f"pmap supports only one process, but there are {jax.process_count()}; use jit")
        return PmapParallel(list(jax.local_devices() if devices is None else devices))
    return mesh_parallel(mode, jax.devices() if devices is None else devices, mesh)


def mesh_parallel(mode: MeshMode, devices: Sequence[jax.Device], mesh: str | None = None) -> MeshParallel:
    """`make_parallel` for the modes with a mesh, also for devices on another machine."""
    return MeshParallel(_mesh(mode, devices, mesh), fsdp=mode == "fsdp")


def _mesh(mode: MeshMode, devices: Sequence[jax.Device], text: str | None) -> jax.sharding.Mesh:
    if text is None:
        sizes = {BATCH_AXIS: 1, MODEL_AXIS: len(devices)} if mode == "tensor" else {BATCH_AXIS: len(devices)}
    else:
        sizes = parse_mesh(text)
    if mode == "jit" and sizes.get(MODEL_AXIS, 1) > 1:
        raise ConfigError(f"jit has no axis {MODEL_AXIS}, got the mesh {text}; use tensor or fsdp")
    count = int(np.prod(list(sizes.values())))
    if count != len(devices):
        raise ConfigError(f"the mesh {text} has {count} devices, but there are {len(devices)}; give another --mesh")
    names = tuple(name for name in (BATCH_AXIS, MODEL_AXIS) if name in sizes)
    shape = tuple(sizes[name] for name in names)
    kinds = (jax.sharding.AxisType.Auto,) * len(names)
    return jax.make_mesh(shape, names, axis_types=kinds, devices=devices)  # in the order of the links


def parse_mesh(text: str) -> dict[str, int]:
    """The number of devices along each axis. Raises: ConfigError for another form than `data=4,model=2`.

    >>> parse_mesh("data=4,model=2")
    {'data': 4, 'model': 2}
    """
    pairs = [re.fullmatch(r"\s*(\w+)=([1-9]\d*)\s*", part) for part in text.split(",")]
    sizes = {pair[1]: int(pair[2]) for pair in pairs if pair is not None}
    if None in pairs or len(sizes) < len(pairs) or not sizes.keys() <= {BATCH_AXIS, MODEL_AXIS}:
        raise ConfigError(f"a mesh has the form {BATCH_AXIS}=4,{MODEL_AXIS}=2, got {text!r}")
    return {BATCH_AXIS: 1} | sizes


__all__ = [
    "DeviceOptions",
    "MeshMode",
    "MeshParallel",
    "Parallel",
    "ParallelMode",
    "PmapParallel",
    "make_parallel",
    "mesh_parallel",
    "parse_mesh",
]
