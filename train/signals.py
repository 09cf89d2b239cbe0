"""Stopping a run politely: SIGTERM and SIGINT ask the loop to save and leave."""

import signal
import time
from types import FrameType
from typing import Any

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


SECOND_SIGNAL_SECONDS = 2.0
"""A repetition within this time is the same wish, sent twice: by a wrapper, say, that forwards to its whole group."""


class StopSignal:
    """While entered, notes the first SIGTERM or SIGINT; a later second one acts as it always did.

    Attributes:
      received: name of the signal, or None.
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
