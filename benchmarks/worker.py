"""`python -m benchmarks.worker MODULE IMPLEMENTATION [NUMBER]`: one implementation of a case, in its own process.

So threads, allocator and compiled programs of the implementations do not affect each other. NUMBER is that of the
variant to begin with; none = 0. After the first step it prints "ready", and the seconds of imports that only other
implementations need. Then it reads lines with the number of a variant and a number of steps, and prints the seconds of
these steps. For the line "memory" it prints the most bytes of the GPU that were in use; 0 on a CPU. What libraries
print goes to the standard error.
"""

import importlib
import os
import sys
import time
from typing import TextIO

from benchmarks.case import OURS, Step, on_gpu

LONG_STEP_SECONDS = 3.0
"""Steps that take longer have no warm-up step before a turn."""


def own_output() -> TextIO:
    """The standard output, for answers alone: from now on, what libraries print goes to the standard error."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    return answers


def main(answers: TextIO) -> None:
    module, implementation, *first = sys.argv[1:]
    if implementation != OURS:
        import torch

        torch.set_num_threads(len(os.sched_getaffinity(0)))
        torch.manual_seed(0)
        if on_gpu():
            torch.set_default_device("cuda")
            torch.set_float32_matmul_precision("high")  # TF32
    start = time.perf_counter()
    cases = importlib.import_module(f"benchmarks.{module}").cases()
    others = (
        0.0 if implementation == OURS else time.perf_counter() - start
    )  # PyTorch's time does not include importing JAX
    prepared: dict[int, Step] = {}
    seconds_a_step: dict[int, float] = {}

    def run(number: int, count: int) -> float:
        start = time.perf_counter()
        begun: object = None
        for _ in range(count):
            begun = prepared[number]()
        if implementation == OURS:
            import jax

            jax.block_until_ready(begun)
        elif on_gpu():
            torch.cuda.synchronize()
        seconds = time.perf_counter() - start
        seconds_a_step[number] = seconds / count
        return seconds

    def most_bytes() -> int:
        if not on_gpu():
            return 0
        if implementation != OURS:
            return torch.cuda.max_memory_allocated()
        import jax

        return (jax.local_devices()[0].memory_stats() or {}).get("peak_bytes_in_use", 0)

    def prepare(number: int) -> None:
        prepared[number] = cases[number].implementations[implementation]()
        run(number, 1)

    prepare(int(first[0]) if first else 0)
    print("ready", others, file=answers)
    for line in sys.stdin:
        if line.strip() == "memory":
            print(most_bytes(), file=answers)
            continue
        number, count = map(int, line.split())
        if number not in prepared:
            prepare(number)
        # An untimed step, because caches become cold while the other implementations run. A long step warms them
        # itself.
        if seconds_a_step[number] < LONG_STEP_SECONDS:
            run(number, 1)
        print(run(number, count), file=answers)


if __name__ == "__main__":
    main(own_output())
