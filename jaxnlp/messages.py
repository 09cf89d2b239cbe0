"""Messages of all programs: a first line, warnings as plain lines, and text wrapped to the terminal's width."""

import inspect
import logging
import os
import re
import shutil
import sys
import textwrap
import warnings
from collections.abc import Sequence
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


def show_plain_warnings() -> None:
    """Shows each warning as one line, `warning: ...`, without names of modules; also warnings of Python's `warnings`.

    Call it at the start of a program.
    """
    logging.basicConfig(level=logging.WARNING, handlers=[_PlainLines()])
    logging.getLogger("absl").setLevel(logging.ERROR)  # Orbax warns at each save without a validation loss
    warnings.showwarning = _show_warning


def reason(error: Exception) -> str:
    """An error's message without Python's error number: `FILE: no such file or directory`."""
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{os.fspath(error.filename)}: {error.strerror[:1].lower()}{error.strerror[1:]}"
    return str(error)


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

    def emit(self, record: logging.LogRecord) -> None:
        print(f"{record.levelname.lower()}: {record.getMessage()}", file=sys.stderr)


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    print(f"warning: {message}", file=sys.stderr)
