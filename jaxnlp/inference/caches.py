"""Cache directories of downloads and compiled programs."""

import contextlib
import functools
import logging
import os
from pathlib import Path
from typing import Any

from jaxnlp.saving.atomic_files import write_file

_logger = logging.getLogger(__name__)


def cache_folder() -> Path:
    """The cache directory: $JAXNLP_CACHE, else $XDG_CACHE_HOME/jaxnlp, else ~/.cache/jaxnlp."""
    if own := os.environ.get("JAXNLP_CACHE"):
        return Path(own).expanduser()
    shared = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification ignores paths that are not absolute.
    return (Path(shared) if os.path.isabs(shared) else Path.home() / ".cache") / "jaxnlp"


MOST_BYTES = 4 * 2**30
"""Maximum size of the folder of compiled programs; a process removes the least recently used ones at its start."""


def use_compilation_cache(folder: Path | None = None) -> None:
    """Keeps compiled programs on disk, so that the next process does not compile them again.

    JAX's own settings have priority: its folder stays, and nothing is kept when `jax_enable_compilation_cache` is False
    (in the environment: JAX_ENABLE_COMPILATION_CACHE=0).

    Args:
      folder: the cache; None = JAX's, or a folder in `cache_folder`, of at most `MOST_BYTES`, which is only read if it
        cannot be written.
    """
    import jax  # imported here, because data pipelines import this module but do not need jax
    from jax.experimental.compilation_cache import compilation_cache

    settings: Any = jax.config
    if not settings.jax_enable_compilation_cache:
        return
    chosen = folder or os.environ.get("JAX_COMPILATION_CACHE_DIR") or settings.jax_compilation_cache_dir
    if chosen is None:
        chosen = cache_folder() / "compiled"
        try:
            chosen.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            _logger.info("compiled programs are not kept: %s", error)
            return
        with contextlib.suppress(OSError):  # a folder that cannot be written is still read
            _remove_oldest(chosen, MOST_BYTES)
    chosen = Path(chosen).expanduser()
    if str(chosen) != settings.jax_compilation_cache_dir:
        settings.update("jax_compilation_cache_dir", str(chosen))
        compilation_cache.reset_cache()  # JAX decides at its first compilation whether it has a cache
    _replace_unreadable()
    settings.update("jax_persistent_cache_min_compile_time_secs", 0.0)


@functools.cache
def _replace_unreadable() -> None:
    """Lets JAX replace an unreadable file, such as one that a full disk has truncated.

    JAX keeps a file that exists, so each later start would compile the program again.
    """
    try:
        from jax._src.lru_cache import LRUCache  # JAX has no public name for its files
    except ImportError:  # another version of JAX: then such a program is compiled again at each start
        return

    files: Any = LRUCache
    keep = files.put

    def put(cache: Any, key: str, program: bytes) -> None:
        file = cache.path / f"{key}-cache"
        if file.exists():  # it could not be read, or another process has just written it
            write_file(file, program)
        else:
            keep(cache, key, program)

    files.put = put


def _remove_oldest(folder: Path, most_bytes: int) -> None:
    """Removes the least recently used files until the others have at most this size.

    On GPUs, XLA keeps its measurements of kernels in a folder inside.
    """
    files = []
    for file in filter(Path.is_file, folder.rglob("*")):
        with contextlib.suppress(FileNotFoundError):  # another process removed it
            status = file.stat()
            files.append((max(status.st_atime, status.st_mtime), status.st_size, file))
    total = sum(size for _, size, _ in files)
    for _, size, file in sorted(files):
        if total <= most_bytes:
            return
        file.unlink(missing_ok=True)
        total -= size
