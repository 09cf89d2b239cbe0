"""What a run needs to know to say which share of its devices' peak it reaches."""

from typing import Any

from train.programs.hlo import parse
from train.programs.peaks import peaks_of
from train.programs.roofline import all_flops


def peak_facts(executable: Any, count: float, devices: int, device_kind: str) -> dict[str, float]:
    """Entries of environment.json: `flops_per_unit`, of all products of a step by the number of tokens or examples that
    it counts; and `peak_flops`, the FLOP/s of all devices in bfloat16.

    {} for devices whose peak is not known, and for a step that counts nothing.

    Args:
      executable: the compiled step.
      count: number of tokens or examples in a batch of its shape.
      devices: number of devices that share the batch.
      device_kind: of each device.
    """
    peaks = peaks_of(device_kind)
    if peaks is None or not count:
        return {}
    flops = all_flops(parse(executable.as_text())) * devices
    return {"flops_per_unit": flops / count, "peak_flops": peaks.bfloat16 * devices}
