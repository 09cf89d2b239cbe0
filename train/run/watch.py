"""Watches the processes of a run: a line names one that has died, hangs, or ended with an error.

JAX ends the other processes after `train.run.processes.SECONDS_OF_SILENCE`, but does not always name the cause. The
watch only prints, so it does not end a slow process.

Process 0 reads each process's signs of life, and writes a line for each silent one. The others read these lines, and
watch process 0.
"""

import contextlib
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import jax
from jax._src import distributed  # JAX has no public name for the client of its coordination service

from jaxnlp.cli.messages import reason

SECONDS_BETWEEN_SIGNS = 1.0
SECONDS_UNTIL_A_LINE = 10.0
SIGNS, LINES = "jaxnlp/signs_of_life/", "jaxnlp/lines/"
"""Keys of the processes' signs, and of process 0's lines."""
ENDED = "ended with an error: "


@contextlib.contextmanager
def watching() -> Iterator[None]:
    """Watches until the context ends without an error; after one, until this process ends."""
    watch = _Watch()
    for loop in (watch.exchange, watch.report):
        threading.Thread(target=loop, daemon=True).start()
    try:
        yield
    except Exception as error:
        watch.end(" ".join(reason(error).split()))
        raise
    watch.over.set()


class Silences:
    """The time of each process's last sign. All times are in seconds, of one clock."""

    def __init__(self, processes: int, now: float):
        self._signs = dict.fromkeys(range(processes), "")
        self._changed = dict.fromkeys(range(processes), now)
        self._named = set[int]()

    def heard(self, signs: dict[int, str], now: float) -> None:
        """Notes the latest sign of each process, which always changes."""
        for process, _ in signs.items() - self._signs.items():
            self._changed[process] = now
        self._signs |= signs

    def lines(self, now: float) -> list[str]:
        """A line for each process that has become silent, or has ended with an error."""
        ended = {one for one, sign in self._signs.items() if ENDED in sign}
        silent = {one for one, then in self._changed.items() if now - then > SECONDS_UNTIL_A_LINE} | ended
        new, self._named = silent - self._named, silent
        return [self._line(one, now - self._changed[one]) for one in sorted(new)]

    def _line(self, process: int, seconds: float) -> str:
        name = " ".join([f"process {process}", *self._signs[process].split(" ")[1:]])
        return name if ENDED in name else silent_line(name, seconds)


def silent_line(name: str, seconds: float) -> str:
    """The line about a silent process."""
    return (
        f"{name} has given no sign of life for {seconds:.0f} s: it is dead, or it hangs; when all processes have "
        "ended, repeat the command to resume"
    )


class _Watch:
    """The state that the threads of a process share."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self._client: Any = distributed.global_state.client
        self._process = jax.process_index()  # at its end JAX would look for devices again
        self._number, self._where = 0, f"({socket.gethostname()}, pid {os.getpid()})"
        self._error = ""
        self._answered = time.monotonic()
        self._silences = Silences(jax.process_count(), self._answered)
        self._lines: list[str] = []
        self._lock = threading.Lock()

    def end(self, error: str) -> None:
        """Tells the others that this process ends with an error."""
        self._error = f" {ENDED}{error}"
        with contextlib.suppress(jax.errors.JaxRuntimeError):  # process 0 is gone, so nobody would read it
            self._sign()

    def exchange(self) -> None:
        """Repeatedly gives signs and reads process 0's findings."""
        while not self.over.wait(SECONDS_BETWEEN_SIGNS):
            try:
                self._sign()
                found = self._read_signs() if self._process == 0 else self._read_lines()
            except jax.errors.JaxRuntimeError as error:
                if not self.over.is_set():
                    print(f"process 0 does not answer: {error}", file=sys.stderr, flush=True)
                return
            self._answered = time.monotonic()
            for line in () if self._error else found:
                print(line, file=sys.stderr, flush=True)

    def report(self) -> None:
        """Prints a line when process 0 becomes silent and no longer answers."""
        named = False
        while not self.over.wait(SECONDS_BETWEEN_SIGNS):
            silent = time.monotonic() - self._answered
            if silent > SECONDS_UNTIL_A_LINE and not named:
                print(silent_line("process 0", silent), file=sys.stderr, flush=True)
            named = silent > SECONDS_UNTIL_A_LINE

    def _sign(self) -> None:
        with self._lock:
            self._number += 1
            sign = f"{self._number} {self._where}{self._error}"
            self._client.key_value_set(f"{SIGNS}{self._process}", sign, allow_overwrite=True)

    def _read_signs(self) -> list[str]:
        signs = self._client.key_value_dir_get(SIGNS)
        now = time.monotonic()
        self._silences.heard({int(key.removeprefix(SIGNS)): sign for key, sign in signs}, now)
        new = self._silences.lines(now)
        if new:
            self._lines += new
            self._client.key_value_set(f"{LINES}all", "\n".join(self._lines), allow_overwrite=True)
        return new

    def _read_lines(self) -> list[str]:
        lines = [line for _, text in self._client.key_value_dir_get(LINES) for line in text.splitlines()]
        new, self._lines = lines[len(self._lines) :], lines
        return new
