"""Peak rates of accelerators, by the name of the device: `jax.Device.device_kind`."""

from typing import NamedTuple


class Peaks(NamedTuple):
    """Rates of one device, dense, at their maximum.

    Attributes:
      bfloat16: FLOP/s of products of bfloat16 or float16, with sums in float32.
      float32: FLOP/s of products of float32, rounded to TF32 on GPUs and to bfloat16 on TPUs, as XLA does by default.
      bandwidth: bytes/s of the device's memory.
      links: bytes/s that the device sends to others of its machine or slice, over all links.
      launch: seconds of a kernel's launch.
    """

    bfloat16: float
    float32: float
    bandwidth: float
    links: float
    launch: float = 2e-6


PEAKS = {
    # NVIDIA's data sheets of each GPU; products without sparsity; half of the rate of NVLink or PCIe, which counts both
    # directions. The more specific name is first.
    "H200": Peaks(989e12, 495e12, 4.8e12, 450e9),
    "H100 PCIe": Peaks(756e12, 378e12, 2.0e12, 64e9),
    "H100 NVL": Peaks(835e12, 418e12, 3.9e12, 300e9),
    "H100": Peaks(989e12, 495e12, 3.35e12, 450e9),
    "B200": Peaks(2250e12, 1125e12, 7.7e12, 900e9),
    "A100-SXM4-80GB": Peaks(312e12, 156e12, 2.039e12, 300e9),
    "A100": Peaks(312e12, 156e12, 1.555e12, 300e9),
    "L40S": Peaks(362e12, 183e12, 0.864e12, 32e9),
    "L4": Peaks(121e12, 60e12, 0.3e12, 32e9),
    # Google's pages of each TPU, https://cloud.google.com/tpu/docs/system-architecture-tpu-vm; half of the bandwidth
    # between chips, which counts both directions.
    "TPU v4": Peaks(275e12, 275e12, 1.228e12, 300e9, launch=0.0),
    "TPU v5 lite": Peaks(197e12, 197e12, 0.819e12, 200e9, launch=0.0),
    "TPU v5e": Peaks(197e12, 197e12, 0.819e12, 200e9, launch=0.0),
    "TPU v5p": Peaks(459e12, 459e12, 2.765e12, 600e9, launch=0.0),
    "TPU v5": Peaks(459e12, 459e12, 2.765e12, 600e9, launch=0.0),
    "TPU v6 lite": Peaks(918e12, 918e12, 1.64e12, 400e9, launch=0.0),
    "TPU v6e": Peaks(918e12, 918e12, 1.64e12, 400e9, launch=0.0),
}
"""A device has the first name that is part of its own, as whole words."""


def peaks_of(device_kind: str) -> Peaks | None:
    """The peak rates of a device; None if unknown, as of CPUs."""
    words = f" {device_kind} "
    return next((peaks for name, peaks in PEAKS.items() if f" {name} " in words or f" {name}-" in words), None)
