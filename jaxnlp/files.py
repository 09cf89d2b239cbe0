"""Atomic file writes."""

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
    finally:
        temporary.unlink(missing_ok=True)
