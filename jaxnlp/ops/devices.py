"""What the default device is."""

import re

import jax


def cuda_capability() -> tuple[int, int] | None:
    """The Nvidia GPU's compute capability, such as (9, 0); None where another device computes by default."""
    if jax.default_backend() != "gpu":
        return None
    # AMD's have names such as gfx90a there.
    found = re.fullmatch(r"(\d+)\.(\d+)", str(getattr(jax.devices()[0], "compute_capability", "")))
    return None if found is None else (int(found[1]), int(found[2]))
