"""Gives a process huge pages for its memory, and lets it keep them.

XLA on CPU asks malloc for the temporary arrays of each step anew. By default glibc gives large blocks back to the
system at once, so that each step faults them in again, 4 KiB at a time. With the settings below it keeps what it once
had, in pages of 2 MiB: docs/benchmarks.md has what that is worth. glibc reads them once, before the program starts;
therefore the program is started a second time, in place of itself.

`python -m train`, `train.evaluate` and `train.lr_find` begin with it. The process then holds its largest need of memory
to its end; worker processes inherit the settings.
`JAXNLP_HUGE_PAGES=0` in the environment turns all of this off. A user's own GLIBC_TUNABLES stays as it is.
"""

import os
import platform
import sys
from collections.abc import Mapping
from pathlib import Path

SWITCH = "JAXNLP_HUGE_PAGES"
STARTED = "JAXNLP_STARTED"
_NEVER = 1 << 34
KEEP = (
    f"glibc.malloc.mmap_threshold={_NEVER}"  # no block of its own mapping, which would be unmapped when freed
    f":glibc.malloc.trim_threshold={_NEVER}"  # no memory given back
    ":glibc.malloc.arena_max=1"  # one heap: other threads' are too small for XLA's arrays, which would be mapped
    f":glibc.malloc.top_pad={1 << 28}"  # grown by 256 MiB at a time, which hold nothing until they are written to
)
TUNABLES = f"glibc.malloc.hugetlb=1:{KEEP}"
"""With transparent huge pages."""
OLDEST_GLIBC = (2, 35)
"""Older ones know no huge pages, and refuse a threshold above 32 MiB: they would map and unmap all larger blocks."""
TRANSPARENT_HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def tunables_for(environ: Mapping[str, str], libc: tuple[str, str], huge_pages: str) -> str | None:
    """The GLIBC_TUNABLES that the process should have and has not; None when it should stay as it is.

    Args:
      environ: its environment.
      libc: name and version of its C library.
      huge_pages: the kernel's setting of transparent huge pages, as in its file; "" when there is none.
    """
    name, version = libc
    if environ.get(SWITCH) == "0" or name != "glibc" or "GLIBC_TUNABLES" in environ:
        return None
    if tuple(int(part) for part in version.split(".")[:2] if part.isdigit()) < OLDEST_GLIBC:
        return None
    return KEEP if "[never]" in huge_pages or not huge_pages else TUNABLES


def use_huge_pages(started: float) -> None:
    """Starts this program again with huge pages for malloc and a malloc that keeps them, unless it has that already.

    To be called first, before anything that takes time to import.

    Args:
      started: `time.time()` when the program started; the new one finds it in the environment.
    """
    try:
        huge_pages = TRANSPARENT_HUGE_PAGES.read_text()
    except OSError:  # no Linux, or a kernel without them
        huge_pages = ""
    tunables = tunables_for(os.environ, platform.libc_ver(), huge_pages)
    if tunables is not None:
        environ = os.environ | {"GLIBC_TUNABLES": tunables, STARTED: str(started)}
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environ)


def start_time(now: float) -> float:
    """When the user started the program: `now`, or earlier when it has been started again since."""
    return float(os.environ.pop(STARTED, now))
