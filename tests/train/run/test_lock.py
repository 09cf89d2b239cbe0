import contextlib
import errno
import os
import subprocess
import sys
import threading
import time

import jax
import pytest

from train.run import lock
from train.run.folder import RunMismatchError
from train.run.lock import LOCK_FILE, absent, locked, numbered
from train.run.processes import ProcessOptions, connected

HOLD = """
import fcntl, os, sys
file = open(sys.argv[1], "w")
fcntl.flock(file, fcntl.LOCK_EX)
print(os.getpid(), file=file, flush=True)
print("held", flush=True)
sys.stdin.read()
"""


def test_another_process_is_refused_while_one_holds_the_lock_and_not_after_it_died(tmp_path):
    command = [sys.executable, "-c", HOLD, str(tmp_path / LOCK_FILE)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        with pytest.raises(RunMismatchError, match=r"process \d+\s* is training in .*; wait for it"), locked(tmp_path):
            pass
        process.kill()
    with locked(tmp_path):
        assert (tmp_path / LOCK_FILE).exists()
    assert not (tmp_path / LOCK_FILE).exists()


def test_the_same_process_is_refused_too(tmp_path):
    with locked(tmp_path), pytest.raises(RunMismatchError, match="is training in"), locked(tmp_path):
        pass


def test_a_folder_that_was_moved_leaves_the_lock_of_the_run_that_took_its_place(tmp_path):
    with locked(tmp_path / "run"):
        (tmp_path / "run").rename(tmp_path / "moved")
        with locked(tmp_path / "run"):
            (tmp_path / "run" / "config.json").write_text("{}")
            with pytest.raises(RunMismatchError, match="is training in"), locked(tmp_path / "moved"):
                pass
            (tmp_path / "run").rename(tmp_path / "second")
            (tmp_path / "run").mkdir()
            (tmp_path / "run" / LOCK_FILE).write_text("another's")
    assert (tmp_path / "run" / LOCK_FILE).read_text() == "another's"


def test_the_error_of_a_run_is_raised_even_if_the_lock_cannot_be_removed(tmp_path, monkeypatch):
    def refuse(path):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    def fails():
        monkeypatch.setattr("pathlib.Path.unlink", refuse)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), locked(tmp_path):
        fails()


def test_a_folder_that_stays_empty_is_removed_with_its_new_parents_and_others_stay(tmp_path):
    with pytest.raises(ZeroDivisionError), locked(tmp_path / "new" / "run"):
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []
    with locked(tmp_path / "new" / "run"):
        (tmp_path / "new" / "run" / "config.json").write_text("{}")
    assert [path.name for path in (tmp_path / "new" / "run").iterdir()] == ["config.json"]


def test_a_place_that_cannot_be_a_folder_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunMismatchError, match="is a file"), locked(tmp_path / "file" / "run"):
        pass


def test_of_two_processes_with_one_number_the_second_is_named_and_joins_nothing(tmp_path, capsys, monkeypatch):
    """JAX would abort the first when the second joins."""
    monkeypatch.setattr(lock, "SECONDS_BETWEEN_TRIES", 0.05)
    options = ProcessOptions(distributed=True, coordinator="nowhere:1", num_processes=3, process_id=1)
    with numbered(tmp_path / "run", 1, 3, seconds=1):
        with pytest.raises(RunMismatchError) as caught, connected(options, tmp_path / "run", seconds=0.2):
            pass
        with numbered(tmp_path / "run", 2, 3, seconds=1), numbered(tmp_path / "other", 1, 3, seconds=1):
            assert absent(tmp_path / "run", 4) == [0, 3]
    assert str(caught.value).startswith("process 1 of 3 is there already (")
    assert str(caught.value).endswith(f", pid {os.getpid()}); give each process a --process-id of its own")
    (line,) = capsys.readouterr().err.splitlines()
    assert f", pid {os.getpid()}); this one waits for its end, for at most 0.2 s" in line
    assert list(tmp_path.iterdir()) == []


def test_process_0_names_those_that_have_not_come_before_jax_aborts(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(jax.distributed, "initialize", lambda *_, **__: time.sleep(0.5))
    monkeypatch.setattr(jax.distributed, "shutdown", lambda: None)
    monkeypatch.setattr("train.run.processes.watching", contextlib.nullcontext)
    options = ProcessOptions(distributed=True, coordinator="127.0.0.1:1", num_processes=4, process_id=0)
    with numbered(tmp_path / "run", 2, 4, seconds=1), connected(options, tmp_path / "run", seconds=3):
        pass
    line = "not there, of processes 0 to 3: 1, 3; JAX ends the others"
    assert line in capsys.readouterr().err.splitlines()


def test_a_number_is_free_when_the_process_with_it_has_ended(tmp_path, monkeypatch, capsys):
    """Such as that of a run which is started again before its last process is gone."""
    monkeypatch.setattr(lock, "SECONDS_BETWEEN_TRIES", 0.05)
    first, over = numbered(tmp_path / "run", 1, 2, seconds=1), threading.Event()
    first.__enter__()

    def end():
        over.wait(60)
        first.__exit__(None, None, None)

    threading.Thread(target=end).start()
    threading.Timer(0.1, over.set).start()
    with numbered(tmp_path / "run", 1, 2, seconds=60):
        assert over.is_set()
    assert "process 1 of 2 is there already" in capsys.readouterr().err
