"""Graceful stop of a run: after SIGTERM, SIGINT or SIGHUP the training loop saves a checkpoint and exits."""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import jax
from jax.experimental import multihost_utils

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

SECOND_SIGNAL_SECONDS = 2.0
"""A signal that repeats within this time is a duplicate, such as one that a wrapper sends to its process group."""


class StopSignal:
    """A context that records the first SIGTERM, SIGINT or SIGHUP. A later second signal has its usual effect.

    With several processes a signal to one of them stops all, after the same step, and a second SIGTERM has no effect.

    An ignored SIGHUP, as under nohup, stays ignored. SIGINT is always handled, although shells ignore it for background
    jobs. Only the main thread handles signals.

    Attributes:
      received: name of the signal; None = none.
    """

    def __init__(self) -> None:
        self.received: str | None = None
        self._received_at = 0.0
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "StopSignal":
        # With several processes JAX's own handler passes SIGTERM on.
        numbers = [number for number in _handled() if jax.process_count() == 1 or number != signal.SIGTERM]
        self._before = {number: signal.signal(number, self._note) for number in numbers}
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    def stops_at(self, step: int) -> bool:
        """Whether the run stops after this step; to be called after each step."""
        if jax.process_count() > 1 and multihost_utils.reached_preemption_sync_point(step):
            self.received = self.received or signal.SIGTERM.name
            return True
        return self.received is not None and jax.process_count() == 1

    def _note(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGHUP:  # the terminal was closed
            _print_nowhere()
        if self.received is None:
            self.received, self._received_at = signal.Signals(number).name, time.monotonic()
            if jax.process_count() > 1:
                os.kill(os.getpid(), signal.SIGTERM)
        elif time.monotonic() - self._received_at > SECOND_SIGNAL_SECONDS:
            self._restore()
            signal.raise_signal(number)

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def handled(handler: Callable[[signal.Signals], object]) -> Iterator[None]:
    """A context in which this function is called at each signal that `StopSignal` would handle.

    It is for a process that only starts runs, without JAX's devices, which `StopSignal` needs.
    """

    def handle(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            _print_nowhere()
        handler(signal.Signals(number))

    before = {number: signal.signal(number, handle) for number in _handled()}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


def _handled() -> list[signal.Signals]:
    """The signals to handle."""
    if threading.current_thread() is not threading.main_thread():
        return []  # Python lets only the main thread handle signals
    hang_up = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
    return [number for number in STOP_SIGNALS if hang_up or number != signal.SIGHUP]


def _print_nowhere() -> None:
    """Discards further output to the terminal: writing to a closed one is an error."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.__stdout__, sys.__stderr__):
        if stream is not None and stream.isatty():
            os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def exit_status(name: str) -> int:
    """The exit status of a process that a signal stopped: 128 + its number, such as 130 for SIGINT."""
    return 128 + signal.Signals[name].value
