"""What happens at Ctrl-C during imports, and at Ctrl-C or a lack of memory in a library's callback."""

import _thread
import contextlib
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

SECONDS_UNTIL_IT_IS_REPEATED = 0.05
NO_MEMORY = b"error: not enough memory; make the batches, the inputs or the model smaller\n"
"""Made in advance, because there is no memory for it later."""


def end_at_interrupt() -> None:
    """From now on SIGINT ends the process with one line.

    An import that is interrupted may print a traceback, or leave half a module. If SIGINT is ignored, it stays ignored.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])


def hold_interrupts() -> None:
    """From now on SIGINT waits until `end_at_interrupt`, also if the program restarts itself in between."""
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])


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
    """Raises a KeyboardInterrupt again that Python drops.

    Python prints and drops errors of callbacks, such as JAX's at garbage collection. A MemoryError there ends the
    process: the library cannot continue without the callback's result.
    """
    before, dropped = sys.unraisablehook, queue.SimpleQueue[Any]()
    thread = threading.Thread(target=_take, args=(dropped, before), daemon=True, name="dropped errors")
    thread.start()
    sys.unraisablehook = dropped.put  # a function of C, which needs no frame: without memory Python can make none
    try:
        yield
    finally:
        sys.unraisablehook = before
        dropped.put(None)
        thread.join()


def _take(dropped: queue.SimpleQueue[Any], before: Callable[[Any], object]) -> None:
    """Handles each dropped error, until None comes."""
    while (error := dropped.get()) is not None:
        if error.exc_type is MemoryError:
            end_without_memory()
        elif error.exc_type is KeyboardInterrupt:
            time.sleep(SECONDS_UNTIL_IT_IS_REPEATED)
            _thread.interrupt_main()
        else:
            before(error)
