"""XLA's options for the programs of training, by platform, and the functions that are jitted with them."""

import functools
import logging
from collections.abc import Callable
from typing import Any, TypeVar

import jax

from jaxnlp.ops.devices import compiled_for

T = TypeVar("T")

OPTIONS: dict[str, dict[str, bool]] = {
    # XLA times several Triton kernels for each product and for each fusion. That is half of the compile time of a
    # GPT-2 step for an H100, and cuBLAS's products are as fast.
    "gpu": {"xla_gpu_enable_triton_gemm": False, "xla_gpu_experimental_enable_fusion_autotuner": False}
}
"""Options of each platform."""

_logger = logging.getLogger(__name__)


def jit_for(device: jax.Device, function: Callable[..., T], **options: Any) -> Any:
    """The jitted function, traced for the platform of a device and compiled with that platform's options."""
    return jax.jit(compiled_for(device, function), compiler_options=compiler_options(device), **options)


@functools.cache
def compiler_options(device: jax.Device) -> dict[str, bool] | None:
    """XLA's options for programs on a device; None on platforms without options.

    Options come and go between versions of XLA. One that this version refuses is left out, and logged once.
    """
    wanted = OPTIONS.get(device.platform, {})
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
