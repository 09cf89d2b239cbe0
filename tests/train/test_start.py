"""Runs in processes of their own, started by `jaxnlp train`: killed, stopped, and continued."""

import errno
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
import types

import jax
import numpy as np
import pytest

from data import DataError
from jaxnlp.__main__ import main as jaxnlp_main
from jaxnlp.ops.checks import UnavailableError
from jaxnlp.runs import load_run
from jaxnlp.saving.checkpoint_reading import DamagedCheckpointError, RunError
from tests.run_folders import assert_same_run, rows, saved_arrays
from train import start as program
from train.cli.command_line import UsageError
from train.loop import FitResult
from train.recipes import load_recipe
from train.run.folder import RunMismatchError
from train.run.progress import NonFiniteError

TOTAL_STEPS = 80
SAVE_EVERY = 5
MAX_WAIT_SECONDS = 120


@pytest.fixture(scope="module", autouse=True)
def hang_up_is_heeded():
    """Whoever starts the tests may ignore SIGHUP, and the processes of tests would inherit that."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def ended(process):
    """Exit status, output and errors of a process, without its first line."""
    output, errors = process.communicate(timeout=MAX_WAIT_SECONDS)
    return process.returncode, output, errors.removeprefix("loading JAX\n")


class Runs:
    """Starts one small run, with dropout, in folders of the test's choice."""

    def __init__(self, root, text, cache, without_torch):
        self._root = root
        fields = {
            "data.path": text,
            "data.batch-size": 4,
            "data.sequence-length": 8,
            "data.evaluation-batch-size": 8,
            "model.num-layers": 1,
            "model.num-heads": 2,
            "model.width": 8,
            "model.context-length": 8,
            "ema-decay": 0.9,
            "accumulation-steps": 2,
            "total-steps": TOTAL_STEPS,
            "checkpoint-every-steps": SAVE_EVERY,
            "evaluate-every-steps": TOTAL_STEPS // 2,
            "log-every-steps": 1,
            "task.sample-prompt": None,
            "compilation-cache": cache,
        }
        self._command = [sys.executable, "-m", "jaxnlp", "train", "gpt_text_file"]
        for name, value in fields.items():
            self._command += [f"--{name}", str(value)]
        # A run that imports torch takes a second more to start, and here it fails.
        self._environment = os.environ | {
            "XLA_FLAGS": "--xla_force_host_platform_device_count=1",
            "PYTHONPATH": str(without_torch),
        }

    def start(self, workdir, *more, command=None):
        return subprocess.Popen(
            command or [*self._command, "--workdir", str(workdir), *more],
            cwd=self._root,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def resume(self, workdir):
        """The same of a start that names nothing but the folder."""
        return ended(self.start(workdir, command=[*self._command[:4], "--resume", str(workdir)]))

    def finish(self, workdir, *more):
        """Exit status, output and errors of a start that is not interrupted."""
        return ended(self.start(workdir, *more))


@pytest.fixture(scope="module")
def runs(pytestconfig, small_text, tmp_path_factory):
    without_torch = tmp_path_factory.mktemp("without_torch")
    (without_torch / "torch.py").write_text("raise AssertionError('a run imports torch')")
    return Runs(pytestconfig.rootpath, small_text, tmp_path_factory.mktemp("cache"), without_torch)


@pytest.fixture(scope="module")
def straight(runs, tmp_path_factory):
    """The folder of a run that was not interrupted."""
    workdir = tmp_path_factory.mktemp("straight") / "run"
    status, output, errors = runs.finish(workdir)
    assert (status, errors) == (0, "")
    assert "continuing" not in output
    return workdir


def last_row(workdir):
    return max((row["step"] for row in rows(workdir)), default=0)


def saved_steps(workdir):
    """Steps of finished checkpoints; unfinished ones have longer names."""
    folder = workdir / "checkpoints"
    return sorted(int(path.name) for path in folder.iterdir() if path.name.isdigit()) if folder.exists() else []


def is_saving(workdir):
    folder = workdir / "checkpoints"
    return folder.exists() and any(not path.name.isdigit() for path in folder.iterdir())


def wait_until(process, condition):
    """Polls a process until the condition holds; False when the process ends first, or after a long time."""
    deadline = time.monotonic() + MAX_WAIT_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.0005)
    return False


