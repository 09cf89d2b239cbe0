"""The machine and the software of a run."""

import importlib.metadata
import platform
import subprocess
from pathlib import Path

import jax

PACKAGES = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "grain", "numpy")


def versions() -> dict[str, str]:
    """The versions of the packages on which a run's numbers depend."""
    return {name: importlib.metadata.version(name) for name in PACKAGES}


def commit(checkout: Path = Path(__file__).parent) -> str | None:
    """The commit of the checkout, with `-dirty` for changed files; None outside a git checkout."""
    git, describe = ["git", "-C", str(checkout)], ["describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        # An installed package may be in the checkout of another project, which does not track it.
        subprocess.run([*git, "ls-files", "--error-unmatch", "."], capture_output=True, check=True)
        return subprocess.run([*git, *describe], capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def short_commit(commit: str) -> str:
    """12 digits of a result of `commit`, with `-dirty` if it has it."""
    return commit[:12] + commit[40:]


def device_name() -> str:
    """The name of the accelerator, or of the CPU."""
    device = jax.local_devices()[0]
    if device.platform != "cpu":
        return device.device_kind
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
