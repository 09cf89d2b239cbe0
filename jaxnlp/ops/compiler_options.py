"""XLA's options by platform, and functions that are jitted with them."""

import functools
import logging
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import jax

from jaxnlp.ops.devices import compiled_for

T = TypeVar("T")

OPTIONS: dict[str, dict[str, bool]] = {
    # XLA times several Triton kernels for each product and for each fusion. That is half of the compile time of a
    # GPT-2 step for an H100. cuBLAS computes products then, and cuDNN convolutions.
    "gpu": {"xla_gpu_enable_triton_gemm": False, "xla_gpu_experimental_enable_fusion_autotuner": False}
}
"""Options of each platform."""
OPTIONS_WITHOUT_DEVICE: dict[str, dict[str, bool]] = {
    # XLA asks the GPU how much memory CUB needs to sort a large array. Without CUB, it sorts by a kernel of its own.
    "gpu": {"xla_gpu_enable_cub_radix_sort": False}
}
"""Further options of each platform, to compile for a device that is not on this machine."""

_logger = logging.getLogger(__name__)


def jit_for(device: jax.Device, function: Callable[..., T], **options: Any) -> Any:
    """The jitted function, traced for the platform of a device and compiled with that platform's options."""
    return jax.jit(compiled_for(device, function), compiler_options=compiler_options(device), **options)


class jit:  # a decorator, as jax.jit is
    """`jax.jit` with the options of the platform, which is asked at the first call."""

    def __init__(self, function: Callable[..., Any], **options: Any):
        functools.update_wrapper(self, function)
        self._plain = jax.jit(function, **options)
        self._make = functools.partial(jax.jit, function, **options)

    @functools.cached_property
    def _options(self) -> dict[str, bool] | None:
        return compiler_options(jax.devices()[0])

    @functools.cached_property
    def _program(self) -> Any:
        return self._plain if self._options is None else self._make(compiler_options=self._options)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        # A part of another program is compiled with that one's options.
        inside = self._options and any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves((arguments, named)))
        return (self._plain if inside else self._program)(*arguments, **named)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._program, name)


@functools.cache
def compiler_options(device: jax.Device) -> dict[str, bool] | None:
    """XLA's options for programs on a device; None on platforms without options."""
    return _known(device, OPTIONS)


@functools.cache
def options_without_device(device: jax.Device) -> dict[str, bool] | None:
    """XLA's further options to compile for a device that is not on this machine; None on platforms without options."""
    return _known(device, OPTIONS_WITHOUT_DEVICE)


def _known(device: jax.Device, options: Mapping[str, dict[str, bool]]) -> dict[str, bool] | None:
    """The options of a device's platform, without those that this version of XLA refuses, which are logged once."""
    wanted = options.get(device.platform, {})
    if not wanted or _accepted(device, wanted):
        return wanted or None
    kept = {name: value for name, value in wanted.items() if _accepted(device, {name: value})}
    _logger.warning("this version of XLA does not have the options %s", ", ".join(sorted(wanted.keys() - kept.keys())))
    return kept


def _accepted(device: jax.Device, options: dict[str, bool]) -> bool:
    """Whether XLA compiles an empty program with these options."""
    number = jax.ShapeDtypeStruct((), "int32", sharding=jax.sharding.SingleDeviceSharding(device))
    try:
        jax.jit(lambda x: x, compiler_options=options).lower(number).compile()
    except jax.errors.JaxRuntimeError as error:
        if "No such compile option" not in str(error):
            raise
        return False
    return True
