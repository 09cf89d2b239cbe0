"""Compilation ahead of use: a run's programs are compiled at its start, in parallel threads.

JAX traces in the calling thread, since traces depend on its settings. XLA compiles in other threads, without Python's
lock. A later call of the jitted function finds its program in JAX's cache.
"""

import logging
import os
import time
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from types import TracebackType
from typing import Any

import jax

from train.logs.compile_time import BACKGROUND, waiting_for_programs

_logger = logging.getLogger(__name__)


class AheadCompiler:
    """Compiles programs in threads; a context manager, which drops waiting programs at its end.

    With several processes there is one thread, so that all compile in the same order.
    """

    def __init__(self) -> None:
        workers = 1 if jax.process_count() > 1 else os.cpu_count()
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix=BACKGROUND)
        self._started: float | None = None
        self._ended = 0.0
        self._compiling: dict[Hashable, Future[Any]] = {}
        self._known: dict[Hashable, Future[Any]] = {}
        self._reported = False

    def __enter__(self) -> "AheadCompiler":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(cancel_futures=True)

    def compile(self, function: Any, *arguments: Any, **options: Any) -> Future[Any]:
        """Traces a jitted function for arguments of these shapes, and compiles it in a thread; once for equal shapes.

        Returns: a future of the executable.
        """
        key = _key(function, (arguments, options))
        if self._started is None:
            self._started = time.perf_counter()
        if key not in self._known:
            program = self._pool.submit(self._compile, function.lower(*arguments, **options))
            self._compiling[key] = self._known[key] = program
        return self._known[key]

    def called(
        self, function: Callable[..., Any], *, before_waiting: Callable[[], None] = lambda: None
    ) -> Callable[..., Any]:
        """The jitted function; a call waits for its program if that is being compiled, after `before_waiting()`."""

        def call(*arguments: Any) -> Any:
            program = self._compiling.get(_key(function, (arguments, {}))) if self._compiling else None
            if program is not None:
                if not program.done():
                    before_waiting()
                with waiting_for_programs():
                    program.result()
            return function(*arguments)

        return call

    def wait(self) -> None:
        """Waits until no program is being compiled. A compiler's error is raised where its program is called."""
        if self.compiling():
            with waiting_for_programs():
                wait(self._compiling.values())

    def compiling(self) -> bool:
        """Whether a program is being compiled; also for other threads."""
        return not all(program.done() for program in list(self._compiling.values()))

    def report(self) -> list[str]:
        """A line with number and time, once all programs so far are compiled; [] otherwise."""
        if not self._compiling or self.compiling():
            return []
        # An error stays until its program is called.
        self._compiling = {key: program for key, program in self._compiling.items() if program.exception()}
        if self._reported or self._started is None:
            return []
        self._reported, count = True, len(self._known)
        return [f"compiled {count} program{'s' if count > 1 else ''} in {self._ended - self._started:.0f} s"]

    def _compile(self, lowered: Any) -> Any:
        try:
            executable = lowered.compile()
        except Exception as error:
            reason = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
            _logger.warning("a program cannot be compiled, and the run will stop where it needs it: %s", reason)
            raise
        self._ended = time.perf_counter()
        return executable


def _key(function: Any, arguments: Any) -> Hashable:
    """The function, the shapes of its arrays, and its other arguments. Types and placements are always the same."""
    leaves, structure = jax.tree.flatten(arguments)
    return id(function), tuple(x.shape if hasattr(x, "dtype") else x for x in leaves), structure
