"""Several processes on this machine, which talk over the loopback interface, train as one."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

from jaxnlp.saving.checkpoints import checkpoint_steps
from jaxnlp.saving.serialization import ConfigError
from train.run.processes import ADDRESS, PROCESS, PROCESSES, ProcessOptions, connected, wait_for_all

ROOT = Path(__file__).resolve().parents[3]
SECONDS = 300
"""At most, on a busy machine."""


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Run:
    """Processes that train a small GPT on a text.

    Args:
      folder: of the run.
      text: the file to train on.
      processes: their number; 1 = without --distributed.
      devices: of each process.
      options: further ones of `jaxnlp train`.
    """

    def __init__(self, folder, text, processes, devices, *options):
        self.folder = folder
        shape = {"width": 32, "num-layers": 2, "num-heads": 2, "attention-dropout-rate": 0.1}
        every = {"total": 12, "evaluate-every": 6, "checkpoint-every": 3, "log-every": 1}
        command = [sys.executable, "-m", "jaxnlp", "train", "gpt_text_file", "--data.path", str(text)]
        command += ["--workdir", str(folder), "--optimizer.epsilon", "1e-3", "--model.compute.matmul-dtype", "None"]
        command += [word for name, value in shape.items() for word in (f"--model.{name}", str(value))]
        command += [word for name, value in every.items() for word in (f"--{name}-steps", str(value))]
        flags = f"--xla_force_host_platform_device_count={devices}"
        environment = os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags, "PYTHONPATH": str(ROOT)}
        address = f"127.0.0.1:{free_port()}"
        self.processes = []
        for number in range(processes):
            described = {ADDRESS: address, PROCESSES: str(processes), PROCESS: str(number)} if processes > 1 else {}
            self.processes.append(
                subprocess.Popen(
                    [*command, *options, *(["--distributed"] if processes > 1 else [])],
                    env=environment | described,
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
    """The losses of one process with four devices."""
    run = Run(tmp_path_factory.mktemp("one") / "run", text, 1, 4)
    assert run.wait()[0] == [0]
    return losses(run.folder)


def losses(folder):
    rows = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return {(row["split"], row["step"]): row["loss"] for row in rows}


def assert_same_losses(folder, expected):
    found = losses(folder)
    assert found.keys() == expected.keys()
    for at, loss in expected.items():
        # Sums over processes are in another order than sums over the devices of one.
        np.testing.assert_allclose(found[at], loss, rtol=1e-6, err_msg=str(at))


def test_two_processes_train_as_one_and_one_of_them_speaks(text, one_process, tmp_path):
    run = Run(tmp_path / "run", text, 2, 2, "--parallel", "fsdp")
    statuses, outputs = run.wait()
    assert statuses == [0, 0], outputs
    assert_same_losses(run.folder, one_process)
    assert "mesh data=4: each device has " in outputs[0]
    assert "last checkpoint  step 12 of 12" in outputs[0]
    assert not {"step 12", "checkpoint"} & {word for word in ("step 12", "checkpoint") if word in outputs[1]}


@pytest.mark.thorough
@pytest.mark.parametrize("options", [[], ["--parallel", "fsdp", "--mesh", "data=2,model=2"]], ids=["jit", "both axes"])
def test_four_processes_that_are_killed_continue_as_one_process_would(options, text, one_process, tmp_path):
    run = Run(tmp_path / "run", text, 4, 1, *options)
    run.wait_for_checkpoint(3)
    run.kill()
    assert run.folder.exists()
    again = Run(run.folder, text, 4, 1, *options)
    statuses, outputs = again.wait()
    assert statuses == [0] * 4, outputs
    assert "continuing from step" in outputs[0]
    assert_same_losses(run.folder, one_process)


@pytest.mark.thorough
def test_a_run_continues_with_another_number_of_processes(text, one_process, tmp_path):
    run = Run(tmp_path / "run", text, 2, 2, "--parallel", "fsdp")
    run.wait_for_checkpoint(3)
    run.kill()
    for processes, devices in [(1, 2), (4, 1)]:
        run = Run(run.folder, text, processes, devices)
        if processes == 1:
            run.wait_for_checkpoint(6)
            run.kill()
    statuses, outputs = run.wait()
    assert statuses == [0] * 4, outputs
    assert_same_losses(run.folder, one_process)


@pytest.mark.thorough
def test_a_signal_to_one_process_saves_and_stops_all_after_the_same_step(text, tmp_path):
    run = Run(tmp_path / "run", text, 2, 1, "--total-steps", "2000", "--evaluate-every-steps", "1000")
    run.wait_for_checkpoint(3)
    run.processes[1].send_signal(signal.SIGTERM)
    statuses, outputs = run.wait()
    assert statuses == [143, 143], outputs
    last = checkpoint_steps(run.folder)[-1]
    assert f"stopped by SIGTERM at step {last}; saved; repeat the command to resume" in outputs[0]


def test_without_the_option_a_process_trains_by_itself():
    with connected(ProcessOptions()):
        wait_for_all("this test")  # returns at once
        assert jax.process_count() == 1


@pytest.mark.parametrize(
    ("options", "environment", "message"),
    [
        ({}, {ADDRESS: "host"}, "the coordinator's address has the form HOST:PORT, got 'host'"),
        ({"coordinator": "host:port"}, {}, "the coordinator's address has the form HOST:PORT, got 'host:port'"),
        ({"coordinator": "host:1"}, {PROCESSES: "two"}, "$JAX_NUM_PROCESSES must be a number, got 'two'"),
        ({"num_processes": 2, "process_id": 2}, {}, "numbered from 0, so process 2 of 2 does not exist"),
    ],
)
def test_processes_that_are_not_described_are_refused(options, environment, message, monkeypatch):
    for name in (ADDRESS, PROCESSES, PROCESS):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError) as caught, connected(ProcessOptions(distributed=True, **options)):
        pass
    assert message in str(caught.value)


def test_a_machine_that_is_no_part_of_a_cluster_is_told_how_to_describe_the_processes(text, tmp_path):
    environment = {name: value for name, value in os.environ.items() if name not in (ADDRESS, PROCESSES, PROCESS)}
    command = [sys.executable, "-m", "jaxnlp", "train", "gpt_text_file", "--data.path", str(text), "--distributed"]
    done = subprocess.run(command, env=environment | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert done.returncode == 2
    assert (
        "give --coordinator HOST:PORT --num-processes N --process-id I, or set JAX_COORDINATOR_ADDRESS, " in done.stderr
    )


def test_a_coordinator_that_does_not_answer_is_named_after_a_bounded_wait():
    address = f"127.0.0.1:{free_port()}"
    options = ProcessOptions(distributed=True, coordinator=address, num_processes=2, process_id=1)
    with pytest.raises(ConfigError) as caught, connected(options, seconds=1):
        pass
    assert f"no coordinator answers at {address} after 1 s (Connection refused); start process 0 there" in str(
        caught.value
    )


def test_options_of_processes_need_distributed():
    with pytest.raises(ValueError, match=r"coordinator applies only to several processes, --distributed; set it to"):
        ProcessOptions(coordinator="host:1")
