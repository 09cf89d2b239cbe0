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
from collections.abc import Callable, Sequence
from pathlib import Path

from jaxnlp.cli.interrupts import no_interrupt_is_lost

OURS = ("jaxnlp", "data", "train", "configs", "benchmarks", "__main__")
"""Packages whose notes are shown; other packages show only warnings."""
SILENT = ("absl", "asyncio")
"""Packages whose messages are hidden: Orbax warns at each save without a validation loss, and raises its errors
anyway."""


def program_name() -> str:
    """The name of the program: the installed command, or the module."""
    return "jaxnlp" if Path(sys.argv[0]).stem == "jaxnlp" else "python -m jaxnlp"


def say_that_jax_loads(arguments: Sequence[str]) -> None:
    """Prints a first line to standard error, because importing JAX takes seconds; none for help, or if JAX is
    imported."""
    help_only = not arguments or any(word.partition("=")[0] in ("-h", "--help") for word in arguments)
    if "jax" not in sys.modules and not help_only:
        print("loading JAX", file=sys.stderr, flush=True)


def show_plain_warnings() -> None:
    """Shows each message once on standard error, as `note: ...` (level INFO), `warning: ...` or `error: ...`, without
    module names; also Python's `warnings`.

    Call it at the start of a program, never in the library, where logging belongs to the user.
    """
    logging.basicConfig(level=logging.WARNING, handlers=[_PlainLines()])
    for name in OURS:
        logging.getLogger(name).setLevel(logging.INFO)
    warnings.showwarning = _show_warning


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    """Prints a warning of Python's `warnings`; one line for all programs that JAX's cache cannot read or write."""
    cached = r"Error (reading|writing) persistent compilation cache entry for '[^']*': (.*?)(: ['\"].*)?"
    if found := re.fullmatch(cached, str(message), re.DOTALL):
        folder = sys.modules["jax"].config.jax_compilation_cache_dir
        line = {
            "reading": "%s: compiled programs that cannot be read are compiled again: %s",
            "writing": "%s: compiled programs are not kept, and the next start compiles them again: %s",
        }[found[1]]
        logging.getLogger(__name__).warning(line, folder, found[2])
    else:
        print(f"warning: {message}", file=sys.stderr)


class _PlainLines(logging.Handler):
    """Prints to the current sys.stderr, because a progress bar may replace it."""

    def __init__(self) -> None:
        super().__init__()
        self._shown: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        kind = "note" if record.levelno < logging.WARNING else record.levelname.lower()
        line = f"{kind}: {record.getMessage()}"
        if line not in self._shown and record.name.partition(".")[0] not in SILENT:
            self._shown.add(line)
            print(line, file=sys.stderr)


def exit_status(program: Callable[[], int | None], *, bare_errors: bool = False) -> int:
    """Runs a program, with one line for each warning and error. Returns: its exit status.

    Args:
      program: returns the exit status; None is 0.
      bare_errors: whether a plain ValueError is a user's error. Otherwise it is a bug, and its traceback is printed.
    """
    _open_closed_streams()
    show_plain_warnings()
    try:
        try:
            with no_interrupt_is_lost():
                return program() or 0
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:
        print()
        return 130
    except BrokenPipeError:  # the reader of the output, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if not is_shown_as_line(error, bare_errors=bare_errors):
            raise
        print(f"error: {reason(error)}", file=sys.stderr)
        return getattr(error, "exit_status", 2)


def _open_closed_streams() -> None:
    """Discards output to a stream that the shell has closed, as `>&-` does: Python has None for it."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115  # until the process ends


def is_shown_as_line(error: Exception, *, bare_errors: bool = False) -> bool:
    """Whether an error is the user's, of a file, or a lack of memory, and not a bug. Args: bare_errors: as
    `exit_status`."""
    if isinstance(error, ValueError | OSError):
        return bare_errors or type(error) is not ValueError
    return is_out_of_memory(error)


def is_out_of_memory(error: Exception) -> bool:
    """Whether NumPy, Python, XLA, a thread's stack or a library lacks memory.

    JAX's class is not imported here: it takes seconds.
    """
    name, text = type(error).__name__, str(error)
    no_thread = isinstance(error, RuntimeError) and text.startswith("can't start new thread")
    no_library = isinstance(error, ImportError) and "failed to map segment" in text
    of_xla = name in ("JaxRuntimeError", "XlaRuntimeError") and "RESOURCE_EXHAUSTED" in text
    return isinstance(error, MemoryError) or no_thread or no_library or of_xla


def is_full(error: BaseException) -> bool:
    """Whether an error says that a disk or a quota is full."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


