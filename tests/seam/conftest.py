"""Each family is trained once: without interruption in this process, and killed and resumed in others."""

import io
import os
import signal
import subprocess
import sys
import time

import jax
import pytest
from rich.console import Console

from tests.seam import images, tagger
from train.loop import fit

FAMILIES = {"tagger": tagger, "images": images}


@pytest.fixture(scope="session", autouse=True)
def standard_promotion():
    """The families are written as users write: with JAX's defaults."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


@pytest.fixture(scope="session", params=FAMILIES, ids=str)
def family(request):
    """A family's module."""
    return FAMILIES[request.param]


@pytest.fixture(scope="session")
def finished(family, tmp_path_factory):
    """The folder of a run that was not interrupted."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    fit(family.get_config(), folder, console=Console(file=io.StringIO()))
    return folder


@pytest.fixture(scope="session")
def killed(family, tmp_path_factory):
    """The folder of a run that was killed after its first checkpoint, and then continued."""
    folder = tmp_path_factory.mktemp("killed") / "run"
    command = [sys.executable, "-m", family.__name__, str(folder)]
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 300
    while not (folder / "checkpoints" / "10").is_dir() and process.poll() is None:
        assert time.monotonic() < deadline, "no checkpoint within five minutes"
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    return folder
