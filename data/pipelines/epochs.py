"""Endless batches, epoch by epoch, made by this process or by others."""

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import grain

from data.pipelines.worker_processes import Batches, Epoch, made_ahead

T = TypeVar("T")
ENDLESS = 2**40
"""An effectively infinite number. Grain's own endless repeat() overflows when its examples are batched."""


class Epochs(grain.IterDataset):
    """The batches of epoch 0, then those of epoch 1, and so on.

    Args:
      epoch: at least one batch.
      num_workers: processes that make epochs ahead; 0 = this process makes each batch on demand. The batches and the
        iterator's state do not depend on it.
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
        return made_ahead(self.epoch, number, self.num_workers)


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
    """The same function of an index, which keeps its last result; unlike `lru_cache`, it can go to other processes."""
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
