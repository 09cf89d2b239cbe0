"""`python -m benchmarks.worker CASE SIDE`: one side of a case, in a process of its own.

Threads, allocator and compiled programs of one side cannot get into the way of another's. It prints "ready" and the
seconds that its first step took to come; then it reads lines with a variant's number and a number of steps, and prints
the seconds they took.
"""

import importlib
import os
import sys
import time

from benchmarks.case import OURS, Step


def main() -> None:
    module, side = sys.argv[1:]
    started = time.perf_counter()
    cases = importlib.import_module(f"benchmarks.{module}").cases()
    if side != OURS:
        started = time.perf_counter()  # importing JAX is not PyTorch's to pay
        import torch

        torch.set_num_threads(len(os.sched_getaffinity(0)))
        torch.manual_seed(0)
    prepared: dict[int, Step] = {}

    def run(number: int, count: int) -> None:
        if number not in prepared:
            prepared[number] = cases[number].sides[side]()
            run(number, 2)
        begun: object = None
        for _ in range(count):
            begun = prepared[number]()
        if side == OURS:
            import jax

            jax.block_until_ready(begun)

    prepared[0] = cases[0].sides[side]()
    run(0, 1)
    print("ready", time.perf_counter() - started, flush=True)
    for line in sys.stdin:
        number, count = map(int, line.split())
        run(number, 1)  # untimed: caches and pages grow cold while the other sides take their turns
        start = time.perf_counter()
        run(number, count)
        print(time.perf_counter() - start, flush=True)


if __name__ == "__main__":
    main()
