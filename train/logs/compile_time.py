"""The compile time of this process, for the ETA."""

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any

import jax

BACKGROUND = "compile-ahead"
"""Prefix of the names of threads that compile during training."""
_EVENTS = ("/jax/core/compile/jaxpr_to_mlir_module_duration", "/jax/core/compile/backend_compile_duration")
_seconds = 0.0


def compile_seconds() -> float:
    """Seconds that training has waited for compilation, and for reading compiled programs from the cache."""
    return _seconds


@contextlib.contextmanager
def waiting_for_programs() -> Iterator[None]:
    """A context in which training waits for a thread that compiles."""
    global _seconds
    begun = time.perf_counter()
    try:
        yield
    finally:
        _seconds += time.perf_counter() - begun


def _add(event: str, duration_secs: float, **_: Any) -> None:
    global _seconds
    if event in _EVENTS and not threading.current_thread().name.startswith(BACKGROUND):
        _seconds += duration_secs


jax.monitoring.register_event_duration_secs_listener(_add)
