"""Restarts a program with huge pages and a malloc that keeps its memory.

XLA on CPU allocates the temporary arrays of each step with malloc. By default glibc returns large blocks to the system
when they are freed, so every step has page faults for all of them, in pages of 4 KiB. With the settings below glibc
keeps freed memory, in pages of 2 MiB; docs/benchmarks.md has the speedup. glibc reads its settings only when a program
starts, so the program replaces itself by a new process with these settings.

`python -m train`, `train.evaluate` and `train.lr_find` call `start` first. The process then keeps its peak memory until
it ends. Worker processes inherit the settings.
`JAXNLP_HUGE_PAGES=0` in the environment turns this off. GLIBC_TUNABLES that the user has set are not changed.
"""

import os
import platform
import sys
from collections.abc import Mapping
from pathlib import Path

from jaxnlp.cli.closed_pipes import end_on_closed_pipe
from jaxnlp.cli.messages import say_that_jax_loads, show_plain_warnings
from train.recipes import print_overview_if_asked

TYPED = "JAXNLP_TYPED"
"""The environment variable in which `jaxnlp train` passes the program's name as it was typed."""
_typed = os.environ.pop(TYPED, None)  # so that programs which this one starts do not take its name
SWITCH = "JAXNLP_HUGE_PAGES"
STARTED = "JAXNLP_STARTED"
_NEVER = 1 << 34
KEEP = (
    f"glibc.malloc.mmap_threshold={_NEVER}"  # no separate mapping for a large block, which is unmapped when freed
    f":glibc.malloc.trim_threshold={_NEVER}"  # no memory is returned to the system
    ":glibc.malloc.arena_max=1"  # one heap: those of other threads are too small for XLA's arrays
    f":glibc.malloc.top_pad={1 << 28}"  # the heap grows by 256 MiB at a time; pages are used when written to
)
TUNABLES = f"glibc.malloc.hugetlb=1:{KEEP}"
"""KEEP with transparent huge pages."""
OLDEST_GLIBC = (2, 35)
"""Older versions do not support huge pages, and their threshold is at most 32 MiB: they unmap larger blocks."""
TRANSPARENT_HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def tunables_for(environ: Mapping[str, str], libc: tuple[str, str], huge_pages: str) -> str | None:
    """The GLIBC_TUNABLES to restart the process with; None = do not restart.

    Args:
      environ: the environment of the process.
      libc: name and version of the C library.
      huge_pages: content of `TRANSPARENT_HUGE_PAGES`; "" when the file does not exist.
    """
    name, version = libc
    if environ.get(SWITCH) == "0" or name != "glibc" or "GLIBC_TUNABLES" in environ:
        return None
    if tuple(int(part) for part in version.split(".")[:2] if part.isdigit()) < OLDEST_GLIBC:
        return None
    return KEEP if "[never]" in huge_pages or not huge_pages else TUNABLES


def use_huge_pages(started: float) -> None:
    """Restarts this program with huge pages and a malloc that keeps its memory, unless it already has both.

    Call it first, before slow imports.

    Args:
      started: `time.time()` when the program started; the environment passes it to the new process.
    """
    try:
        huge_pages = TRANSPARENT_HUGE_PAGES.read_text()
    except OSError:  # not Linux, or a kernel without huge pages
        huge_pages = ""
    tunables = tunables_for(os.environ, platform.libc_ver(), huge_pages)
    if tunables is not None:
        environ = os.environ | {"GLIBC_TUNABLES": tunables, STARTED: str(started)}
        if _typed is not None:
            environ[TYPED] = _typed
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environ)


def start_time(now: float) -> float:
    """When the user started the program: `now`, or an earlier time when `use_huge_pages` has restarted it."""
    return float(os.environ.pop(STARTED, now))


def program_name(module: str) -> str:
    """The program as it was typed: `jaxnlp train`, or `python -m` and the module."""
    return _typed or f"python -m {module}"


def start(
    module: str, *, started: float, recipes: bool = False, huge_pages: bool = True, results: bool = False
) -> None:
    """Starts a program: restarts it with huge pages, prints the overview where it is asked for, or else a first line.

    From here on the program ends silently on a closed pipe, and shows warnings as plain lines.

    Call it first, before slow imports.

    Args:
      module: the program's module.
      started: `time.time()` when the program started.
      recipes: whether the first argument is a recipe: without one, the recipes are listed, and the program ends.
      huge_pages: whether the program is restarted with them.
      results: whether the program prints results: its first line then goes to standard error.
    """
    end_on_closed_pipe()
    show_plain_warnings()  # before the imports, with which absl would set the format of all messages
    if huge_pages:
        use_huge_pages(started)
    arguments = sys.argv[1:]
    if recipes:
        print_overview_if_asked(arguments, program_name(module))
    say_that_jax_loads(arguments, sys.stderr if results else sys.stdout)
