"""A watch over the other processes of a run: one line names a process that has died or that hangs.

JAX ends the other processes after `train.run.processes.SECONDS_OF_SILENCE`, but it does not always say which one is the
cause. The watch only prints, so a process that is only slow is not ended by it.
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

SECONDS_BETWEEN_SIGNS = 1.0
SECONDS_UNTIL_A_LINE = 10.0
FOLDER = "jaxnlp/signs_of_life/"


@contextlib.contextmanager
def watching() -> Iterator[None]:
    """Watches the others until the context ends without an error; after one, until this process ends."""
    watch, over = Silences(jax.process_count(), time.monotonic()), threading.Event()
    for loop in (_exchange_signs, _report):
        threading.Thread(target=loop, args=(watch, over), daemon=True).start()
    yield
    over.set()


class Silences:
    """When each process was last heard of. All times are in seconds, of one clock."""

    def __init__(self, processes: int, now: float):
        self._answered = now
        self._signs = dict.fromkeys(range(processes), "")
        self._changed = dict.fromkeys(range(processes), now)
        self._named = set[int]()

    def answered(self, signs: dict[int, str], now: float) -> None:
        """Notes an answer of process 0: the latest sign of each process, which is another one each time."""
        self._answered = now
        for process, _ in signs.items() - self._signs.items():
            self._changed[process] = now
        self._signs |= signs

    def lines(self, now: float) -> list[str]:
        """A line for each process that has become silent. If process 0 is, nothing is known of the others."""
        silent = {one: self._answered - then for one, then in self._changed.items()}
        if now - self._answered > SECONDS_UNTIL_A_LINE:
            silent = {0: now - self._answered}
        silent = {one: seconds for one, seconds in silent.items() if seconds > SECONDS_UNTIL_A_LINE}
        new, self._named = silent.keys() - self._named, set(silent)
        where = {one: " ".join([str(one), *sign.split()[1:]]) for one, sign in self._signs.items()}
        return [
            f"process {where[one]} has given no sign of life for {silent[one]:.0f} s: it is dead, or it hangs; "
            "when all processes have ended, repeat the command to resume"
            for one in sorted(new)
        ]


def _exchange_signs(watch: Silences, over: threading.Event) -> None:
    client: Any = distributed.global_state.client
    mine = f"{FOLDER}{jax.process_index()}"
    where, number = f"({socket.gethostname()}, pid {os.getpid()})", 0
    while not over.wait(SECONDS_BETWEEN_SIGNS):
        number += 1
        try:
            client.key_value_set(mine, f"{number} {where}", allow_overwrite=True)
            signs = client.key_value_dir_get(FOLDER)
        except jax.errors.JaxRuntimeError as error:
            if not over.is_set():
                print(f"process 0 does not answer: {error}", file=sys.stderr, flush=True)
            return
        watch.answered({int(key.removeprefix(FOLDER)): sign for key, sign in signs}, time.monotonic())


def _report(watch: Silences, over: threading.Event) -> None:
    while not over.wait(SECONDS_BETWEEN_SIGNS):
        for line in watch.lines(time.monotonic()):
            print(line, file=sys.stderr, flush=True)
