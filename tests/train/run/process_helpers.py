"""Runs of several processes on this machine, which talk over the loopback interface."""

import contextlib
import json
import os
import random
import socket
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

from jaxnlp.saving.checkpoint_reading import checkpoint_steps
from tests.xla_flags import QUICK
from train.run.processes import ADDRESS, PROCESS, PROCESSES

ROOT = Path(__file__).resolve().parents[3]
SECONDS = 300
"""At most, on a busy machine."""

QUICKLY = {
    "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
    "JAXNLP_HUGE_PAGES": "0",
    "XLA_FLAGS": QUICK,
}
"""Settings of all processes: a dozen steps take less time than XLA's optimisations and a restart with huge pages."""


@pytest.fixture(scope="module", autouse=True)
def compiled_once(compiled_programs):
    """Processes that are started later, or continue a run, read the programs of earlier ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAX_COMPILATION_CACHE_DIR", str(compiled_programs))
        yield


FIRST_PORT = 2**16 - 2**12
"""Under SLURM and Open MPI the coordinator has one of the last 4,096 ports: the job's number chooses which."""


def free_port():
    """One that is also possible under SLURM and Open MPI."""
    while True:
        port = random.randrange(FIRST_PORT, 2**16)
        with contextlib.suppress(OSError), socket.socket() as listener:
            listener.bind(("127.0.0.1", port))
            return port


def by_address(port, processes, number):
    """The environment that describes a process without a cluster."""
    return {ADDRESS: f"127.0.0.1:{port}", PROCESSES: str(processes), PROCESS: str(number)}


class Run:
    """Processes that train a small GPT on a text.

    Args:
      folder: of the run.
      text: the file to train on.
      processes: their number; 1 = without --distributed.
      devices: of each process.
      options: further ones of `jaxnlp train`.
      width: of the model.
      of_process_1: options of this process alone.
      launcher: a command that starts the processes, and describes them to JAX.
      described: the environment that describes process I of N to JAX, of a free port, N and I.
    """

    def __init__(
        self,
        folder,
        text,
        processes,
        devices,
        *options,
        launcher=(),
        described=by_address,
        width=16,
        of_process_1=(),
    ):
        self.folder = folder
        shape = {"width": width, "num-layers": 1, "num-heads": 2, "context-length": 32, "attention-dropout-rate": 0.1}
        every = {"total": 12, "evaluate-every": 6, "checkpoint-every": 3, "log-every": 1}
        command = [sys.executable, "-m", "jaxnlp", "train", "gpt_text_file", "--data.path", str(text)]
        given = {"data.sequence-length": 32, "workdir": folder, "optimizer.epsilon": 1e-3, "task.sample-tokens": 20}
        given["model.compute.matmul-dtype"] = None
        command += [word for name, value in given.items() for word in (f"--{name}", str(value))]
        command += [word for name, value in shape.items() for word in (f"--model.{name}", str(value))]
        command += [word for name, value in every.items() for word in (f"--{name}-steps", str(value))]
        flags = f"--xla_force_host_platform_device_count={devices} {QUICKLY['XLA_FLAGS']}"
        environment = os.environ | QUICKLY | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags, "PYTHONPATH": str(ROOT)}
        port = free_port()
        self.processes = []
        if launcher:
            command, processes = [*launcher, *command, "--distributed"], 1
        for number in range(processes):
            self.processes.append(
                subprocess.Popen(
                    [
                        *command,
                        *options,
                        *(["--distributed"] if processes > 1 else []),
                        *(of_process_1 if number == 1 else []),
                    ],
                    env=environment | (described(port, processes, number) if processes > 1 else {}),
                    cwd=ROOT,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
            )

    def wait(self):
        """The exit statuses and the outputs."""
        outputs = [process.communicate(timeout=SECONDS)[0] for process in self.processes]
        return [process.returncode for process in self.processes], outputs

    def wait_for_checkpoint(self, step):
        end = time.monotonic() + SECONDS
        while max(checkpoint_steps(self.folder), default=0) < step:
            assert time.monotonic() < end
            assert all(process.poll() is None for process in self.processes)
            time.sleep(0.05)

    def kill(self):
        for process in self.processes:
            process.kill()
            process.communicate()


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.txt"
    words = np.random.default_rng(0).choice(
        ["the", "old", "man", "and", "a", "sea", "fish", "boat", "sails", "blue", "water"], size=4000
    )
    path.write_text("\n".join(" ".join(line) for line in words.reshape(-1, 8)))
    return path


@pytest.fixture(scope="module")
def one_process(text, tmp_path_factory):
    """The folder of one process with four devices."""
    run = Run(tmp_path_factory.mktemp("one") / "run", text, 1, 4)
    assert run.wait()[0] == [0]
    return run.folder


def losses(folder):
    lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return {(row["split"], row["step"]): row["loss"] for row in lines}


def assert_same_losses(folder, expected):
    found = losses(folder)
    assert found.keys() == expected.keys()
    for at, loss in expected.items():
        # Sums over processes are in another order than sums over the devices of one.
        np.testing.assert_allclose(found[at], loss, rtol=1e-6, err_msg=str(at))


@pytest.fixture
def joined(monkeypatch):
    """What JAX is asked to join; it joins nothing, since this process has its devices already."""
    asked = []
    monkeypatch.setattr(jax.distributed, "initialize", lambda *given, **_: asked.append(given))
    monkeypatch.setattr(jax.distributed, "shutdown", lambda: asked.append("left"))
    monkeypatch.setattr("train.run.processes.watching", contextlib.nullcontext)
    for name in (ADDRESS, PROCESSES, PROCESS):
        monkeypatch.delenv(name, raising=False)
    return asked
