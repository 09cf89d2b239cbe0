"""Times the implementations of a case in alternation."""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.case import OURS, Case, on_gpu
from jaxnlp.cli.malloc import SWITCH, TUNABLES
from jaxnlp.ops.matrix_products import operand_dtype
from train.run.machine import commit


class ImplementationError(RuntimeError):
    """An implementation could not be prepared."""


class Worker:
    """The process of an implementation, which begins with the module's case of this number."""

    def __init__(
        self,
        module: str,
        implementation: str,
        *,
        number: int = 0,
        huge_pages: bool,
        environ: Mapping[str, str] | None = None,
        checkout: Path | None = None,
    ):
        inherited = {name: value for name, value in os.environ.items() if name != "GLIBC_TUNABLES"}
        pages = {"GLIBC_TUNABLES": TUNABLES} if huge_pages else {}
        first = [str(number)] if number else []  # which workers of older checkouts do not read
        # Not a pipe: an unread pipe could fill up and stop the process. `close` closes the file.
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._started = time.perf_counter()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.worker", module, implementation, *first],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            cwd=checkout,  # Python imports modules from here first
            env=inherited | {SWITCH: "0"} | pages | dict(environ or {}),
        )

    def wait_until_ready(self) -> float:
        """Seconds from the process's start to the end of its first step, without imports that only others need.

        Call it at once if the time matters. Raises: ImplementationError when the process ends before.
        """
        line = self._line()
        while line.split()[:1] != ["ready"]:  # libraries may print
            line = self._line()
        return time.perf_counter() - self._started - float(line.split()[1])

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            status = self._process.wait()
            self._errors.seek(0)
            error = self._errors.read().strip().splitlines()
            raise ImplementationError(error[-1] if error else f"ended with status {status}")
        return line

    def run(self, number: int, steps: int) -> float:
        """Mean seconds of a step, over `steps` steps of the module's case of this number."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{number} {steps}\n")
        self._process.stdin.flush()
        return float(self._line()) / steps

    def memory(self) -> int:
        """The most bytes of the GPU that were in use; 0 on a CPU."""
        assert self._process.stdin is not None
        self._process.stdin.write("memory\n")
        self._process.stdin.flush()
        return int(self._line())

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()
        self._errors.close()


def measure_against(cases: Sequence[Case], checkout: Path, *, limit_gflops: float) -> Iterator[dict[str, Any]]:
    """One row per case: our implementation and that of another checkout of the project, in alternation.

    Args:
      cases: all cases of one module, which the other checkout must have too.
      checkout: root of the other checkout; its `benchmarks` prepares its implementation, and this interpreter runs it.
      limit_gflops: as in `measure`.

    Returns:
      Rows as those of `measure`, with the checkout's commit as the opponent.

    Raises:
      ImplementationError: the other checkout's implementation cannot be prepared.
    """
    found = commit(checkout)
    other = str(checkout) if found is None else found[:12] + found[40:]  # with "-dirty"
    workers = {(OURS, True): Worker(cases[0].name, OURS, huge_pages=True)}
    try:
        workers[other, True] = Worker(cases[0].name, OURS, huge_pages=True, checkout=checkout)
        for worker in workers.values():
            worker.wait_until_ready()
        for number, case in enumerate(cases):
            turns = _turns(workers, number, case)
            row: dict[str, Any] = {"case": case.name, "variant": case.variant, "opponent": other}
            yield row | compared(
                turns[OURS], turns[other], tokens=case.tokens, flop=case.flop, limit_gflops=limit_gflops
            )
    finally:
        for worker in workers.values():
            worker.close()


PILOTS, LONGEST_PILOT_SECONDS = 3, 4.0
"""Pilot turns with and without huge pages, of which the faster counts: maximum number, and maximum total seconds."""

LEAST_TURNS, LONGEST_TURNS_SECONDS = 3, 60.0
"""Minimum number of turns, and seconds after which there are no more."""

Turns = list[float]
"""Seconds per step, of each turn of an implementation."""


def measure(cases: Sequence[Case], *, limit_gflops: float) -> Iterator[dict[str, Any]]:
    """One row per opponent and case, in the order of the cases.

    Ours has huge pages, as in `jaxnlp train`; each opponent runs with and without, and the faster counts.

    Args:
      cases: all cases of one module.
      limit_gflops: the machine's rate of matrix products, for `fraction_of_limit`.

    Returns:
      Rows with case, variant, opponent, ours_seconds, theirs_seconds (medians over the rounds), ratio (theirs / ours),
      spread (interquartile range of the rounds' ratios over their median), and for ours tokens_per_second, gflops and
      fraction_of_limit. An opponent that cannot run has None for numbers, and the reason as `error`. On a GPU there
      are also ours_gigabytes, theirs_gigabytes (the most so far in the process of all cases), ours_first_step_seconds
      and theirs_first_step_seconds.
    """
    workers: dict[tuple[str, bool], Worker] = {}
    errors: dict[str, ImplementationError] = {}
    first_steps: dict[str, float] = {}
    try:
        for implementation in cases[0].implementations:
            if implementation == "eager_bf16" and operand_dtype("auto") is None:
                errors[implementation] = ImplementationError(
                    "this CPU has no bfloat16 instructions, and PyTorch would take minutes a step"
                )
                continue
            both = implementation != OURS and not on_gpu()
            keys = [(implementation, pages) for pages in ((False, True) if both else (True,))]
            workers |= {key: Worker(cases[0].name, implementation, huge_pages=key[1]) for key in keys}
            try:
                first_steps[implementation] = min(workers[key].wait_until_ready() for key in keys)
            except ImplementationError as error:
                if implementation == OURS:
                    raise
                errors[implementation] = error
                for key in keys:
                    workers.pop(key).close()
        for number, case in enumerate(cases):
            turns = _turns(workers, number, case)
            for implementation in case.implementations:
                if implementation == OURS:
                    continue
                row: dict[str, Any] = {"case": case.name, "variant": case.variant, "opponent": implementation}
                if implementation in errors:
                    yield row | not_measured(errors[implementation])
                else:
                    row |= compared(
                        turns[OURS],
                        turns[implementation],
                        tokens=case.tokens,
                        flop=case.flop,
                        limit_gflops=limit_gflops,
                    )
                    yield row | (_on_gpu(workers, first_steps, implementation) if on_gpu() else {})
    finally:
        for worker in workers.values():
            worker.close()


def _on_gpu(
    workers: Mapping[tuple[str, bool], Worker], first_steps: Mapping[str, float], opponent: str
) -> dict[str, float]:
    """What else is of interest on a GPU: gigabytes, and seconds from the start of the process to its first step."""
    return {
        "ours_gigabytes": workers[OURS, True].memory() / 1e9,
        "theirs_gigabytes": workers[opponent, True].memory() / 1e9,
        "ours_first_step_seconds": first_steps[OURS],
        "theirs_first_step_seconds": first_steps[opponent],
    }


def _turns(workers: Mapping[tuple[str, bool], Worker], number: int, case: Case) -> dict[str, Turns]:
    """The turns of each implementation in alternation; pilots choose the faster of an opponent's two processes."""
    # Time on a GPU is dear, and its noise is small.
    share, most = (0.3, 5) if on_gpu() else (1.0, case.turns)
    steps, pilots = {}, {}
    for key, worker in workers.items():
        first = worker.run(number, 1)
        steps[key] = case.steps_a_turn or max(1, round(case.turn_seconds * share / first))
        pilots[key] = [first] if steps[key] == 1 else []
    for _ in range(PILOTS):
        for key, worker in workers.items():
            if sum(pilots[key]) * steps[key] < LONGEST_PILOT_SECONDS:
                pilots[key].append(worker.run(number, steps[key]))
    faster = {key[0]: key for key in sorted(workers, key=lambda key: min(pilots[key]), reverse=True)}
    turns: dict[str, Turns] = {implementation: [] for implementation in faster}
    started = time.perf_counter()
    for done in range(min(case.turns, most)):
        if done >= LEAST_TURNS and time.perf_counter() - started > LONGEST_TURNS_SECONDS:
            break
        for implementation, key in faster.items():
            turns[implementation].append(workers[key].run(number, steps[key]))
    return turns


NUMBERS = (
    "ours_seconds",
    "theirs_seconds",
    "ratio",
    "spread",
    "tokens_per_second",
    "gflops",
    "fraction_of_limit",
)
"""Keys of a row's numbers; all None if an opponent could not run."""


def not_measured(error: ImplementationError) -> dict[str, Any]:
    """The numbers of a row whose opponent could not run, and the reason."""
    return dict.fromkeys(NUMBERS) | {"error": str(error)}


def compared(
    ours: list[float],
    theirs: list[float],
    *,
    tokens: int | None = None,
    flop: float | None = None,
    limit_gflops: float = 0.0,
) -> dict[str, float | None]:
    """The numbers of a row, from each round's seconds of both implementations."""
    ratios = [t / o for t, o in zip(theirs, ours, strict=True)]
    lower, _, upper = statistics.quantiles(ratios, n=4)
    seconds = statistics.median(ours)
    gflops = None if flop is None else flop / seconds / 1e9
    return {
        "ours_seconds": seconds,
        "theirs_seconds": statistics.median(theirs),
        "ratio": statistics.median(ratios),
        "spread": (upper - lower) / statistics.median(ratios),
        "tokens_per_second": None if tokens is None else tokens / seconds,
        "gflops": gflops,
        "fraction_of_limit": None if gflops is None else gflops / limit_gflops,
    }


def matmul_limits(size: int = 2048) -> dict[str, float]:
    """Rates of products of two matrices [size, size] in GFLOP/s, by type of operands: the better of PyTorch and XLA.

    PyTorch is skipped if it takes ten times as long at 256^3, as for bfloat16 on a CPU without instructions.
    """
    import jax
    import jax.numpy as jnp
    import torch

    from jaxnlp.ops.matrix_products import product

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    multiply = jax.jit(lambda x: product(x, x, "nd,df->nf"))

    def of_torch(name: str, size: int) -> Callable[[], Any]:
        x = torch.ones(size, size, dtype=getattr(torch, name))
        return lambda: x @ x

    def of_xla(name: str, size: int) -> Callable[[], Any]:
        x = jnp.ones((size, size), name)
        return lambda: jax.block_until_ready(multiply(x))

    def best_seconds(run: Callable[[], Any]) -> float:
        run()  # compiles
        seconds = []
        for _ in range(10):
            start = time.perf_counter()
            run()
            seconds.append(time.perf_counter() - start)
        return min(seconds)

    limits = {}
    for name in ("float32", "bfloat16"):
        small = {make: best_seconds(make(name, 256)) for make in (of_xla, of_torch)}
        fast = [make for make in small if small[make] < 10 * small[of_xla]]
        limits[name] = 2 * size**3 / min(best_seconds(make(name, size)) for make in fast) / 1e9
    return limits
