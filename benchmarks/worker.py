"""`python -m benchmarks.worker CASE VARIANT SIDE`: one side of one case, in a process of its own.

Threads, allocator and compiled programs of one side cannot get into the way of another's. Once prepared and warmed up,
it prints "ready"; then, for every number of steps it reads, it prints the seconds they took.
"""

import importlib
import os
import sys
import time

from benchmarks.case import OURS


def main() -> None:
    module, variant, side = sys.argv[1:]
    started = time.perf_counter()
    case = next(case for case in importlib.import_module(f"benchmarks.{module}").cases() if case.variant == variant)
    if side != OURS:
        started = time.perf_counter()  # importing JAX is not PyTorch's to pay
        import torch

        torch.set_num_threads(len(os.sched_getaffinity(0)))
        torch.manual_seed(0)
    step = case.sides[side]()

    def run(count: int) -> None:
        begun: object = None
        for _ in range(count):
            begun = step()
        if side == OURS:
            import jax

            jax.block_until_ready(begun)

    run(1)
    first = time.perf_counter() - started
    run(1)
    print("ready", first, flush=True)
    for line in sys.stdin:
        count = int(line)
        run(1)  # untimed: caches and pages grow cold while the other sides take their turns
        start = time.perf_counter()
        run(count)
        print(time.perf_counter() - start, flush=True)


if __name__ == "__main__":
    main()
