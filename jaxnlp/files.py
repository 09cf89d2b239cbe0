"""Files that are whole or not there."""

import os
from pathlib import Path


def write_file(path: Path, content: bytes) -> None:
    """Writes a file, whole or not at all, and the folders that it lies in. Raises: OSError."""
    if path.exists() and not path.is_file():  # a folder, which the error names; or a pipe, which nothing can replace
        path.write_bytes(content)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
