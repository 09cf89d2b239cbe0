"""Watches the steps of a run: if one takes far longer than the others, a file shows where the process waits."""

import collections
import contextlib
import faulthandler
import logging
import mmap
import statistics
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import jax

from jaxnlp.cli.interrupts import end_without_memory
from jaxnlp.cli.messages import reason

SECONDS_BETWEEN_LOOKS = 1.0
TIMES_AS_LONG = 20
"""A step that takes this multiple of the median is a stall."""
SECONDS_AT_LEAST = 10
"""A shorter wait is not a stall."""
MOST_ROWS = 1_000
"""Number of rows for the median."""
SPARE = 2**20
"""Bytes. If not even this much memory is free, a waiting run may wait forever: a thread did not start, or Python could
not call a callback."""

_logger = logging.getLogger(__name__)


class StallWatch:
    """A context with a thread that checks the run once a second. It only prints, but a wait without memory ends the
    process.

    The host queues steps, and waits for them when it logs. So the time of a step is the mean between two rows of the
    log, and each step since the last row may take as long. Seconds in which the process is suspended do not count.

    Args:
      workdir: the run's folder, for the file of stacks.
      step: number of steps done.
      train_seconds: spent on training so far, see `RunLog.train_seconds`.
      compiling: whether a step may wait for its program.
    """

    def __init__(self, workdir: Path, step: int, train_seconds: float, compiling: Callable[[], bool] = lambda: False):
        self._file = workdir / (f"stacks-{jax.process_index()}.txt" if jax.process_count() > 1 else "stacks.txt")
        self._step, self._row = step, (step, train_seconds)
        self._seconds_per_step = collections.deque[float](maxlen=MOST_ROWS)
        self._compiling = compiling
        self._paused = 0
        self._over = threading.Event()

    def __enter__(self) -> "StallWatch":
        threading.Thread(target=self._watch, daemon=True, name="stalls").start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()

    def step(self, number: int) -> None:
        """Notes that the host has queued this step."""
        self._step = number

    def row(self, step: int, train_seconds: float) -> None:
        """Notes that the device has finished this step, after so many seconds of training in all."""
        before, seconds = self._row
        if step > before:
            self._seconds_per_step.append((train_seconds - seconds) / (step - before))
        self._row = step, train_seconds

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """A context of any duration that is not a step, such as an evaluation."""
        self._paused += 1
        try:
            yield
        finally:
            self._paused += 1

    def longest(self) -> float:
        """Seconds that the host may wait now; infinite between steps, and before the first row."""
        if self._paused % 2 or not self._seconds_per_step or self._compiling():
            return float("inf")
        steps = TIMES_AS_LONG + self._step - self._row[0]
        return max(steps * statistics.median(list(self._seconds_per_step)), SECONDS_AT_LEAST)

    def _watch(self) -> None:
        last, waited, starved, named = None, 0.0, 0.0, False
        while not self._over.wait(SECONDS_BETWEEN_LOOKS):
            try:
                now = self._step, self._row, self._paused
                waited, named = (waited + SECONDS_BETWEEN_LOOKS, named) if now == last else (0.0, False)
                last = now
                mmap.mmap(-1, SPARE).close()  # malloc may keep memory that threads and Python's frames cannot have
                starved = 0.0
                if not named and waited > SECONDS_AT_LEAST and waited > self.longest():
                    named = True
                    self._name(waited)
            except (MemoryError, OSError):
                starved += SECONDS_BETWEEN_LOOKS
                if starved > SECONDS_AT_LEAST and waited > SECONDS_AT_LEAST:
                    end_without_memory()

    def _name(self, seconds: float) -> None:
        """Writes the stacks of all threads, and says so."""
        line = f"step {self._step + 1} has taken {seconds:.0f} s so far, over {TIMES_AS_LONG} times the median"
        try:
            with self._file.open("a", encoding="utf-8") as file:
                file.write(f"{line}\n\n")
                file.flush()
                faulthandler.dump_traceback(file)
                file.write("\n")
            _logger.warning("%s; %s says where it waits", line, self._file)
        except OSError as error:
            _logger.warning("%s; no stacks of it: %s", line, reason(error))
