"""Several processes on this machine, which talk over the loopback interface, train as one."""

import dataclasses
import re
import signal
import socket
import threading

import jax
import numpy as np
import pytest

from jaxnlp.saving.checkpoint_reading import DamagedCheckpointError, checkpoint_steps, read_record
from jaxnlp.saving.serialization import ConfigError
from tests.run_folders import rows
from tests.train.run import process_helpers
from tests.train.run.process_helpers import Run, assert_same_losses, free_port, losses
from train.run.folder import SECTIONS_FILE
from train.run.processes import (
    ADDRESS,
    PROCESS,
    PROCESSES,
    ProcessOptions,
    by_all,
    connected,
    of_process_0,
    wait_for_all,
)

IDS = np.arange(3)
SECONDS_TO_END = 60  # after another process has died, or hangs

compiled_once, text = process_helpers.compiled_once, process_helpers.text
one_process, joined = process_helpers.one_process, process_helpers.joined


def samples(folder):
    """The texts that the model wrote at each evaluation."""
    return [line for line in (folder / SECTIONS_FILE).read_text().splitlines() if "paragraphs" in line]


@pytest.mark.thorough
def test_two_processes_train_as_one_and_one_of_them_speaks(text, one_process, tmp_path):
    run = Run(tmp_path / "run", text, 2, 2, "--parallel", "fsdp")
    statuses, outputs = run.wait()
    assert statuses == [0, 0], outputs
    assert_same_losses(run.folder, losses(one_process))
    assert samples(run.folder) == samples(one_process)
    assert samples(run.folder)
    assert "mesh data=4: each device has " in outputs[0]
    assert "last checkpoint  step 12 of 12" in outputs[0]
    assert "step 12" not in outputs[1]
    assert "checkpoint" not in outputs[1]


@pytest.mark.thorough
def test_four_processes_that_are_killed_continue_as_one_process_would(text, one_process, tmp_path):
    options = ["--parallel", "fsdp", "--mesh", "data=2,model=2"]
    run = Run(tmp_path / "run", text, 4, 1, *options)
    run.wait_for_checkpoint(3)
    run.kill()
    again = Run(run.folder, text, 4, 1, *options)
    statuses, outputs = again.wait()
    assert statuses == [0] * 4, outputs
    assert "continuing from step" in outputs[0]
    assert_same_losses(run.folder, losses(one_process))


@pytest.mark.thorough
def test_processes_that_are_killed_continue_to_the_bits_of_processes_that_are_not(text, tmp_path):
    """Also if one of them cannot read its part of the newest checkpoint: then all go back to the one before."""
    # Wide enough for files with the arrays of each process; smaller ones share a file.

    def start(folder):
        return Run(folder, text, 2, 2, "--parallel", "fsdp", width=64)

    straight, killed = start(tmp_path / "straight"), start(tmp_path / "killed")
    killed.wait_for_checkpoint(6)
    killed.kill()
    newest = checkpoint_steps(killed.folder)[-1]
    for file in (killed.folder / "checkpoints" / str(newest)).glob("*/ocdbt.process_1/d/*"):
        file.write_bytes(b"")
    assert straight.wait()[0] == [0, 0]
    statuses, outputs = start(killed.folder).wait()
    assert statuses == [0, 0], outputs
    assert f"the checkpoint of step {newest} is damaged" in outputs[0]
    assert f"continuing from step {newest - 3}" in outputs[0]
    assert rows(killed.folder) == rows(straight.folder)
    found, expected = (read_record(run.folder, 12) for run in (killed, straight))
    assert dataclasses.replace(found, train_seconds=0) == dataclasses.replace(expected, train_seconds=0)
    assert found.items["params"]  # with a checksum of each array


