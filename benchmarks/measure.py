"""Times the implementations of a case in alternation."""

import contextlib
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
from jaxnlp.cli.restart import SWITCH, TUNABLES
from jaxnlp.ops.matrix_products import operand_dtype
from train.run.machine import commit, short_commit


class ImplementationError(RuntimeError):
    """An implementation could not be prepared, or its process ended.

    Attributes:
      implementation: its name.
    """

    def __init__(self, implementation: str, message: str):
        super().__init__(message)
        self.implementation = implementation


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
        self.implementation = implementation
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
            raise ImplementationError(self.implementation, error[-1] if error else f"ended with status {status}")
        return line

    def _answer(self, request: str) -> float:
        """The number that the process prints for a line. Raises: ImplementationError when there is none."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # the process has ended, which its output says
            self._process.stdin.write(f"{request}\n")
            self._process.stdin.flush()
        line = self._line()
        try:
            return float(line)
        except ValueError as error:
            message = f"expected a number for {request!r}, got {line.strip()!r}"
            raise ImplementationError(self.implementation, message) from error

    def run(self, number: int, steps: int) -> float:
        """Mean seconds of a step, over `steps` steps of the module's case of this number.

        Raises: ImplementationError when the process ends.
        """
        return self._answer(f"{number} {steps}") / steps

    def memory(self) -> int:
        """The most bytes of the GPU that were in use; 0 on a CPU. Raises: ImplementationError when the process ends."""
        return int(self._answer("memory"))

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()
        self._errors.close()


def measure_against(cases: Sequence[Case], checkout: Path, *, limit_gflops: float | None) -> Iterator[dict[str, Any]]:
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
    other = str(checkout) if found is None else short_commit(found)
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


def measure(cases: Sequence[Case], *, limit_gflops: float | None) -> Iterator[dict[str, Any]]:
    """One row per opponent and case, in the order of the cases.

    Ours has huge pages, as in `jaxnlp train`; each opponent runs with and without, and the faster counts.

    Args:
      cases: all cases of one module.
      limit_gflops: the machine's rate of matrix products, for `fraction_of_limit`; None = it is not known.

    Returns:
      Rows with case, variant, opponent, ours_seconds, theirs_seconds (medians over the rounds), ratio (theirs / ours),
      spread (interquartile range of the rounds' ratios over their median), and for ours tokens_per_second, gflops and
      fraction_of_limit. An implementation that cannot run has None for numbers, and the reason as `error`; it is
      started again for the next case. On a GPU there are also ours_gigabytes and theirs_gigabytes (the most so far in
      the process), and ours_cold_first_step_seconds and theirs_cold_first_step_seconds: from the start of the process,
      with empty caches of compiled programs, to the end of its first step of the module's first case.
    """
    unsupported = dict[str, ImplementationError]()
    if "eager_bf16" in cases[0].implementations and operand_dtype("auto") is None:
        reason = "this CPU has no bfloat16 instructions, and PyTorch would take minutes a step"
        unsupported["eager_bf16"] = ImplementationError("eager_bf16", reason)
    with _Processes(cases[0].name) as processes:
        for number, case in enumerate(cases):
            errors, turns = dict(unsupported), dict[str, Turns]()
            while not turns and OURS not in errors:
                try:
                    for implementation in case.implementations:
                        if implementation not in errors:
                            processes.start(implementation, number)
                    turns = _turns(processes.workers, number, case)
                    extra = processes.on_gpu() if on_gpu() else {}
                except ImplementationError as error:
                    errors[error.implementation], turns = error, {}
                    processes.stop(error.implementation)
            for implementation in case.implementations:
                if implementation == OURS:
                    continue
                row: dict[str, Any] = {"case": case.name, "variant": case.variant, "opponent": implementation}
                if OURS in errors:
                    yield row | not_measured(f"{OURS}: {errors[OURS]}")
                elif implementation in errors:
                    yield row | not_measured(errors[implementation])
                else:
                    row |= compared(
                        turns[OURS],
                        turns[implementation],
                        tokens=case.tokens,
                        flop=case.flop,
                        limit_gflops=limit_gflops,
                    )
                    both = {"ours": OURS, "theirs": implementation}.items()
                    yield row | {f"{who}_{fact}": by[name] for fact, by in extra.items() for who, name in both}


class _Processes:
    """The processes of a module's implementations; a context manager, which ends them.

    Attributes:
      workers: by implementation, and whether it has huge pages.
    """

    def __init__(self, module: str):
        self.workers: dict[tuple[str, bool], Worker] = {}
        self._module = module
        self._first_steps: dict[str, float] = {}
        self._caches = contextlib.ExitStack()

    def start(self, implementation: str, number: int) -> None:
        """Starts an implementation with the case of this number, if it does not run.

        Raises: ImplementationError when it ends before it is ready.
        """
        both = implementation != OURS and not on_gpu()
        keys = [(implementation, pages) for pages in ((False, True) if both else (True,))]
        if keys[0] in self.workers:
            return
        environ = dict[str, str]()
        if on_gpu():
            empty = self._caches.enter_context(tempfile.TemporaryDirectory())
            environ = {"JAX_COMPILATION_CACHE_DIR": f"{empty}/jax", "TORCHINDUCTOR_CACHE_DIR": f"{empty}/torch"}
        for key in keys:
            self.workers[key] = Worker(self._module, implementation, number=number, huge_pages=key[1], environ=environ)
        seconds = min(self.workers[key].wait_until_ready() for key in keys)
        self._first_steps.setdefault(implementation, seconds)

    def stop(self, implementation: str) -> None:
        """Ends the processes of an implementation."""
        for key in [key for key in self.workers if key[0] == implementation]:
            self.workers.pop(key).close()

    def on_gpu(self) -> dict[str, dict[str, float]]:
        """Further facts on a GPU, by implementation. Raises: ImplementationError when a process has ended."""
        gigabytes = {implementation: worker.memory() / 1e9 for (implementation, _), worker in self.workers.items()}
        return {"gigabytes": gigabytes, "cold_first_step_seconds": self._first_steps}

    def __enter__(self) -> "_Processes":
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.workers.values():
            worker.close()
        self._caches.close()


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
"""Keys of a row's numbers; all None if an implementation could not run."""


def not_measured(error: ImplementationError | str) -> dict[str, Any]:
    """The numbers of a row of which an implementation could not run, and the reason."""
    return dict.fromkeys(NUMBERS) | {"error": str(error)}


def compared(
    ours: list[float],
    theirs: list[float],
    *,
    tokens: int | None = None,
    flop: float | None = None,
    limit_gflops: float | None = None,
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
        "fraction_of_limit": None if gflops is None or limit_gflops is None else gflops / limit_gflops,
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
