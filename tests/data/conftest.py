"""What tests of files on disk share."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest


@pytest.fixture
def files_below() -> Callable[[Path], list[Path]]:
    """Lists all files at any depth."""
    return lambda folder: sorted(path for path in folder.rglob("*") if not path.is_dir())


@pytest.fixture
def run_and_die(root: Path) -> Callable[..., None]:
    """Runs a script that must end itself with status 9."""

    def run(script: str, *arguments: object) -> None:
        finished = subprocess.run([sys.executable, "-c", script, *map(str, arguments)], cwd=root, capture_output=True)
        assert finished.returncode == 9, finished.stderr.decode()

    return run


@pytest.fixture
def umask() -> Callable[[int], AbstractContextManager[None]]:
    """Sets the process's umask for a while."""

    @contextlib.contextmanager
    def changed(mask: int) -> Iterator[None]:
        before = os.umask(mask)
        try:
            yield
        finally:
            os.umask(before)

    return changed
