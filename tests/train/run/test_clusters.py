"""The clusters that need no option: JAX knows them by the environment of their processes."""

import os
import shutil
import subprocess
import sys

import pytest

from tests.train.run import process_helpers
from tests.train.run.process_helpers import FIRST_PORT, ROOT, Run, assert_same_losses, losses
from train.run.processes import ADDRESS, PROCESS, PROCESSES, ProcessOptions, connected

compiled_once, text = process_helpers.compiled_once, process_helpers.text
one_process, joined = process_helpers.one_process, process_helpers.joined


def by_slurm(port, processes, number, hosts="127.0.0.1"):
    """What `srun` tells a process: https://slurm.schedmd.com/srun.html, "Output environment variables"."""
    described = {"JOB_ID": port - FIRST_PORT, "STEP_NODELIST": hosts, "STEP_NUM_NODES": 1}
    described |= {"NTASKS": processes, "PROCID": number, "LOCALID": number}
    return {f"SLURM_{name}": str(value) for name, value in described.items()}


def by_open_mpi(port, processes, number, hosts="127.0.0.1"):
    """What `mpirun` of Open MPI 4 tells a process; it numbers jobs in steps of 4,096."""
    described = {"SIZE": processes, "RANK": number, "LOCAL_RANK": number}
    job = f"{(port - FIRST_PORT) * 4096}.0;tcp://{hosts}:34911"
    return {
        "OMPI_MCA_orte_hnp_uri": job,
        **{f"OMPI_COMM_WORLD_{name}": str(value) for name, value in described.items()},
    }


@pytest.mark.parametrize(
    ("describe", "hosts", "first"),
    [
        (by_slurm, "node[003-004,007]", "node003"),
        (by_slurm, "alpha,beta", "alpha"),
        (by_open_mpi, "10.0.0.1,10.1.0.1", "10.0.0.1"),
    ],
)
def test_a_process_of_a_cluster_joins_the_first_host_without_further_options(
    describe, hosts, first, joined, monkeypatch
):
    for name, value in describe(FIRST_PORT + 7, 4, 0, hosts).items():
        monkeypatch.setenv(name, value)
    with connected(ProcessOptions(distributed=True)):
        assert joined == [(f"{first}:{FIRST_PORT + 7}", 4, 0)]


@pytest.mark.thorough
@pytest.mark.parametrize("describe", [by_slurm, by_open_mpi])
def test_two_processes_with_the_environment_of_a_cluster_train_as_one(describe, text, one_process, tmp_path):
    run = Run(tmp_path / "run", text, 2, 2, described=describe)
    statuses, outputs = run.wait()
    assert statuses == [0, 0], outputs
    assert_same_losses(run.folder, losses(one_process))


LAUNCHERS = {
    "Open MPI": (["mpirun", "--version"], ["mpirun", "-n", "2", "--oversubscribe"]),
    "SLURM": (["sinfo"], ["srun", "-n", "2", "--overcommit"]),
}
"""A command that succeeds where the cluster is, and one that starts two processes."""


@pytest.mark.thorough
@pytest.mark.parametrize("cluster", LAUNCHERS)
def test_two_processes_that_a_cluster_starts_train_as_one(cluster, text, one_process, tmp_path, monkeypatch):
    asked, launcher = LAUNCHERS[cluster]
    if shutil.which(asked[0]) is None or subprocess.run(asked, capture_output=True).returncode:
        pytest.skip(f"{cluster} is not here: there is no {asked[0]}, or it fails")
    for name in ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"):
        monkeypatch.setenv(name, "1")  # tests may run as root
    run = Run(tmp_path / "run", text, 2, 2, launcher=launcher)
    statuses, (output,) = run.wait()
    assert statuses == [0], output
    assert output.count("writing the report") == 1
    assert_same_losses(run.folder, losses(one_process))


@pytest.mark.thorough
def test_a_machine_that_is_no_part_of_a_cluster_is_told_how_to_describe_the_processes(text, tmp_path):
    environment = {name: value for name, value in os.environ.items() if name not in (ADDRESS, PROCESSES, PROCESS)}
    command = [sys.executable, "-m", "jaxnlp", "train", "gpt_text_file", "--data.path", str(text), "--distributed"]
    done = subprocess.run(command, env=environment | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert done.returncode == 2
    assert (
        "give --coordinator HOST:PORT --num-processes N --process-id I, or set JAX_COORDINATOR_ADDRESS, " in done.stderr
    )
