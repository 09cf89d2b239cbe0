"""Ctrl-C while libraries are imported, and Ctrl-C or a lack of memory while one of their callbacks runs."""

import _thread
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

SECONDS_UNTIL_IT_IS_REPEATED = 0.05
NO_MEMORY = b"error: not enough memory; make the batches, the inputs or the model smaller\n"
"""Made before it is needed: then there is no memory for it."""


def end_at_interrupt() -> None:
    """From now on SIGINT ends the process with one line.

    An import that is interrupted may print a traceback, or leave half a module. If SIGINT is ignored, it stays ignored.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def raise_at_interrupt() -> None:
    """From now on SIGINT raises KeyboardInterrupt again."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(number: int, frame: FrameType | None) -> None:
    os.write(2, b"interrupted; nothing was started\n")
    os._exit(128 + number)


def end_without_memory() -> None:
    """Ends the process at once, with one line."""
    os.write(2, NO_MEMORY)
    os._exit(2)


@contextlib.contextmanager
def no_interrupt_is_lost() -> Iterator[None]:
    """A context in which a KeyboardInterrupt that Python drops is raised again a moment later.

    Python prints and drops errors of callbacks, such as JAX's function that is called when garbage is collected. A
    MemoryError there ends the process at once: its library would go on without what the callback gives.
    """
    before = sys.unraisablehook

    def repeat(dropped: Any) -> None:
        if dropped.exc_type is MemoryError:
            end_without_memory()
        if dropped.exc_type is not KeyboardInterrupt:
            before(dropped)
            return
        timer = threading.Timer(SECONDS_UNTIL_IT_IS_REPEATED, _thread.interrupt_main)
        timer.daemon = True
        timer.start()

    sys.unraisablehook = repeat
    try:
        yield
    finally:
        sys.unraisablehook = before
