"""The share of its devices' peak that a run reaches."""

from typing import Any

from train.programs.hlo import parse
from train.programs.peaks import peaks_of
from train.programs.roofline import all_flops, flash_kernel

HIDDEN = ("triton", "tpu_custom_call", "cudnn$conv", "rnn")
"""Parts of the names of custom calls with unknown products, except for the kernels of `ops.flash`."""


def peak_facts(executable: Any, count: float, devices: int, device_kind: str) -> dict[str, float]:
    """Entries of environment.json: `flops_per_unit`, of all products of a step per token or example; and `peak_flops`,
    the FLOP/s of all devices in bfloat16.

    {} for devices with an unknown peak, for a step that counts nothing, and for products that the program's text does
    not show: in cuDNN's convolutions and recurrent layers, and in other kernels than `ops.flash`'s.

    Args:
      executable: the compiled step.
      count: number of tokens or examples in a batch of its shape.
      devices: number of all devices that run the step.
      device_kind: of each device.
    """
    peaks = peaks_of(device_kind)
    if peaks is None or not count:
        return {}
    program = parse(executable.as_text() or "")
    unknown = (one.target or "" for one, _ in program.kernels() if flash_kernel(one) is None)
    if any(part in target for target in unknown for part in HIDDEN):
        return {}
    flops = all_flops(program) * devices
    return {"flops_per_unit": flops / count, "peak_flops": peaks.bfloat16 * devices}
