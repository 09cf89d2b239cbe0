"""The platform that programs are traced for.

Some functions of `ops` have one form for CPUs and another for accelerators. They choose while JAX traces them, so they
must know for which platform the program is. Tracing cannot see on which devices the arguments are. So a program is
taken to be for JAX's default device; whoever compiles one for other devices says so, with `compile_for`, or with
`compiled_for` where JAX traces it later, at its first call.
"""

import functools
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Literal, TypeVar, cast, get_args

import jax

T = TypeVar("T")
Platform = Literal["cpu", "gpu", "tpu"]

# Part of the keys of JAX's caches of traced, lowered and compiled functions: platforms never share a program.
_platform = jax.make_user_context(None)


def compile_for(platform: Platform) -> AbstractContextManager[None]:
    """A context in which functions are traced for this platform, in the current thread. Traced functions may enter it.

    >>> with compile_for("tpu"):
    ...     target_platform()
    'tpu'

    Args:
      platform: "cpu", "gpu" or "tpu", as in the `platform` of a jax.Device.

    Raises:
      ValueError: for another name.
    """
    if platform not in get_args(Platform):
        raise ValueError(f"platform must be one of {', '.join(get_args(Platform))}, got {platform!r}")
    return _platform(platform)


def target_platform() -> str:
    """The platform that functions are traced for: that of `compile_for`, else that of the default device."""
    if _platform.value is not None:
        return _platform.value
    device = jax.config.jax_default_device  # type: ignore[attr-defined]  # also a part of the keys of JAX's caches
    if device is not None:
        return device if isinstance(device, str) else device.platform
    return jax.default_backend()


def compiled_for(device: jax.Device, function: Callable[..., T]) -> Callable[..., T]:
    """The function, to be jitted for programs of this device: it is traced for the device's platform."""
    if device.platform not in get_args(Platform):
        return function

    @functools.wraps(function)
    def traced(*arguments: Any, **options: Any) -> T:
        with compile_for(cast(Platform, device.platform)):
            return function(*arguments, **options)

    return traced


def cuda_capability() -> tuple[int, int] | None:
    """The Nvidia GPU's compute capability, such as (9, 0); None where programs are not for an Nvidia GPU."""
    if target_platform() != "gpu":
        return None
    try:
        gpu = jax.local_devices(backend="gpu")[0]
    except RuntimeError:  # the program is for a GPU that is not here
        return None
    # AMD's have names such as gfx90a there.
    found = re.fullmatch(r"(\d+)\.(\d+)", str(getattr(gpu, "compute_capability", "")))
    return None if found is None else (int(found[1]), int(found[2]))
