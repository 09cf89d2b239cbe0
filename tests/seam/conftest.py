"""Each family is trained twice: in this process without interruption, and by a command that is killed and repeated.

Both compile in the same way. The settings of the test process, such as fewer optimisations of XLA, would otherwise
change the last bits of one of them.
"""

import contextlib
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


@contextlib.contextmanager
def user_promotion():
    """JAX's defaults: the families are written as users write."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


@pytest.fixture(autouse=True)
def standard_promotion():
    with user_promotion():
        yield


@pytest.fixture(autouse=True)
def trusted(monkeypatch):
    """Commands read runs of the families."""
    monkeypatch.setenv("JAXNLP_TRUST", "tests")


@pytest.fixture(scope="session", params=FAMILIES, ids=str)
def family(request):
    """A family's module."""
    return FAMILIES[request.param]


@pytest.fixture(scope="session")
def finished(family, tmp_path_factory):
    """The folder of a run that was not interrupted. Training needs no trust, since it reads no saved class."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    with pytest.MonkeyPatch.context() as patch, user_promotion():
        patch.delenv("JAXNLP_TRUST", raising=False)
        patch.setattr("train.loop.write_report", lambda _: None)  # the test of the report writes it
        fit(family.get_config(), folder, console=Console(quiet=True))
    return folder


FLOAT32 = """
import runpy
from jaxnlp.ops import matrix_products
matrix_products.cpu_multiplies_bfloat16 = lambda: False
"""
"""As in the processes of tests, see `tests.conftest.float32_products`."""


@pytest.fixture(scope="session")
def killed(family, compiled_programs, tmp_path_factory):
    """The folder of a run that was killed after its first checkpoint, and then continued."""
    folder = tmp_path_factory.mktemp("killed") / "run"
    command = [
        sys.executable,
        "-c",
        f"{FLOAT32}runpy.run_module({family.__name__!r}, run_name='__main__')",
        str(folder),
    ]
    environment = {name: value for name, value in os.environ.items() if name != "JAXNLP_TRUST"} | {
        "JAX_PLATFORMS": "cpu",
        "JAX_DISABLE_MOST_OPTIMIZATIONS": str(jax.config.values["jax_disable_most_optimizations"]),
        "JAX_COMPILATION_CACHE_DIR": str(compiled_programs),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 300
    while not (folder / "checkpoints" / "10").is_dir() and process.poll() is None:
        assert time.monotonic() < deadline, "no checkpoint within five minutes"
        time.sleep(0.02)
    process.kill()
    assert process.wait() == -signal.SIGKILL, "the run ended before it was killed"
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    return folder
