"""Seconds from a process's start to the end of its first training step of `gpt_names`, ours with a warm cache."""

import tempfile
from pathlib import Path
from typing import Any

from benchmarks.case import OURS, Case
from benchmarks.gpt_names import cases as gpt_names_cases
from benchmarks.measure import Worker, compared

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
        seconds = {side: [start(side) for _ in range(STARTS)] for side in (OURS, "eager_f32", "compile")}
    ours = seconds.pop(OURS)
    return [
        {"case": "compile", "variant": "", "opponent": side, **compared(ours, theirs), "ours_cold_seconds": cold}
        for side, theirs in seconds.items()
    ]
