"""What tests of files on disk share."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
import requests

from tests.network import CONTENT, PLAYS, Network


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


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Network:
    """A network without pages, an empty cache, and no folder of the user's."""
    monkeypatch.delenv("JAXNLP_DATA", raising=False)
    monkeypatch.setenv("JAXNLP_CACHE", str(tmp_path / "cache"))
    network = Network()
    monkeypatch.setattr(requests.adapters.HTTPAdapter, "send", lambda *args, **options: network.send(*args, **options))
    return network


@pytest.fixture
def online(network: Network) -> Network:
    """A network that serves `PLAYS`."""
    network.pages[PLAYS.url] = (200, {}, CONTENT)
    return network


@pytest.fixture
def own_folder(network: Network, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder of data sets that JAXNLP_DATA names."""
    monkeypatch.setenv("JAXNLP_DATA", str(tmp_path / "own"))
    (tmp_path / "own").mkdir()
    return tmp_path / "own"
