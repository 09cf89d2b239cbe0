"""Atomic file writes."""

import errno
import os
from pathlib import Path


def write_file(path: Path, content: bytes) -> None:
    """Writes a file atomically, and creates its folders. Raises: OSError."""
    if (
        path.exists() and not path.is_file()
    ):  # a folder, which gives an error with its name; or a pipe, which cannot be replaced
        path.write_bytes(content)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error  # not with the name of the temporary file
    finally:
        temporary.unlink(missing_ok=True)


def require_place(path: Path | None) -> None:
    """Checks before long work that a file can be written there later. Raises: OSError naming the path; None passes."""
    if path is None or (path.exists() and not path.is_dir()):
        return
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    folder = next(parent for parent in (path.parent, *path.parent.parents) if parent.exists())
    if not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
    if not os.access(folder, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))
