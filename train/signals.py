"""Graceful stop of a run: after SIGTERM or SIGINT the training loop saves a checkpoint and exits."""

import signal
import time
from types import FrameType
from typing import Any

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


SECOND_SIGNAL_SECONDS = 2.0
"""A signal repeated within this time is a duplicate, such as one that a wrapper forwards to its process group."""


class StopSignal:
    """A context that records the first SIGTERM or SIGINT. A later second signal has its usual effect.

    Attributes:
      received: name of the signal; None = no signal was received.
    """

    def __init__(self) -> None:
        self.received: str | None = None
        self._received_at = 0.0
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "StopSignal":
        self._before = {number: signal.signal(number, self._note) for number in STOP_SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.received is None:
            self.received, self._received_at = signal.Signals(number).name, time.monotonic()
        elif time.monotonic() - self._received_at > SECOND_SIGNAL_SECONDS:
            self._restore()
            signal.raise_signal(number)

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
