"""Programs end silently when the reader of their output, such as `head`, has closed the pipe."""

import atexit
import contextlib
import io
import os
import sys
from collections.abc import Iterator


def end_on_closed_pipe() -> None:
    """Lets the program end with status 0, without an error, at the first output to a closed pipe.

    Call it at the start of a program, before it prints. It changes nothing if standard output is not the process's own,
    as in tests.
    """
    stdout = sys.stdout
    if stdout is None or stdout is not sys.__stdout__ or not isinstance(stdout, io.TextIOWrapper):
        return
    ours = _Output(
        stdout.buffer,
        encoding=stdout.encoding,
        errors=stdout.errors,
        line_buffering=stdout.line_buffering,
        write_through=stdout.write_through,
    )
    sys.stdout = ours
    atexit.register(_flush_last, ours)


class _Output(io.TextIOWrapper):
    """Standard output; a write to a closed pipe ends the program. (Programs would report a BrokenPipeError as the error
    of a file.)"""

    def write(self, text: str) -> int:
        with _ending(self):
            return super().write(text)

    def flush(self) -> None:
        with _ending(self):
            super().flush()


@contextlib.contextmanager
def _ending(output: io.TextIOWrapper) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), output.fileno())  # what is still buffered goes there
        raise SystemExit(0) from None


def _flush_last(output: io.TextIOWrapper) -> None:
    """Writes what is buffered when the program ends. (Python would print an error.)"""
    with contextlib.suppress(SystemExit):
        output.flush()
