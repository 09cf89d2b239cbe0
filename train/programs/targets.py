"""Devices to compile for, which need not be on this machine."""

import contextlib
import importlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, cast, get_args

import jax
from jax.experimental import topologies

from jaxnlp.ops.devices import Platform, compile_for
from train.cli.command_line import UsageError

NVIDIA = {"h100": (9, 0)}
"""Nvidia GPUs, and their compute capabilities. NAME.txtpb next to this module describes each to XLA."""
TARGETS = f"{', '.join(NVIDIA)} or cpu, also with a number of devices such as h100:8, or a TPU topology such as v5e:2x2"


class Target(NamedTuple):
    """Devices to compile for.

    Attributes:
      name: as given.
      devices: at least one.
      capability: of an Nvidia GPU; None = another device.
    """

    name: str
    devices: list[jax.Device]
    capability: tuple[int, int] | None = None

    @contextlib.contextmanager
    def tracing(self) -> Iterator[None]:
        """A context in which functions are traced for these devices."""
        with contextlib.ExitStack() as stack:
            if self.devices[0].platform in get_args(Platform):
                stack.enter_context(compile_for(cast(Platform, self.devices[0].platform), self.capability))
            if self.capability is not None:
                stack.enter_context(_described_to_pallas(self.devices[0]))
            yield


def _described_to_pallas(gpu: jax.Device) -> contextlib.AbstractContextManager[Any]:
    """A context in which Pallas lowers its kernels for a GPU on another machine. JAX before 0.11 needs none."""
    try:
        device = jax.sharding.AbstractDevice(device_kind=gpu.device_kind, num_cores=gpu.core_count, platform="gpu")
        return jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), (), abstract_device=device))
    except TypeError:
        return contextlib.nullcontext()


def find_target(name: str) -> Target:
    """The devices of a name of `TARGETS`. Call it before JAX makes its first array: it keeps JAX to this machine's CPU.

    Raises: UsageError for an unknown name, and, with the remedy, if its compiler is not installed.
    """
    jax.config.update("jax_platforms", "cpu")
    kind, _, number = name.partition(":")
    if (kind == "cpu" or kind in NVIDIA) and not re.fullmatch(r"[1-9]\d*|", number):
        raise UsageError(f"--target {kind}:N needs a number of devices, got {name!r}")
    if kind == "cpu":
        return Target(name, _cpus(int(number or 1)))
    jax.config.update("jax_enable_compilation_cache", False)  # it cannot load programs of a device that is not there
    if kind in NVIDIA:
        # Otherwise JAX's plugin refuses to load without a driver.
        os.environ.setdefault("JAX_SKIP_CUDA_CONSTRAINTS_CHECK", "1")
        described = Path(__file__).with_name(f"{kind}.txtpb").read_text("utf-8")
        found = _topology(name, "cuda", topology=f"1x1x{number or 1}", target_config=described)  # in one machine
        return Target(name, list(found.devices), NVIDIA[kind])
    if ":" in name:
        settings = {"SKIP_MDS_QUERY": "1", "ACCELERATOR_TYPE": "v5litepod-4", "WORKER_HOSTNAMES": "localhost"}
        for setting, value in settings.items():  # libtpu reads them instead of asking the machine's metadata server
            os.environ.setdefault(f"TPU_{setting}", value)
        # Compiling opens no TPU, so other processes may use libtpu at the same time.
        os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
        # Otherwise a host would have four chips.
        one_chip = {"chips_per_host_bounds": [1, 1, 1]} if set(number.split("x")) == {"1"} else {}
        return Target(name, list(_topology(name, "tpu", **one_chip).devices))
    raise UsageError(f"--target must be one of {TARGETS}, got {name!r}")


def _cpus(count: int) -> list[jax.Device]:
    """Virtual devices of this machine's CPU."""
    with contextlib.suppress(RuntimeError):  # JAX has devices already
        jax.config.update("jax_num_cpu_devices", count)
    devices = jax.devices()
    if len(devices) < count:
        raise UsageError(f"the target cpu:{count} needs {count} devices, but JAX has begun with {len(devices)}")
    return devices[:count]


def _topology(name: str, platform: str, **options: Any) -> topologies.TopologyDescription:
    try:
        if platform == "tpu":
            importlib.import_module("libtpu")
        return topologies.get_topology_desc(name, platform, **options)
    except (ImportError, NotImplementedError, RuntimeError, ValueError) as error:
        raise UsageError(
            f"cannot compile for {name}, since its compiler is missing or does not know it; install it with "
            f"pip install 'jaxnlp[aot]'. JAX said: {str(error).partition(chr(10))[0]}"
        ) from error