REMEDIES = {
    errno.ENAMETOOLONG: "; give a shorter name",
    errno.EACCES: "; change its permissions, or give another path",
    errno.EROFS: "; give a path on another disk",
}
"""What the user can do about an error of a path."""


def reason(error: Exception) -> str:
    """An error's message without its errno: `FILE: no such file or directory`. It also says what to do about a full
    disk, too little memory, the errors of `REMEDIES`, and a character that the locale lacks."""
    if isinstance(error, UnicodeEncodeError) and error.encoding != "utf-8":
        character = error.object[error.start : error.start + 1]
        return f"the locale has the encoding {error.encoding}, without {character!a}; set PYTHONUTF8=1 for UTF-8"
    if is_out_of_memory(error):
        what = str(error).partition("\n")[0].rstrip(". ")
        return f"not enough memory{f': {what}' * bool(what)}; make the batches, the inputs or the model smaller"
    if not isinstance(error, OSError) or not error.strerror:
        return _shortened(str(error))
    unnamed = "standard output: " if is_full(error) else ""  # errors of our files name them, see atomic_files
    file = unnamed if error.filename is None else f"{os.fspath(error.filename)}: "
    remedy = REMEDIES.get(error.errno or 0, "")
    if is_full(error):
        remedy = f"{_free(error)}; free some space there, and repeat the command"
    return _shortened(f"{file}{error.strerror[:1].lower()}{error.strerror[1:]}{remedy}")


def _free(error: OSError) -> str:
    """Free space on the disk of an error's file, for the message; "" = unknown, or the message has it."""
    if error.filename is None or "free" in str(error):
        return ""
    folder = Path(os.fsdecode(error.filename)).parent
    with contextlib.suppress(OSError):
        return f": {shutil.disk_usage(folder).free / 1e6:.2f} MB are free in {folder}"
    return ""


def _shortened(text: str) -> str:
    """A message with words of 1,000 or more characters truncated."""
    return re.sub(r"\S{1000,}", lambda word: f"{word[0][:200]}... ({len(word[0]):,} characters)", text)


def summary_of(documented: object) -> str:
    """The first sentence of the docstring of a config or a class, in one line; "" = it has no docstring."""
    paragraph = " ".join(inspect.cleandoc(documented.__doc__ or "").partition("\n\n")[0].split())
    return re.split(r"(?<=[.?!]) (?=[A-Z])", paragraph, maxsplit=1)[0]


def wrapped(text: str, indent: str = "") -> str:
    """A text wrapped to the terminal's width; usage lines and paragraphs with indented lines stay unchanged."""
    columns = max(shutil.get_terminal_size().columns, 40) - len(indent)
    kept = re.compile(r"^(usage|\s)", re.MULTILINE)
    parts = inspect.cleandoc(text).split("\n\n")
    shown = (part if kept.search(part) else textwrap.fill(" ".join(part.split()), columns) for part in parts)
    return textwrap.indent("\n\n".join(shown), indent)


def table(rows: Sequence[tuple[str, str]]) -> str:
    """Names and their meanings in two columns, wrapped to the terminal's width."""
    names = max(len(name) for name, _ in rows)
    columns, indent = max(shutil.get_terminal_size().columns, names + 30), " " * (names + 4)
    lines = (textwrap.fill(text, columns, initial_indent=indent, subsequent_indent=indent) for _, text in rows)
    return "\n".join(f"  {name:<{names}}  {line.lstrip()}" for (name, _), line in zip(rows, lines, strict=True))
