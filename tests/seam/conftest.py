"""Each family is trained twice by the same command: without interruption, and killed and resumed.

Both runs have processes of their own. The settings of the test process, such as fewer optimisations of XLA, would
change the last bits of one of them.
"""

import os
import signal
import subprocess
import sys
import time

import jax
import pytest

from tests.seam import images, tagger

FAMILIES = {"tagger": tagger, "images": images}


@pytest.fixture(autouse=True)
def standard_promotion():
    """The families are written as users write: with JAX's defaults."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


@pytest.fixture(autouse=True)
def trusted(monkeypatch):
    """Commands read runs of the families."""
    monkeypatch.setenv("JAXNLP_TRUST", "tests")


@pytest.fixture(scope="session", params=FAMILIES, ids=str)
def family(request):
    """A family's module."""
    return FAMILIES[request.param]


def program(family, folder):
    """The command that trains a family, and its environment: training needs no trust, since it reads no saved class."""
    environment = {name: value for name, value in os.environ.items() if name != "JAXNLP_TRUST"}
    return [sys.executable, "-m", family.__name__, str(folder)], environment | {"JAX_PLATFORMS": "cpu"}


@pytest.fixture(scope="session")
def finished(family, tmp_path_factory):
    """The folder of a run that was not interrupted."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    command, environment = program(family, folder)
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    return folder


@pytest.fixture(scope="session")
def killed(family, tmp_path_factory):
    """The folder of a run that was killed after its first checkpoint, and then continued."""
    folder = tmp_path_factory.mktemp("killed") / "run"
    command, environment = program(family, folder)
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 300
    while not (folder / "checkpoints" / "10").is_dir() and process.poll() is None:
        assert time.monotonic() < deadline, "no checkpoint within five minutes"
        time.sleep(0.02)
    process.kill()
    assert process.wait() == -signal.SIGKILL, "the run ended before it was killed"
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    return folder
