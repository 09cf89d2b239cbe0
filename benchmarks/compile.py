"""Seconds from a process's start to the end of its first training step of `gpt_names`, ours with a warm cache.

The interpreter's start and each side's own libraries are in it, and no other's.
"""

import tempfile
from pathlib import Path
from typing import Any

from benchmarks.case import OURS, Case
from benchmarks.gpt_names import cases as gpt_names_cases
from benchmarks.measure import SideError, Worker, compared, not_measured

STARTS = 3


def cases() -> list[Case]:
    return gpt_names_cases()


def rows() -> list[dict[str, Any]]:
    """Rows for eager PyTorch and for torch.compile, whose cache is warm too after the first of its starts."""
    with tempfile.TemporaryDirectory() as folder:
        cache = {"JAX_COMPILATION_CACHE_DIR": str(Path(folder))}

        def start(side: str) -> float:
            worker = Worker("gpt_names", side, huge_pages=True, environ=cache)
            try:
                return worker.wait_until_ready()
            finally:
                worker.close()

        cold = start(OURS)
        ours = [start(OURS) for _ in range(STARTS)]
        found = []
        for side in ("eager_f32", "compile"):
            row = {"case": "compile", "variant": "", "opponent": side}
            try:
                theirs = [start(side) for _ in range(STARTS)]
            except SideError as error:
                found.append(row | not_measured(error))
            else:
                found.append(row | compared(ours, theirs) | {"ours_cold_seconds": cold})
    return found
