"""`python -m benchmarks.worker CASE SIDE`: one side of a case, in a process of its own.

Threads, allocator and compiled programs of one side cannot get into the way of another's. After the first step it
prints "ready", and how many seconds it spent on what the other side alone needs; then it reads lines with a variant's
number and a number of steps, and prints the seconds they took.
"""

import importlib
import os
import sys
import time

from benchmarks.case import OURS, Step

LONG_STEP_SECONDS = 3.0
"""Steps from here on are not warmed up by one more."""


def main() -> None:
    module, side = sys.argv[1:]
    if side != OURS:
        import torch

        torch.set_num_threads(len(os.sched_getaffinity(0)))
        torch.manual_seed(0)
    start = time.perf_counter()
    cases = importlib.import_module(f"benchmarks.{module}").cases()
    others = 0.0 if side == OURS else time.perf_counter() - start  # importing JAX is not PyTorch's to pay
    prepared: dict[int, Step] = {}
    seconds_a_step: dict[int, float] = {}

    def run(number: int, count: int) -> float:
        start = time.perf_counter()
        begun: object = None
        for _ in range(count):
            begun = prepared[number]()
        if side == OURS:
            import jax

            jax.block_until_ready(begun)
        seconds = time.perf_counter() - start
        seconds_a_step[number] = seconds / count
        return seconds

    def prepare(number: int) -> None:
        prepared[number] = cases[number].sides[side]()
        run(number, 1)

    prepare(0)
    print("ready", others, flush=True)
    for line in sys.stdin:
        number, count = map(int, line.split())
        if number not in prepared:
            prepare(number)
        # Untimed: caches and pages grow cold while the other sides take their turns. A long step has time to warm them.
        if seconds_a_step[number] < LONG_STEP_SECONDS:
            run(number, 1)
        print(run(number, count), flush=True)


if __name__ == "__main__":
    main()
