"""Programs end silently when the reader of their output, such as `head`, has closed the pipe."""

import atexit
import contextlib
import io
import os
import sys
from collections.abc import Iterator


class _Output(io.TextIOWrapper):
    """Standard output; a write to a closed pipe ends the program with status 0. (A BrokenPipeError would look like the
    error of a file.)"""

    def write(self, text: str) -> int:
        with self._ending():
            return super().write(text)

    def flush(self) -> None:
        with self._ending():
            super().flush()

    @contextlib.contextmanager
    def _ending(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())  # what is still buffered goes there
            raise SystemExit(0) from None


def end_on_closed_pipe() -> None:
    """Lets the program end silently at the first output to a closed pipe; call it before the program prints.

    It changes nothing if standard output is not the process's own, as in tests.
    """
    stdout = sys.stdout
    if stdout is not None and stdout is sys.__stdout__ and isinstance(stdout, io.TextIOWrapper):
        sys.stdout = _Output(stdout.buffer, stdout.encoding, stdout.errors, line_buffering=stdout.line_buffering)
        atexit.register(_flush, sys.stdout)  # otherwise Python prints an error


def _flush(output: _Output) -> None:
    with contextlib.suppress(SystemExit):
        output.flush()
