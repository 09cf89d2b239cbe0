"""The platform for which JAX traces a function: CPU, GPU or TPU.

Some functions of `ops` have one implementation for CPUs and another for accelerators. They choose one while JAX traces
them, so they must know on which platform the compiled program will run. Tracing does not show on which devices the
arguments are, so these functions assume JAX's default device. To compile for another device, trace the function in the
context `compile_for`, or wrap it in `compiled_for` if JAX traces it later, at its first call.
"""

import functools
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Literal, TypeVar, cast, get_args

import jax

T = TypeVar("T")
Platform = Literal["cpu", "gpu", "tpu"]

# JAX includes this value in the keys of its caches of traced, lowered and compiled functions, so a program that was
# compiled for one platform is never used on another.
_platform = jax.make_user_context(None)


def compile_for(platform: Platform) -> AbstractContextManager[None]:
    """A context in which JAX traces functions for this platform, in the current thread.

    A function may also enter this context while it is being traced.

    >>> with compile_for("tpu"):
    ...     target_platform()
    'tpu'

    Args:
      platform: "cpu", "gpu" or "tpu", like the attribute `platform` of a jax.Device.

    Raises:
      ValueError: if the platform has another name.
    """
    if platform not in get_args(Platform):
        raise ValueError(f"platform must be one of {', '.join(get_args(Platform))}, got {platform!r}")
    return _platform(platform)


def target_platform() -> str:
    """The platform for which functions are traced: that of `compile_for`, or otherwise that of the default device."""
    if _platform.value is not None:
        return _platform.value
    device = jax.config.jax_default_device  # type: ignore[attr-defined]  # JAX includes it in these keys too
    if device is not None:
        return device if isinstance(device, str) else device.platform
    return jax.default_backend()


def gpu_count() -> int:
    """The number of GPUs that JAX sees, on all hosts.

    XLA cannot divide some calls among devices: with several GPUs each would do the work of all.
    """
    try:
        return jax.device_count("gpu")
    except RuntimeError:  # there is none
        return 0


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
    """The compute capability of the Nvidia GPU, such as (9, 0); None if functions are not traced for an Nvidia GPU."""
    if target_platform() != "gpu":
        return None
    try:
        gpu = jax.local_devices(backend="gpu")[0]
    except RuntimeError:  # this machine has no GPU: the program is compiled for another machine
        return None
    # For AMD's GPUs this attribute is a name such as gfx90a.
    match = re.fullmatch(r"(\d+)\.(\d+)", str(getattr(gpu, "compute_capability", "")))
    return None if match is None else (int(match[1]), int(match[2]))
