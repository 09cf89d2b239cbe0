"""Schedules of multi-task data: the part of each training step, as a pure function of the step."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from data.pipelines.epochs import keeps_last

ScheduleName = Literal["round_robin", "proportional", "annealed", "sequential"]
LEAST_POWER = 0.2
"""Exponent of the sizes at the end of the annealed schedule."""
_BLOCK = 1_000


class PartSchedule:
    """The part of each step, and the number of previous steps of that part.

    - round_robin: in turn.
    - proportional: random, with probabilities proportional to the parts' sizes n.
    - annealed: random, with probabilities proportional to n^a; a falls from 1 to 0.2 within `length` steps.
    - sequential: `length` steps of each part in turn.

    Source: Stickland and Murray 2019, section 3.3, for the annealed schedule.
    """

    def __init__(self, name: ScheduleName, sizes: Sequence[int], *, length: int, seed: int):
        """Args: sizes: examples of each part, at least one. length: at least 1."""
        self._name, self._sizes, self._length, self._seed = name, np.asarray(sizes, float), length, seed
        self._drawn = keeps_last(self._draw)
        self._before: list[np.ndarray] = [np.zeros(len(sizes), int)]  # turns of each part before each block

    def turn(self, step: int) -> tuple[int, int]:
        """Args: step: from 0. Returns: the part's index, and its number of previous steps."""
        tasks = len(self._sizes)
        if self._name == "round_robin":
            return step % tasks, step // tasks
        if self._name == "sequential":
            stretch, within = divmod(step, self._length)
            return stretch % tasks, stretch // tasks * self._length + within
        block, index = divmod(step, _BLOCK)
        while len(self._before) <= block:
            last = self._drawn(len(self._before) - 1)
            self._before.append(self._before[-1] + np.bincount(last, minlength=tasks))
        drawn = self._drawn(block)
        task = int(drawn[index])
        return task, int(self._before[block][task] + np.count_nonzero(drawn[:index] == task))

    def _draw(self, block: int) -> np.ndarray:
        """The parts of a thousand steps."""
        steps = block * _BLOCK + np.arange(_BLOCK)
        weights = self._sizes[None] ** self._powers(steps)[:, None]
        thresholds = np.cumsum(weights, axis=1) / weights.sum(axis=1, keepdims=True)
        chance = np.random.default_rng((self._seed, block)).random(_BLOCK)
        # A random number below 1 may be above the last threshold, which is rounded.
        return np.minimum((chance[:, None] >= thresholds).sum(axis=1), len(self._sizes) - 1)

    def _powers(self, steps: np.ndarray) -> np.ndarray:
        if self._name == "proportional":
            return np.ones(len(steps))
        return 1.0 - (1.0 - LEAST_POWER) * np.minimum(steps / self._length, 1.0)
