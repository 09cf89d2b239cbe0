"""Announces slow compilation."""

import contextlib
import logging
import sys
import threading
from collections.abc import Iterator
from typing import Any

import jax.monitoring

PATIENCE_SECONDS = 1.0
"""Compilation is announced if it takes longer in total."""
_MESSAGE = "compiling; later inputs of the same size are answered at once"
_LOWERED, _COMPILED = "/jax/core/compile/jaxpr_to_mlir_module_duration", "/jax/core/compile/backend_compile_duration"
"""JAX's events directly before and after the compilation of a program."""

_logger = logging.getLogger(__name__)


class _Watch(threading.local):
    """The state of a thread: the depth of blocks, the seconds spent on compiling, and the running timer."""

    depth = 0
    spent = 0.0
    timer: threading.Timer | None = None


_watch = _Watch()


@contextlib.contextmanager
def compilation_announced() -> Iterator[None]:
    """Announces compilation once, when the programs of this block take over a second in all to compile.

    The message is on standard error if that is a terminal; otherwise `jaxnlp.inference.compilation` logs it as INFO.
    """
    _listen()
    if _watch.depth == 0:
        _watch.spent = 0.0
    _watch.depth += 1
    try:
        yield
    finally:
        _watch.depth -= 1
        _stop()


def announce_no_more() -> None:
    """Ends the announcements of this block, before an incomplete line of output."""
    _watch.spent = max(_watch.spent, PATIENCE_SECONDS)


def _announce() -> None:
    if sys.stderr is not None and sys.stderr.isatty():
        print(f"{_MESSAGE} ...", file=sys.stderr, flush=True)
    else:
        _logger.info(_MESSAGE)


def _on_event(event: str, duration_secs: float, **_: Any) -> None:
    if event == _COMPILED:
        _stop()
        _watch.spent += duration_secs
    elif event == _LOWERED and _watch.depth and _watch.spent < PATIENCE_SECONDS:
        _stop()
        _watch.timer = threading.Timer(PATIENCE_SECONDS - _watch.spent, _announce)
        _watch.timer.daemon = True
        _watch.timer.start()


def _stop() -> None:
    if _watch.timer is not None:
        _watch.timer.cancel()
        _watch.timer = None


_listening = threading.Event()


def _listen() -> None:
    """Registers the listener with JAX, once in a process."""
    if not _listening.is_set():
        _listening.set()
        jax.monitoring.register_event_duration_secs_listener(_on_event)
