"""Messages of all programs: a first line, warnings as plain lines, and text wrapped to the terminal's width."""

import contextlib
import errno
import inspect
import logging
import os
import re
import shutil
import sys
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, TextIO


def say_that_jax_loads(arguments: Sequence[str], file: TextIO | None = None) -> None:
    """Prints a first line, because importing JAX takes seconds. Prints nothing for help, or if JAX is imported.

    Args:
      arguments: the command without the program's name.
      file: the file to print to; None = standard error.
    """
    if "jax" not in sys.modules and not asks_for_help(arguments):
        print("loading JAX", file=file or sys.stderr, flush=True)


def asks_for_help(arguments: Sequence[str]) -> bool:
    """Whether a command only prints help; a command without arguments does, too."""
    return not arguments or any(word.partition("=")[0] in ("-h", "--help", "--list") for word in arguments)


OURS = ("jaxnlp", "data", "train", "configs", "benchmarks", "__main__")
"""The packages whose notes are shown; of other packages only warnings are."""
SILENT = ("absl", "asyncio")
"""Packages whose messages are not shown: Orbax warns at each save without a validation loss, and its errors are also
raised."""


def show_plain_warnings() -> None:
    """Shows each logged message on standard error, once: `note: ...` (level INFO), `warning: ...` or `error: ...`,
    without names of modules; also warnings of Python's `warnings`.

    Call it at the start of a program, and not in the library: there, logging is the user's.
    """
    logging.basicConfig(level=logging.WARNING, handlers=[_PlainLines()])
    for name in OURS:
        logging.getLogger(name).setLevel(logging.INFO)
    warnings.showwarning = _show_warning


@contextlib.contextmanager
def logging_unchanged() -> Iterator[None]:
    """A context in which no library adds a handler to Python's root logger.

    absl, in which Orbax logs, adds one where there is none. A later `logging.basicConfig` of the user would then have
    no effect, and each warning would have a prefix, such as `WARNING:jaxnlp.runs:`.
    """
    root, stand_in = logging.getLogger(), logging.lastResort
    if root.handlers or stand_in is None:
        yield
        return
    root.addHandler(stand_in)
    try:
        yield
    finally:
        root.removeHandler(stand_in)


def is_full(error: BaseException) -> bool:
    """Whether an error says that a disk or a quota is full."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def reason(error: Exception) -> str:
    """An error's message without Python's error number: `FILE: no such file or directory`; on a full disk with what to
    do."""
    if not isinstance(error, OSError) or not error.strerror:
        return str(error)
    file = "" if error.filename is None else f"{os.fspath(error.filename)}: "
    remedy = "; free some space there, and repeat the command" if is_full(error) else ""
    return f"{file}{error.strerror[:1].lower()}{error.strerror[1:]}{remedy}"


def usage_text(text: str) -> str:
    """A help text without options, wrapped to the terminal's width; usage lines and paragraphs with indented lines stay
    unchanged."""
    return "\n\n".join(
        part if re.search("^(usage|  )", part, re.MULTILINE) else wrapped(part) for part in text.split("\n\n")
    )


def summary_of(documented: object) -> str:
    """The first sentence of the docstring of a config or a class, in one line; "" = it has no docstring."""
    paragraph = " ".join(inspect.cleandoc(documented.__doc__ or "").partition("\n\n")[0].split())
    return re.split(r"(?<=[.?!]) (?=[A-Z])", paragraph, maxsplit=1)[0]


def wrapped(text: str, indent: str = "") -> str:
    """A text wrapped to the terminal's width; paragraphs with indented lines stay unchanged."""
    columns = max(shutil.get_terminal_size().columns, 40)
    parts = []
    for part in inspect.cleandoc(text).split("\n\n"):
        if re.search(r"^\s", part, re.MULTILINE):
            parts.append(textwrap.indent(part, indent))
        else:
            parts.append(
                textwrap.fill(" ".join(part.split()), columns, initial_indent=indent, subsequent_indent=indent)
            )
    return "\n\n".join(parts)


def table(rows: Sequence[tuple[str, str]]) -> str:
    """Names and their meanings in two columns, wrapped to the terminal's width."""
    names = max(len(name) for name, _ in rows)
    lines = []
    for name, meaning in rows:
        first = f"  {name:<{names}}  "
        columns = max(shutil.get_terminal_size().columns, names + 30)
        lines.append(textwrap.fill(meaning, columns, initial_indent=first, subsequent_indent=" " * len(first)))
    return "\n".join(lines)


class _PlainLines(logging.Handler):
    """Prints to the current sys.stderr, because a progress bar may replace it."""

    def __init__(self) -> None:
        super().__init__()
        self._shown: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        package = record.name.partition(".")[0]
        if package in SILENT or record.levelno < (logging.INFO if package in OURS else logging.WARNING):
            return
        kind = "note" if record.levelno < logging.WARNING else record.levelname.lower()
        line = f"{kind}: {record.getMessage()}"
        if line not in self._shown:
            self._shown.add(line)
            print(line, file=sys.stderr)


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    print(f"warning: {message}", file=sys.stderr)
