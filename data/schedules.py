"""Which task each training step is about, as a pure function of the step."""

import functools
from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np

ScheduleName = Literal["round_robin", "proportional", "annealed", "sequential"]
LEAST_POWER = 0.2
"""Of the annealed schedule, at its end."""
_BLOCK = 1_000


class Schedule:
    """The task of each step, and how often it had its turn before.

    - round_robin: one after the other.
    - proportional: by chance, as likely as the task has examples.
    - annealed: by chance, as likely as n^a, n the task's examples and a falling from 1 to 0.2 within `length` steps.
    - sequential: `length` steps of the first task, then of the second, and after the last of the first again.

    Source: Stickland and Murray 2019, section 3.3, for the annealed one.
    """

    def __init__(self, name: ScheduleName, sizes: Sequence[int], *, length: int, seed: int):
        """Args: sizes: examples of each task. Raises: ValueError for an unknown name, no examples, or no length."""
        if name not in get_args(ScheduleName):
            raise ValueError(f"a schedule is one of {', '.join(get_args(ScheduleName))}, got {name!r}")
        if not sizes or min(sizes) < 1:
            raise ValueError(f"each task needs an example, got {list(sizes)}")
        if length < 1:
            raise ValueError(f"length must be at least 1, got {length}")
        self._name, self._sizes, self._length, self._seed = name, np.asarray(sizes, float), length, seed
        self._drawn = functools.lru_cache(maxsize=4)(self._draw)
        self._before: list[np.ndarray] = [np.zeros(len(sizes), int)]  # turns of each task before each block

    def turn(self, step: int) -> tuple[int, int]:
        """Args: step: from 0. Returns: the task's number, and how many steps before were about it."""
        tasks = len(self._sizes)
        if self._name == "round_robin":
            return step % tasks, step // tasks
        if self._name == "sequential":
            stretch, within = divmod(step, self._length)
            return stretch % tasks, stretch // tasks * self._length + within
        block, place = divmod(step, _BLOCK)
        while len(self._before) <= block:
            last = self._drawn(len(self._before) - 1)
            self._before.append(self._before[-1] + np.bincount(last, minlength=tasks))
        drawn = self._drawn(block)
        task = int(drawn[place])
        return task, int(self._before[block][task] + np.count_nonzero(drawn[:place] == task))

    def _draw(self, block: int) -> np.ndarray:
        """The tasks of a thousand steps."""
        steps = block * _BLOCK + np.arange(_BLOCK)
        weights = self._sizes[None] ** self._powers(steps)[:, None]
        thresholds = np.cumsum(weights, axis=1) / weights.sum(axis=1, keepdims=True)
        chance = np.random.default_rng((self._seed, block)).random(_BLOCK)
        # A chance below 1 may lie above a last threshold that was rounded.
        return np.minimum((chance[:, None] >= thresholds).sum(axis=1), len(self._sizes) - 1)

    def _powers(self, steps: np.ndarray) -> np.ndarray:
        if self._name == "proportional":
            return np.ones(len(steps))
        return 1.0 - (1.0 - LEAST_POWER) * np.minimum(steps / self._length, 1.0)