def passed(seconds):
    end = time.monotonic() + seconds
    return lambda: time.monotonic() > end


def moments(workdir, generator):
    """When to kill: conditions in a random order, each with a step that it waits for, spread over the run."""

    def after_a_step(goal):
        return lambda: last_row(workdir) >= goal

    def while_saving(goal):
        return lambda: is_saving(workdir) and last_row(workdir) >= goal

    def after_saving(goal):
        return lambda: max(saved_steps(workdir), default=0) >= goal

    def before_the_first_step(goal):
        file = workdir / "environment.json"
        before = file.stat().st_mtime_ns if file.exists() else 0
        return lambda: file.exists() and file.stat().st_mtime_ns > before

    kinds = [after_a_step] * 3 + [while_saving] * 3 + [after_saving] * 2 + [before_the_first_step]
    generator.shuffle(kinds)
    share = TOTAL_STEPS / (len(kinds) + 1)
    for number, kind in enumerate(kinds):
        yield kind(max(last_row(workdir) + 1, round(share * (number + generator.random()))))
    yield lambda: last_row(workdir) == TOTAL_STEPS  # while the last checkpoint or the report is written


@pytest.mark.thorough
def test_a_run_that_is_killed_again_and_again_ends_as_the_straight_run_bit_for_bit(runs, straight, tmp_path):
    generator = random.Random(0)
    workdir = tmp_path / "run"
    kills, saved = 0, 0
    for condition in moments(workdir, generator):
        process = runs.start(workdir)
        assert wait_until(process, condition), process.communicate()
        wait_until(process, passed(generator.uniform(0.0, 0.02)))
        process.kill()
        output, errors = process.communicate()
        assert process.returncode == -signal.SIGKILL, errors
        kills += 1
        assert_continued_from(output, saved)
        saved = max(saved_steps(workdir), default=0)
        # Training goes on while a checkpoint is written, and waits before it writes the next one.
        assert last_row(workdir) - saved <= 2 * SAVE_EVERY
    status, output, errors = runs.finish(workdir)
    assert status == 0, errors
    assert_continued_from(output, saved)
    assert kills >= 10
    assert not is_saving(workdir)
    assert_same_run(workdir, straight)


def assert_continued_from(output, saved):
    """A start that got far enough says that it continues from the last finished checkpoint."""
    found = re.findall(r"continuing from step (\d+) of", output)
    assert found in ([], [str(saved)])


@pytest.mark.thorough
def test_signals_save_and_the_same_command_continues(runs, straight, tmp_path):
    workdir, step = tmp_path / "run", 0
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        process = runs.start(workdir)
        assert wait_until(process, lambda goal=step + 3: last_row(workdir) >= goal), process.communicate()
        process.send_signal(number)
        output, errors = process.communicate(timeout=MAX_WAIT_SECONDS)
        assert process.returncode == 128 + number, errors
        assert (f"continuing from step {step} of {TOTAL_STEPS}" in output) == (step > 0)
        before, said = step, rf"stopped by {number.name} at step (\d+); saved; repeat the command to resume"
        step = int(re.search(said, output)[1])
        assert before + 3 <= step < TOTAL_STEPS
        assert saved_steps(workdir)[-1] == last_row(workdir) == step
        assert f"run     {workdir}" in output
    status, output, errors = runs.resume(workdir)
    assert status == 0, errors
    assert f"continuing from step {step} of {TOTAL_STEPS}" in output
    assert "stopped by" not in output
    assert_same_run(workdir, straight)


@pytest.mark.thorough
def test_a_second_start_in_the_folder_is_refused_while_the_first_trains(runs, straight, tmp_path):
    workdir = tmp_path / "run"
    process = runs.start(workdir)
    assert wait_until(process, lambda: last_row(workdir) >= 1), process.communicate()
    process.send_signal(signal.SIGSTOP)
    status, _, errors = runs.finish(workdir)
    process.send_signal(signal.SIGCONT)
    assert (status, errors) == (
        2,
        f"error: process {process.pid} is training in {workdir}; wait for it, or give another --workdir\n",
    )
    assert ended(process)[::2] == (0, "")
    assert_same_run(workdir, straight)


