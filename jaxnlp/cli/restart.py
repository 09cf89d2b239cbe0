"""Restarts a program with UTF-8, huge pages and a malloc that keeps its memory: settings that only a start reads.

XLA on CPU allocates the temporary arrays of each step with malloc. By default glibc returns large blocks to the system
when they are freed, so every step has page faults for all of them, in pages of 4 KiB. With the settings below glibc
keeps freed memory, in pages of 2 MiB; docs/benchmarks.md has the speedup. The process keeps its peak memory until it
ends. Workers inherit the settings. `JAXNLP_HUGE_PAGES=0` in the environment turns this off. GLIBC_TUNABLES that the
user has set are not changed.
"""

import os
import platform
import sys
from collections.abc import Mapping
from pathlib import Path

SWITCH = "JAXNLP_HUGE_PAGES"
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
    """The GLIBC_TUNABLES to restart with; None = do not restart.

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


def restart(*, huge_pages: bool) -> None:
    """Restarts this program, before it imports JAX, if a setting is missing; otherwise does nothing.

    A process whose locale is ASCII, as with LC_ALL=C and PYTHONUTF8=0, gets Python's UTF-8 mode: without it, non-ASCII
    arguments, file names and output are errors.

    Args:
      huge_pages: also huge pages and a malloc that keeps its memory.
    """
    missing = {}
    if sys.getfilesystemencoding() == "ascii" and os.environ.get("PYTHONUTF8") != "1":
        missing["PYTHONUTF8"] = "1"
    # The file does not exist on a kernel without huge pages, or outside Linux.
    pages = TRANSPARENT_HUGE_PAGES.read_text() if TRANSPARENT_HUGE_PAGES.is_file() else ""
    if huge_pages and (tunables := tunables_for(os.environ, platform.libc_ver(), pages)) is not None:
        missing["GLIBC_TUNABLES"] = tunables
    if missing:
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], os.environ | missing)
