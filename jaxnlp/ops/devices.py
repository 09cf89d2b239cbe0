"""The platform for which JAX traces a function: CPU, GPU, TPU, or any of them.

Some functions of `ops` have one implementation for CPUs and another for accelerators, and choose one while JAX traces
them. Tracing does not show the arguments' devices, so they assume JAX's default device. To compile for another device,
trace the function in the context `compile_for`, or wrap it in `compiled_for` if JAX traces it later, at its first call.
"""

import functools
import importlib
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Literal, NamedTuple, TypeVar, cast, get_args

import jax

T = TypeVar("T")
Platform = Literal["cpu", "gpu", "tpu", "any"]


class _Target(NamedTuple):
    """A platform, and the compute capability of its Nvidia GPU; None = that of this machine's GPU."""

    platform: Platform
    capability: tuple[int, int] | None


# JAX includes this value in the keys of its caches of traced, lowered and compiled functions, so a program that was
# compiled for one platform is never used on another.
_target = jax.make_user_context(None)


def compile_for(platform: Platform, capability: tuple[int, int] | None = None) -> AbstractContextManager[None]:
    """A context in which JAX traces functions for this platform, in the current thread.

    A function may also enter this context while it is being traced.

    >>> with compile_for("gpu", capability=(9, 0)):
    ...     target_platform(), cuda_capability()
    ('gpu', (9, 0))

    Args:
      platform: "cpu", "gpu" or "tpu", as `jax.Device.platform`; or "any" for a program that runs on all of them.
      capability: the compute capability of the program's Nvidia GPU, such as (9, 0), on any machine. None = that of the
        outer context of a GPU, or of this machine's GPU.

    Raises: ValueError for another platform, and for a capability without "gpu".
    """
    if platform not in get_args(Platform):
        raise ValueError(f"platform must be one of {', '.join(get_args(Platform))}, got {platform!r}")
    if capability is None and platform == "gpu":
        capability = _named_capability()
    if capability is not None:
        if platform != "gpu":
            raise ValueError(f"only a gpu has a compute capability, got {capability} for the platform {platform}")
        _let_cudnn_checks_see_the_target()
    return _target(_Target(platform, capability))


def target_platform() -> str:
    """The platform for which functions are traced: that of `compile_for`, or otherwise that of the default device."""
    if _target.value is not None:
        return _target.value.platform
    device = jax.config.jax_default_device  # type: ignore[attr-defined]  # JAX includes it in these keys too
    if device is not None:
        return device if isinstance(device, str) else device.platform
    return jax.default_backend()


def gpu_count() -> int:
    """The number of GPUs that JAX sees, on all hosts."""
    try:
        return jax.device_count("gpu")
    except RuntimeError:  # there is none
        return 0


def is_divided() -> bool:
    """Whether XLA may divide the function being traced among devices, as it divides whole arrays.

    XLA cannot divide some calls: each device would gather the arrays, and do all the work. A function that is mapped
    over all axes of a mesh (shard_map, pmap) is a program of one device. Outside such functions tracing does not show
    the devices: with several GPUs the answer is True.
    """
    mesh = jax.sharding.get_abstract_mesh()
    if not mesh.empty:
        kinds = zip(mesh.axis_sizes, mesh.axis_types, strict=True)
        return any(size > 1 and kind != jax.sharding.AxisType.Manual for size, kind in kinds)
    return gpu_count() > 1


def compiled_for(device: jax.Device, function: Callable[..., T]) -> Callable[..., T]:
    """Wraps a function so that JAX traces it for the platform of this device, whenever it traces it."""
    if device.platform not in get_args(Platform):
        return function

    @functools.wraps(function)
    def traced(*arguments: Any, **options: Any) -> T:
        with compile_for(cast(Platform, device.platform)):
            return function(*arguments, **options)

    return traced


def cuda_capability() -> tuple[int, int] | None:
    """The compute capability of the Nvidia GPU of `compile_for`, or of this machine, such as (9, 0); None for other
    platforms."""
    if target_platform() != "gpu":
        return None
    if _named_capability() is not None:
        return _named_capability()
    try:
        gpu = jax.local_devices(backend="gpu")[0]
    except RuntimeError:  # this machine has no GPU: the program is compiled for another machine
        return None
    # For AMD's GPUs this attribute is a name such as gfx90a.
    match = re.fullmatch(r"(\d+)\.(\d+)", str(getattr(gpu, "compute_capability", "")))
    return None if match is None else (int(match[1]), int(match[2]))


def _named_capability() -> tuple[int, int] | None:
    return None if _target.value is None else _target.value.capability


CUDNN_VERSION = 91000
"""The cuDNN of a GPU on another machine: the oldest of CUDA 13, 9.10."""


@functools.cache
def _let_cudnn_checks_see_the_target() -> None:
    """JAX's checks before it calls cuDNN ask a GPU of this machine. In `compile_for` they then know a named one."""
    checks = importlib.import_module("jax._src.cudnn.fused_attention_stablehlo")
    answers: dict[str, Callable[..., Any]] = {
        "check_cudnn_version": lambda own: CUDNN_VERSION,
        "check_compute_capability": lambda own, least: own >= _as_capability(least),
        "is_cuda_compute_capability_equal": lambda own, other: own == _as_capability(other),
    }
    for name, answer in answers.items():
        setattr(checks, name, _answered(getattr(checks, name), answer))


def _answered(check: Callable[..., Any], answer: Callable[..., Any]) -> Callable[..., Any]:
    """The check; the answer where a capability is named."""

    @functools.wraps(check)
    def answered(*arguments: Any) -> Any:
        named = _named_capability()
        return check(*arguments) if named is None else answer(named, *arguments)

    return answered


def _as_capability(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")))
