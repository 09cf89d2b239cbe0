"""The script that is run where a GPU is lent, with commands that only write down how they were called."""

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path("benchmarks/gpu.sh").resolve()
STEPS = [
    "benchmarks.gpu_checks",
    "benchmarks gpt2_124m",
    "benchmarks awd_lstm",
    "benchmarks gpt_shakespeare",
    "jaxnlp train gpt_shakespeare",
    "jaxnlp train gpt_shakespeare",
    "benchmarks bert_finetune",
    "benchmarks transformer_step",
    "benchmarks generate",
]
COMMANDS = {
    "nvidia-smi": "echo 'NVIDIA H100, 580.1'",
    "python3": 'echo "python3 $*" >> "$CALLS"',
    "timeout": 'echo "$*" >> "$CALLS"; echo "loss 1.47"; exit ${STATUS:-0}',
}


@pytest.fixture
def run(tmp_path):
    """Runs the script; returns the calls of its commands, what it printed, and the end of its log."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in COMMANDS.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    calls = tmp_path / "calls"
    environ = {name: value for name, value in os.environ.items() if name != "JAXNLP_DATA"}
    environ |= {"PATH": f"{folder}:{os.environ['PATH']}", "CALLS": str(calls)}

    def run(*wheels, **more):
        command = ["bash", str(SCRIPT), str(tmp_path / "out"), *wheels]
        done = subprocess.run(command, env=environ | more, capture_output=True, text=True, check=True)
        *called, joins = calls.read_text().splitlines()
        assert joins.startswith("python3 -c import json")  # the rows of all cases in one file
        return called, done.stdout

    return run


@pytest.mark.parametrize("status", ["0", "1", "124"])
def test_each_step_has_a_limit_and_follows_a_step_that_failed(run, status, tmp_path):
    calls, printed = run(JAXNLP_DATA=str(tmp_path), STATUS=status)
    limits = []
    for call, step in zip(calls, STEPS, strict=True):  # no other command than through timeout
        kill, grace, seconds, *command = call.split()
        assert (kill, grace) == ("-k", "5")
        assert " ".join(command).startswith(f"python3 -m {step}")
        limits.append(int(seconds))
    assert all(5 < limit < 200 for limit in limits)
    assert sum(limits) <= 8 * 60
    assert printed.count(f"ended with status {status}") == (0 if status == "0" else len(STEPS))
    assert "0 s: loss 1.47" in printed  # a training's lines have their time
    assert "NVIDIA H100" in printed
    folders = [call.split()[-1] for call in calls if "train" in call]
    assert len({*folders}) == 2  # the second start is no continuation


def test_without_data_nothing_is_trained_and_wheels_are_installed_first(run):
    calls, _ = run("wheels")
    assert calls[0].startswith("120 python3 -m pip install")
    assert [call for call in calls if "train" in call] == []
    assert len(calls) == 1 + len(STEPS) - 2


@pytest.mark.parametrize(("seconds", "started"), [("440", len(STEPS) - 2), ("470", 0)])
def test_steps_after_a_long_installation_have_the_rest_of_eight_minutes_or_are_not_started(run, seconds, started):
    calls, printed = run("wheels", SECONDS=seconds)
    limits = [int(call.split()[2]) for call in calls[1:]]
    assert all(0 < limit <= 30 for limit in limits)
    assert (len(limits), printed.count("eight minutes are over")) == (started, len(STEPS) - 2 - started)
