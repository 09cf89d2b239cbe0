"""Endless batches, epoch by epoch, made by this process or by others."""

import collections
import contextlib
import functools
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
from typing import Any, TypeVar

import cloudpickle
import grain

from data import DataError, LazyBatch

_logger = logging.getLogger(__name__)
T = TypeVar("T")
Epoch = Callable[[int], Sequence[Any]]
"""A pure function from the index of an epoch to its batches: `NumpyBatch`, `LazyBatch`, or dicts of them by part."""
Batches = Generator[Sequence[Any], None, None]
"""The batches of each epoch."""
SECONDS_UNTIL_A_LINE = 30
"""A process that needs longer for an epoch is named."""
ENDLESS = 2**40
"""An effectively infinite number. Grain's own endless repeat() overflows when its examples are batched."""


class Epochs(grain.IterDataset):
    """The batches of epoch 0, then those of epoch 1, and so on.

    Args:
      epoch: at least one batch.
      num_workers: processes that make epochs ahead, each another one; 0 = this process makes a batch when it is
        needed. The batches and the iterator's state do not depend on it.
    """

    def __init__(self, epoch: Epoch, num_workers: int = 0):
        super().__init__()
        self.epoch = epoch
        self.num_workers = num_workers

    def with_workers(self, number: int) -> "Epochs":
        """The same batches, made by this number of processes."""
        return Epochs(self.epoch, number)

    def __iter__(self) -> "_EpochsIterator":
        return _EpochsIterator(self._epochs_from)

    def _epochs_from(self, number: int) -> Batches:
        if not self.num_workers:
            return (self.epoch(index) for index in itertools.count(number))
        return _made_ahead(self.epoch, number, self.num_workers)


class _EpochsIterator(grain.DatasetIterator):
    """Its state is two numbers: the epoch and the next batch in it."""

    def __init__(self, epochs_from: Callable[[int], Batches]):
        super().__init__()
        self._epochs_from = epochs_from
        self._number, self._next = 0, 0
        self._epochs: Batches | None = None  # from `_number` on, once a batch was taken
        self._batches: Sequence[Any] = ()

    def __next__(self) -> Any:
        if self._epochs is None:
            self._epochs = self._epochs_from(self._number)
            self._batches = next(self._epochs)
        if self._next == len(self._batches):
            self._number, self._next = self._number + 1, 0
            self._batches = next(self._epochs)
        self._next += 1
        return self._batches[self._next - 1]

    def get_state(self) -> dict[str, Any]:
        return {"epoch": self._number, "batch": self._next}

    def set_state(self, state: dict[str, Any]) -> None:
        self._number, self._next = state["epoch"], state["batch"]
        self._epochs = None

    def close(self) -> None:
        """Ends the processes that make batches."""
        super().close()
        if self._epochs is not None:
            self._epochs.close()


def keeps_last(make: Callable[[int], T]) -> Callable[[int], T]:
    """The same function of an index, which keeps its last result; `lru_cache` cannot go to other processes."""
    last: list[tuple[int, T]] = []  # one pair, which is replaced as a whole: grain may call this in threads

    @functools.wraps(make)
    def kept(index: int) -> T:
        for number, result in last:
            if number == index:
                return result
        made = make(index)
        last[:] = [(index, made)]
        return made

    return kept


@contextlib.contextmanager
def _no_signals() -> Iterator[None]:
    """A context whose new processes get no signal that a terminal or a cluster sends to a whole group of processes.

    The process that trains handles it. A process that died of it would lack for the last batches, and Python's process
    that removes semaphores would print tracebacks. New processes inherit which signals wait.
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

    It does not need that program: cloudpickle stores what is defined there by value.
    """

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
    """Starts processes anew: a fork would copy JAX's threads."""

    Process = _Process


def _made_ahead(epoch: Epoch, number: int, num_workers: int) -> Batches:
    """The epochs from a number on, in their order, made by processes."""
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


def _awaited(epoch: Future[bytes], num_workers: int) -> bytes:
    """An epoch that a process makes. A line says when it takes long."""
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
    """Begins a process that makes epochs of this pickled function."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # on Windows; elsewhere it waits
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _make.epoch = cloudpickle.loads(epoch)  # type: ignore[attr-defined]


def _end_with_parent() -> None:
    """Ends this process when the one that trains has ended, however it ended: it would wait forever for work."""
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