@pytest.mark.thorough
@pytest.mark.parametrize(("number", "victim"), [(signal.SIGKILL, 0), (signal.SIGSTOP, 1)])
def test_a_process_that_dies_or_hangs_is_named_and_the_other_ends(number, victim, text, tmp_path):
    run = Run(tmp_path / "run", text, 2, 1, "--total-steps", "100000", "--evaluate-every-steps", "100000")
    run.wait_for_checkpoint(3)
    run.processes[victim].send_signal(number)
    other = run.processes[1 - victim]
    output, _ = other.communicate(timeout=SECONDS_TO_END)
    run.kill()
    assert other.returncode not in (0, None)
    silent = rf"process {victim} \(.*, pid {run.processes[victim].pid}\) has given no sign of life"
    # JAX calls process 0 the leader, and misses it at once.
    assert re.search(silent, output) or (victim == 0 and "the leader (usually slice 0 task 0)" in output), output


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
    assert "continuing from step" in outputs[0]
    assert_same_losses(run.folder, losses(one_process))


@pytest.mark.thorough
@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_to_one_process_saves_and_stops_all_after_the_same_step(number, status, text, tmp_path):
    run = Run(tmp_path / "run", text, 2, 1, "--total-steps", "2000", "--evaluate-every-steps", "1000")
    run.wait_for_checkpoint(3)
    run.processes[1].send_signal(number)  # it passes SIGINT on as SIGTERM
    statuses, outputs = run.wait()
    assert statuses == [143, status], outputs
    last = checkpoint_steps(run.folder)[-1]
    assert f"stopped by SIGTERM at step {last}; saved; repeat the command to resume" in outputs[0]


def test_options_go_before_the_environment(joined, monkeypatch):
    for name, value in ((ADDRESS, "a:1"), (PROCESSES, "3"), (PROCESS, "0")):
        monkeypatch.setenv(name, value)
    with connected(ProcessOptions(distributed=True)):
        assert joined == [("a:1", 3, 0)]
    with connected(ProcessOptions(distributed=True, coordinator="b:2", num_processes=2)):
        assert joined[1:] == ["left", ("b:2", 2, 0)]


def test_after_an_error_the_others_are_left_only_when_python_ends(joined):
    """To leave is to wait for the others: the error could not be printed before."""
    options = ProcessOptions(distributed=True, coordinator="a:1", num_processes=3, process_id=0)
    with pytest.raises(RuntimeError, match="of this process"), connected(options):
        raise RuntimeError("of this process")
    assert joined == [("a:1", 3, 0)]


def test_process_0_says_whom_it_waits_for_and_that_it_cannot_listen(joined, monkeypatch, capsys):
    options = ProcessOptions(distributed=True, coordinator="a:1", num_processes=3, process_id=0)
    with connected(options):
        assert capsys.readouterr().err == "process 0 waits at a:1 for 2 other processes, for at most 120 s\n"

    def refuse(*_, **__):
        raise jax.errors.JaxRuntimeError("Failed to start RPC server")

    monkeypatch.setattr(jax.distributed, "initialize", refuse)
    message = "process 0 of 3 cannot join the others at a:1: Failed to start RPC server"
    with pytest.raises(ConfigError, match=message), connected(options):
        pass


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("different", "message"),
    [
        (["--seed", "7"], "error: process 1 has another seed than process 0"),
        (["--parallel", "fsdp"], "error: process 1 has another --parallel than process 0"),
        (["--workdir", "another"], "process 1 does not see this folder; give a --workdir"),
        (["--data.path", "none.txt"], "process 1 (HOST) ended with an error: the text file none.txt does not exist"),
    ],
)
def test_processes_that_differ_end_with_the_difference(different, message, text, tmp_path):
    run = Run(tmp_path / "run", text, 2, 1, of_process_1=different)
    statuses, outputs = run.wait()
    assert 0 not in statuses
    found = [re.sub(r"\(.*?, pid \d+\)", "(HOST)", output) for output in outputs]
    assert any(message in output for output in found), outputs
    assert not checkpoint_steps(run.folder)


def test_a_coordinator_that_comes_later_is_found(joined):
    port, servers = free_port(), []
    threading.Timer(0.7, lambda: servers.append(socket.create_server(("127.0.0.1", port)))).start()
    options = ProcessOptions(distributed=True, coordinator=f"127.0.0.1:{port}", num_processes=2, process_id=1)
    with connected(options, seconds=60):
        assert joined == [(f"127.0.0.1:{port}", 2, 1)]
    servers[0].close()


