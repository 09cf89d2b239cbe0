"""Worker processes that make the batches of epochs ahead."""

import collections
import contextlib
import itertools
import logging
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import types
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import Any

import cloudpickle

from data import DataError, LazyBatch

_logger = logging.getLogger(__name__)
Epoch = Callable[[int], Sequence[Any]]
"""A pure function from the index of an epoch to its batches: `NumpyBatch`, `LazyBatch`, or dicts of them by part."""
Batches = Generator[Sequence[Any], None, None]
"""The batches of each epoch."""
SECONDS_UNTIL_A_LINE = 30
"""A process that takes longer for an epoch is named."""


def made_ahead(epoch: Epoch, number: int, num_workers: int) -> Batches:
    """The epochs from a number on, in order, made by processes."""
    content = cloudpickle.dumps(epoch)
    with _no_signals():  # this starts the process that removes semaphores
        processes = ProcessPoolExecutor(num_workers, _Context(), initializer=_begin, initargs=(content,))
    numbers = itertools.count(number)
    ahead = collections.deque(processes.submit(_make, next(numbers)) for _ in range(num_workers))
    try:
        while True:
            batches = pickle.loads(_awaited(ahead.popleft(), num_workers))
            ahead.append(processes.submit(_make, next(numbers)))
            yield batches
    except BrokenProcessPool as error:
        raise DataError(
            f"one of the {num_workers} processes that make batches has died, perhaps for want of memory; give a "
            "smaller --data.num-workers"
        ) from error
    finally:
        results: Any = processes._result_queue
        for process in list(processes._processes.values()):  # Python 3.14 has a public name for it
            process.terminate()
        # A process may have been killed while it sent an epoch. This process, which could also write there, would wait
        # for the rest of it when it ends.
        results._writer.close()
        processes.shutdown(wait=False, cancel_futures=True)


@contextlib.contextmanager
def _no_signals() -> Iterator[None]:
    """A context whose new processes ignore signals that a terminal or a cluster sends to a whole group of processes.

    The training process handles them. A worker that died would be missing for the last batches, and Python's process
    that removes semaphores would print tracebacks. New processes inherit blocked signals.
    """
    if sys.platform == "win32":
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Process(SpawnProcess):
    """A process that does not import the user's program, which may train outside `if __name__ == "__main__"`.
    cloudpickle stores its definitions by value."""

    def terminate(self) -> None:
        """Kills the process: SIGTERM waits, see `_no_signals`."""
        self.kill()

    @staticmethod
    def _Popen(process_obj: Any) -> Any:  # a hook of the standard library
        program = sys.modules["__main__"]
        sys.modules["__main__"] = types.ModuleType("__main__")
        try:
            with _no_signals():
                return SpawnProcess._Popen(process_obj)
        finally:
            sys.modules["__main__"] = program


class _Context(SpawnContext):
    """Starts processes by spawn: a fork would copy JAX's threads."""

    Process = _Process


def _awaited(epoch: Future[bytes], num_workers: int) -> bytes:
    """An epoch made by a process, with a line if it takes long."""
    try:
        return epoch.result(timeout=SECONDS_UNTIL_A_LINE)
    except TimeoutError:
        if not epoch.done():  # otherwise it is an error of the process
            _logger.warning(
                "training has waited %d s for the processes that make batches; if they hang, repeat the command with "
                "--data.num-workers %d",
                *(SECONDS_UNTIL_A_LINE, num_workers - 1),
            )
        return epoch.result()


def _begin(epoch: bytes) -> None:
    """Starts a process that makes epochs of this pickled function."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # on Windows; elsewhere it waits
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _make.epoch = cloudpickle.loads(epoch)  # type: ignore[attr-defined]


def _end_with_parent() -> None:
    """Ends this process after the training one, however that ended: otherwise it would wait forever for work."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _make(number: int) -> bytes:
    batches = _make.epoch(number)  # type: ignore[attr-defined]
    return pickle.dumps([_made(batches[index]) for index in range(len(batches))])  # grain would iterate in threads


def _made(batch: Mapping[str, Any]) -> dict[str, Any]:
    """A batch whose rows are made, or a dict of such batches."""
    if isinstance(batch, LazyBatch):
        return batch.whole
    return {name: _made(x) if isinstance(x, Mapping) else x for name, x in batch.items()}
