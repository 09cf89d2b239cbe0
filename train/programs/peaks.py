"""Peak rates of accelerators, by the name of the device: `jax.Device.device_kind`."""

from typing import NamedTuple


class Peaks(NamedTuple):
    """Rates of one device, dense, at their maximum.

    Attributes:
      bfloat16: FLOP/s of products of bfloat16 or float16, with sums in float32.
      float32: FLOP/s of products of float32, rounded to TF32 on GPUs and to bfloat16 on TPUs, as XLA does by default.
      bandwidth: bytes/s of the device's memory.
      launch: seconds that a kernel takes in any case.
    """

    bfloat16: float
    float32: float
    bandwidth: float
    launch: float = 2e-6


PEAKS = {
    # NVIDIA's data sheets of each GPU; products without sparsity. The more specific name is first.
    "H200": Peaks(989e12, 495e12, 4.8e12),
    "H100 PCIe": Peaks(756e12, 378e12, 2.0e12),
    "H100 NVL": Peaks(835e12, 418e12, 3.9e12),
    "H100": Peaks(989e12, 495e12, 3.35e12),
    "B200": Peaks(2250e12, 1125e12, 7.7e12),
    "A100-SXM4-80GB": Peaks(312e12, 156e12, 2.039e12),
    "A100": Peaks(312e12, 156e12, 1.555e12),
    "L40S": Peaks(362e12, 183e12, 0.864e12),
    "L4": Peaks(121e12, 60e12, 0.3e12),
    # Google's pages of each TPU, https://cloud.google.com/tpu/docs/system-architecture-tpu-vm
    "TPU v4": Peaks(275e12, 275e12, 1.228e12, launch=0.0),
    "TPU v5 lite": Peaks(197e12, 197e12, 0.819e12, launch=0.0),
    "TPU v5e": Peaks(197e12, 197e12, 0.819e12, launch=0.0),
    "TPU v5p": Peaks(459e12, 459e12, 2.765e12, launch=0.0),
    "TPU v5": Peaks(459e12, 459e12, 2.765e12, launch=0.0),
    "TPU v6 lite": Peaks(918e12, 918e12, 1.64e12, launch=0.0),
    "TPU v6e": Peaks(918e12, 918e12, 1.64e12, launch=0.0),
}
"""A device has the first name that is part of its own, as whole words."""


def peaks_of(device_kind: str) -> Peaks | None:
    """The peak rates of a device; None if they are not known, as of CPUs."""
    words = f" {device_kind} "
    return next((peaks for name, peaks in PEAKS.items() if f" {name} " in words or f" {name}-" in words), None)