def test_a_checkpoint_that_another_process_refuses_is_refused_here_too(monkeypatch):
    """This is process 0 of three; process 2 refuses."""
    monkeypatch.setattr(jax, "process_count", lambda: 3)
    others = np.array([False, False, True])
    monkeypatch.setattr("jax.experimental.multihost_utils.process_allgather", lambda mine: others | (IDS == 0) & mine)
    with pytest.raises(DamagedCheckpointError, match="process 2 refused it"):
        by_all(lambda: 1, DamagedCheckpointError)
    others[2] = False
    assert by_all(lambda: 1, DamagedCheckpointError) == 1

    def refuse():
        raise DamagedCheckpointError("mine")

    with pytest.raises(DamagedCheckpointError, match="mine"):
        by_all(refuse, DamagedCheckpointError)


def test_process_0_says_which_steps_there_are(monkeypatch):
    """This is another process, which sees other steps."""
    assert of_process_0([6, 3]) == [6, 3]
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    for said in ([9, 6, 3], [], [6]):
        answers = iter([len(said), said])
        monkeypatch.setattr(
            "jax.experimental.multihost_utils.broadcast_one_to_all",
            lambda mine, answers=answers: np.asarray(next(answers), np.int32).reshape(mine.shape),
        )
        assert of_process_0([6, 3]) == said


def test_without_the_option_a_process_trains_by_itself():
    with connected(ProcessOptions()):
        wait_for_all("this test")  # returns at once
        assert jax.process_count() == 1


@pytest.mark.parametrize(
    ("options", "environment", "message"),
    [
        ({}, {ADDRESS: "host"}, "the coordinator's address has the form HOST:PORT, got 'host'"),
        ({"coordinator": "host:port"}, {}, "the coordinator's address has the form HOST:PORT, got 'host:port'"),
        ({"coordinator": "1234"}, {}, "the coordinator's address has the form HOST:PORT, got '1234'"),
        ({"coordinator": "host:" + "9" * 5_000}, {}, "the coordinator's address has the form HOST:PORT"),
        ({"coordinator": "host:99999"}, {}, "the coordinator's address has the form HOST:PORT, got 'host:99999'"),
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


@pytest.mark.thorough
def test_a_coordinator_that_does_not_answer_is_named_after_a_bounded_wait():
    address = f"127.0.0.1:{free_port()}"
    options = ProcessOptions(distributed=True, coordinator=address, num_processes=2, process_id=1)
    with pytest.raises(ConfigError) as caught, connected(options, seconds=1):
        pass
    assert f"no coordinator answers at {address} after 1 s (Connection refused); start process 0 there" in str(
        caught.value
    )


@pytest.fixture
def slurm(monkeypatch):
    """Process 1 of 2 of a job whose process 0 was not started."""
    for name in (ADDRESS, PROCESSES, PROCESS):
        monkeypatch.delenv(name, raising=False)
    job = {"JOB_ID": "1", "STEP_NODELIST": "localhost", "NTASKS": "2", "PROCID": "1", "LOCALID": "1"}
    for name, value in job.items():
        monkeypatch.setenv(f"SLURM_{name}", value)


@pytest.mark.thorough
def test_a_coordinator_that_jax_finds_in_the_cluster_and_that_does_not_answer_is_named_too(slurm):
    with pytest.raises(ConfigError) as caught, connected(ProcessOptions(distributed=True), seconds=1):
        pass
    assert re.match(r"no coordinator answers at localhost:\d+ after 1 s", str(caught.value))


def test_a_cluster_that_jax_cannot_read_is_refused_with_the_reason(slurm, monkeypatch):
    monkeypatch.setenv("SLURM_NTASKS", "two")
    with pytest.raises(ConfigError) as caught, connected(ProcessOptions(distributed=True), seconds=1):
        pass
    assert "JAX cannot find the other processes (invalid literal for int() with base 10: 'two'); give" in str(
        caught.value
    )


def test_options_of_processes_need_distributed():
    with pytest.raises(ValueError, match=r"coordinator applies only to several processes, --distributed; set it to"):
        ProcessOptions(coordinator="host:1")
