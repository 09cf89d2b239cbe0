"""Checkpoints whose folder is moved while they are written, and errors that Orbax explains in many lines."""

import errno
import os
import threading
import time

import pytest

from jaxnlp.saving.checkpoint_reading import DamagedCheckpointError
from tests.train.run.test_checkpoint_writing import assert_restored, restore, save, save_state
from train.run.checkpoint_writing import Checkpoints


@pytest.fixture
def run(tmp_path):
    save(tmp_path / "run", [1, 2, 3])
    return tmp_path / "run"


@pytest.mark.parametrize("waits", [False, True], ids=["while it is written", "between two checkpoints"])
def test_a_folder_that_is_moved_while_the_run_writes_is_named(run, tmp_path, waits):
    def moved_after_step_4():
        with Checkpoints(run, keep=10) as checkpoints:
            save_state(checkpoints, 4)
            if waits:
                checkpoints._manager.wait_until_finished()
            run.rename(tmp_path / "moved")
            save_state(checkpoints, 5)

    with pytest.raises(FileNotFoundError, match="moved or deleted while the run wrote") as raised:
        moved_after_step_4()
    assert raised.value.filename == str(run / "checkpoints")
    assert_restored(restore(tmp_path / "moved"), 4 if waits else 3)


def test_a_save_without_memory_for_a_thread_ends_with_that_error(run, monkeypatch):
    """`jaxnlp train` shows it as a line about memory."""

    start = threading.Thread.start

    def refused(thread):
        if thread.name == "async_save":
            raise RuntimeError("can't start new thread")
        start(thread)

    def saved_without_threads():
        with Checkpoints(run, keep=10) as checkpoints:
            save_state(checkpoints, 4)
            checkpoints._manager.wait_until_finished()
            monkeypatch.setattr(threading.Thread, "start", refused)
            save_state(checkpoints, 5)

    with pytest.raises(RuntimeError, match="can't start new thread"):
        saved_without_threads()
    monkeypatch.undo()
    assert_restored(restore(run), 4)


def test_a_folder_that_cannot_be_made_leaves_no_thread_that_waits_for_it(run, monkeypatch):
    """The process would wait for it, too, after its last line."""
    make = os.mkdir

    def read_only(path, *arguments, **options):
        if "checkpoint-tmp" in str(path):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        make(path, *arguments, **options)

    before = {*threading.enumerate()}

    def saved():
        with Checkpoints(run, keep=10) as checkpoints:
            save_state(checkpoints, 4)

    monkeypatch.setattr(os, "mkdir", read_only)
    with pytest.raises(OSError, match="Read-only file system"):
        saved()
    deadline = time.monotonic() + 20  # one of them may not have started yet, and cannot be joined
    while (waiting := [thread.name for thread in {*threading.enumerate()} - before if not thread.daemon]) and (
        time.monotonic() < deadline
    ):
        time.sleep(0.01)
    assert not waiting


def test_a_file_that_orbax_explains_in_many_lines_is_explained_in_one(run):
    for step in (1, 2, 3):
        (run / "checkpoints" / str(step) / "training" / "_METADATA").unlink()
    with pytest.raises(DamagedCheckpointError, match="no checkpoint can be read") as raised:
        restore(run)
    assert "\n" not in str(raised.value)


def test_orbax_does_not_ask_whether_a_signal_stops_the_run(run, monkeypatch):
    """JAX lets processes stop after the last step that any has asked for, and Orbax asks for older ones."""
    asked = []
    monkeypatch.setattr("jax.experimental.multihost_utils.reached_preemption_sync_point", asked.append)
    with Checkpoints(run, keep=10) as checkpoints:
        for step in (4, 5):
            save_state(checkpoints, step)
    assert asked == []
    assert_restored(restore(run), 5)
