"""Refuses a run that cannot fit into memory, before anything is allocated."""

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import jax

from jaxnlp.saving.serialization import ConfigError
from jaxnlp.typing import PyTree
from train.run.setup import Setup

_TOKEN = 4
"""Bytes of a token in a batch."""


def require_memory(setup: Setup, runs: int = 1) -> None:
    """Refuses a run whose state and batch are larger than the memory of all devices together.

    The estimate is a lower bound: the parameters, the arrays like them (moments of the optimizer, averages), and one
    batch, without gradients and activations.

    Args:
      setup: of the run.
      runs: number of such runs at once.

    Raises: ConfigError with the estimate, the memory, and the fields to lower.
    """
    sizes = {
        "parameters": bytes_of(setup.abstract_state.params),
        "moments and averages": bytes_of(setup.abstract_state) - bytes_of(setup.abstract_state.params),
        "a batch": batch_bytes(setup),
    }
    parts = {name: runs * size for name, size in sizes.items()}
    needed, there = sum(parts.values()), device_memory()
    if there is None or needed <= there:
        return
    config = setup.config
    names = [config.model.full_name(name) for name in config.model.usual] + [config.data.full_name("batch_size")]
    which = "the run needs" if runs == 1 else f"{runs} runs need"
    raise ConfigError(
        f"{which} at least {_shown(needed)} of memory ({', '.join(f'{k} {_shown(n)}' for k, n in parts.items())}"
        f"), but there are {_shown(there)}; lower {', '.join(names[:-1])} or {names[-1]}"
    )


def batch_bytes(setup: Setup) -> int:
    """Bytes of the largest batch, or fewer where batches have not been made."""
    data, shapes = setup.config.data, setup.corpus.of_each_shape
    if shapes is None:  # all are as large as the first one, which is not made yet
        return data.batch_size * (data.max_length or 1) * _TOKEN
    return max(map(bytes_of, shapes), default=0)


def bytes_of(tree: PyTree) -> int:
    """The bytes of all arrays, or abstract arrays."""
    return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(tree))


def device_memory() -> int | None:
    """The bytes of all devices together; None = unknown."""
    devices = jax.local_devices()
    if devices[0].platform == "cpu":  # virtual devices share the memory of the machine
        own = host_memory()
    else:
        limits = [(device.memory_stats() or {}).get("bytes_limit") for device in devices]
        own = sum(limits) if all(limits) else None  # type: ignore[arg-type]
    return None if own is None else own * jax.process_count()


def host_memory(root: Path = Path("/")) -> int | None:
    """The bytes of memory and swap that this process may use, by the machine, its control group and its own limit; None
    = unknown. Args: root: the folder of `proc` and `sys`."""
    if sys.platform == "win32":
        return None
    import resource

    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    swap = sum(1024 * int(found[1]) for found in re.finditer(r"SwapTotal: +(\d+) kB", _text(root / "proc/meminfo")))
    limits = [min([total, *_group_limits(root)]) + swap]
    limits += [limit for limit in resource.getrlimit(resource.RLIMIT_AS)[:1] if limit != resource.RLIM_INFINITY]
    return min(limits)


def _group_limits(root: Path) -> Iterator[int]:
    """The limits of this process's control groups, of both versions, and of their parents."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, inside = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        folder, name = ("memory", "memory.limit_in_bytes") if controllers else ("", "memory.max")
        top = root / "sys/fs/cgroup" / folder
        place = top / inside.lstrip("/")
        for one in (place, *(parent for parent in place.parents if parent.is_relative_to(top))):
            limit = _text(one / name).strip()
            if limit.isdecimal():  # "max" is none
                yield int(limit)


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""


def _shown(size: int) -> str:
    return f"{size / 2**30:,.1f} GiB"
