"""The compile time of this process, which the estimate of the remaining time leaves out."""

from typing import Any

import jax

_EVENTS = ("/jax/core/compile/jaxpr_to_mlir_module_duration", "/jax/core/compile/backend_compile_duration")
_seconds = 0.0


def compile_seconds() -> float:
    """Seconds that this process has spent on compiling, and on reading compiled programs from the cache."""
    return _seconds


def _add(event: str, duration_secs: float, **_: Any) -> None:
    global _seconds
    if event in _EVENTS:
        _seconds += duration_secs


jax.monitoring.register_event_duration_secs_listener(_add)