@pytest.mark.thorough
def test_another_config_in_the_same_folder_is_refused_with_the_differences(runs, straight):
    before = rows(straight), saved_steps(straight)
    status, _, errors = runs.finish(straight, "--seed", "5", "--optimizer.learning-rate", "0.5")
    assert status == 2
    message, *differences = errors.splitlines()
    assert message.startswith(f"error: {straight} holds a run with another config; give another --workdir")
    assert differences == ["  optimizer.learning_rate: 0.002 -> 0.5", "  seed: 0 -> 5"]
    assert (rows(straight), saved_steps(straight)) == before


@pytest.mark.thorough
def test_a_finished_folder_can_be_moved_and_read(straight, tmp_path):
    moved = shutil.copytree(straight, tmp_path / "moved")
    run = load_run(moved, checkpoint="latest")
    assert run.step == TOTAL_STEPS
    saved = saved_arrays(straight)
    for path, leaf in jax.tree_util.tree_leaves_with_path(run.params):
        np.testing.assert_array_equal(leaf, saved[f"['ema']{jax.tree_util.keystr(path)}"])
    logits = jax.jit(run.model.apply)({"params": run.params}, run.processor.encode("the tide")[None])
    assert np.isfinite(logits).all()


@pytest.fixture
def main(monkeypatch, tmp_path):
    """The program with `fit` replaced: exit status for what it does."""

    def call(fitted, *arguments):
        def fit(*_, **__):
            if isinstance(fitted, BaseException):
                raise fitted
            return fitted

        monkeypatch.setattr(program, "fit", fit)
        return jaxnlp_main(["train", *(arguments or ["gpt_python_docs", "--workdir", str(tmp_path)])])

    return call


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (UsageError("no such"), 2),
        (RunMismatchError("another"), 2),
        (RunError("not a training run"), 2),
        (DataError("too short"), 2),
        (FileNotFoundError("text file x does not exist"), 2),
        (UnavailableError("implementation='cudnn' needs an Nvidia GPU; use 'auto'"), 2),
        (NonFiniteError("NaN at step 3"), 1),
        (DamagedCheckpointError("none can be read"), 1),
    ],
)
def test_expected_errors_are_a_line_and_an_exit_status(main, capsys, error, status):
    assert main(error) == status
    assert capsys.readouterr().err == f"error: {error}\n"


def test_a_full_disk_is_a_line(main, capsys, tmp_path):
    for step in (5, 10):
        (tmp_path / "checkpoints" / str(step)).mkdir(parents=True)
    assert main(OSError(errno.ENOSPC, "No space left on device", "runs/x/metrics.jsonl")) == 2
    shown = capsys.readouterr().err
    assert shown == (
        "error: runs/x/metrics.jsonl: no space left on device; free some space there, and repeat the command; the last "
        "checkpoint is step 10\n"
    )


@pytest.mark.parametrize("error", [ZeroDivisionError(), ValueError("shapes differ")])
def test_unexpected_errors_are_not_hidden(main, error):
    with pytest.raises(type(error)):
        main(error)


def test_unknown_recipe_is_a_wrong_command(main, capsys):
    assert main(None, "gpt_python_doc") == 2
    assert capsys.readouterr().err.startswith("error: unknown recipe 'gpt_python_doc'; did you mean gpt_python_docs")


def test_an_interruption_outside_the_loop_has_no_traceback(main, capsys):
    assert main(KeyboardInterrupt()) == 130
    expected = "interrupted; no checkpoint was saved; repeat the command to resume\n"
    assert capsys.readouterr().err == expected


def test_the_last_lines_name_the_run_and_its_report(main, capsys, tmp_path):
    last = types.SimpleNamespace(step=load_recipe("gpt_python_docs").total_steps)
    workdir = tmp_path / "lr[red]:cat:"  # rich would print a picture of a cat
    assert main(FitResult(state=last, stopped_by=None), "gpt_python_docs", "--workdir", str(workdir)) == 0
    printed = capsys.readouterr().out
    assert printed.splitlines()[-3:] == [
        f"run     {workdir}",
        f"report  {workdir / 'report.html'}",
        f"plots   {workdir / 'plots'}",
    ]
    assert "stopped" not in printed


def test_a_stopped_run_says_at_which_step_and_how_to_resume(main, capsys):
    assert main(FitResult(state=types.SimpleNamespace(step=7), stopped_by="SIGTERM")) == 143
    assert "stopped by SIGTERM at step 7; saved; repeat the command to resume" in capsys.readouterr().out
