"""Seconds from a process's start to the end of its first training step of `gpt_names`, ours with a warm cache.

The time includes the start of the interpreter and the import of only the implementation's own libraries.
"""

import tempfile
from pathlib import Path
from typing import Any

from benchmarks.case import OURS, Case
from benchmarks.gpt_names import cases as gpt_names_cases
from benchmarks.measure import ImplementationError, Worker, compared, not_measured

STARTS = 3


def cases() -> list[Case]:
    return gpt_names_cases()


def rows() -> list[dict[str, Any]]:
    """Rows for eager PyTorch and for torch.compile, whose cache is also warm after its first start."""
    with tempfile.TemporaryDirectory() as folder:
        cache = {"JAX_COMPILATION_CACHE_DIR": str(Path(folder))}

        def start(implementation: str) -> float:
            worker = Worker("gpt_names", implementation, huge_pages=True, environ=cache)
            try:
                return worker.wait_until_ready()
            finally:
                worker.close()

        cold = start(OURS)
        ours = [start(OURS) for _ in range(STARTS)]
        found = []
        for implementation in ("eager_f32", "compile"):
            row = {"case": "compile", "variant": "", "opponent": implementation}
            try:
                theirs = [start(implementation) for _ in range(STARTS)]
            except ImplementationError as error:
                found.append(row | not_measured(error))
            else:
                found.append(row | compared(ours, theirs) | {"ours_cold_seconds": cold})
    return found
