import subprocess
import sys

import pytest

from train.run.folder import RunMismatchError
from train.run.lock import LOCK_FILE, locked

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
