import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import cloudpickle
import numpy as np
import pytest

from data import DataError, LazyBatch
from data.pipelines.endless import batched, iterable, shuffled
from data.pipelines.epochs import Epochs
from data.pipelines.orders import random_numbers
from tests.guards import test_families as guards
from tests.jaxnlp.tasks.test_init import CONFIGS, FURTHER

files = guards.files


@pytest.mark.thorough  # starting two processes takes seconds
def test_processes_make_the_same_batches_and_go_on_from_the_state_of_one_process():
    examples, noise = shuffled(range(20), 0), random_numbers(0, 3)
    alone = iterable(batched(lambda indices: {"index": np.array(examples(indices)), "noise": noise(indices)}, 4))
    workers = iter(alone.with_workers(2))
    expected = list(itertools.islice(alone, 40))
    found = [next(workers) for _ in range(20)]
    state = json.loads(json.dumps(workers.get_state()))
    found += [next(workers) for _ in range(20)]
    for one, other in zip(expected, found, strict=True):
        assert not isinstance(other, LazyBatch)  # the process made its rows
        assert one.keys() == other.keys()
        assert all(np.array_equal(one[name], other[name]) for name in one)
    again = iter(alone)
    again.set_state(state)
    np.testing.assert_array_equal(next(again)["noise"], expected[20]["noise"])
    workers.set_state(state)
    np.testing.assert_array_equal(next(workers)["noise"], expected[20]["noise"])
    workers.close()


@pytest.mark.thorough
def test_processes_do_not_run_the_program_of_the_user_again(tmp_path):
    """Also a script that trains outside `if __name__ == "__main__"`, whose functions go to the processes."""
    script = tmp_path / "train_here.py"
    script.write_text(
        "import itertools\nfrom data.pipelines.epochs import Epochs\nprint('begun', flush=True)\n"
        "def epoch(number):\n    return [{'place': number}]\n"
        "batches = iter(Epochs(epoch, num_workers=2))\n"
        "print([batch['place'] for batch in itertools.islice(batches, 5)])\nbatches.close()\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([os.getcwd(), *sys.path])}
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, env=environment, timeout=120)
    assert (done.stdout, done.returncode) == ("begun\n[0, 1, 2, 3, 4]\n", 0), done.stderr


@pytest.mark.thorough
def test_processes_that_end_while_they_send_batches_leave_no_thread_that_waits_for_them():
    """Such a thread keeps the process that trains from ending."""
    before = set(threading.enumerate())
    for _ in range(3):
        batches = iter(Epochs(lambda number: [{"x": np.zeros(32_000_000, np.uint8)}], num_workers=3))
        for _ in range(8):
            next(batches)
        batches.close()
    left = [thread for thread in threading.enumerate() if thread not in before]
    for thread in left:
        thread.join(timeout=20)
    assert not any(thread.is_alive() for thread in left)


@pytest.mark.thorough
def test_a_process_that_dies_ends_the_data_with_the_remedy():
    batches = iter(Epochs(lambda number: os._exit(1), num_workers=1))
    with pytest.raises(DataError, match=r"one of the 1 processes that make batches has died.*--data.num-workers"):
        next(batches)


@pytest.mark.thorough
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="children are listed by Linux")
def test_a_signal_to_all_processes_ends_none_that_makes_batches_and_they_end_with_the_one_that_trains(tmp_path):
    """A terminal that closes, and a cluster, send their signal to the whole group."""
    script = tmp_path / "train_here.py"
    script.write_text(
        "import signal, sys\nfrom data.pipelines.epochs import Epochs\n"
        "for number in (signal.SIGHUP, signal.SIGTERM):\n    signal.signal(number, lambda *_: None)\n"
        "batches = iter(Epochs(lambda number: [{'place': number}], num_workers=2))\n"
        "for line in sys.stdin:\n    print(next(batches)['place'], flush=True)\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([os.getcwd(), *sys.path])}
    process = subprocess.Popen(
        [sys.executable, script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )

    def batch():
        process.stdin.write("\n")
        process.stdin.flush()
        return process.stdout.readline()

    try:
        found = [batch()]
        started = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        for number in (signal.SIGHUP, signal.SIGTERM):
            os.killpg(process.pid, number)
            time.sleep(0.2)
        found += [batch() for _ in range(9)]
        assert found == [f"{place}\n" for place in range(10)], found
        assert Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split() == started
        process.kill()
        end = time.monotonic() + 20
        while any(map(is_running, started)) and time.monotonic() < end:
            time.sleep(0.05)
        assert not any(map(is_running, started))
        assert "Traceback" not in process.stderr.read()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def is_running(pid):
    """Whether a process exists and has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.sweep(1)
@pytest.mark.parametrize("family", [name for name in (*CONFIGS, *FURTHER) if name != "ImageClassification"])
def test_processes_may_make_the_batches_of_every_data_set(family, files):
    """Their function goes to other processes by pickle. The family of tests/seam has batches of its own."""
    config = (CONFIGS | FURTHER)[family](files)
    epochs = config.data.load(config.seed).train
    (first, *_), expected = cloudpickle.loads(cloudpickle.dumps(epochs.epoch))(1), epochs.epoch(1)[0]
    assert first.keys() == expected.keys()
    for name, x in expected.items():
        assert np.array_equal(first[name], x) or first[name].keys() == x.keys()


@pytest.mark.thorough
def test_a_process_that_takes_long_is_named_and_its_batches_are_the_same(monkeypatch, caplog):
    monkeypatch.setattr("data.pipelines.worker_processes.SECONDS_UNTIL_A_LINE", 0.001)
    batches = iter(Epochs(lambda number: [{"place": number}], num_workers=1))
    assert [next(batches) for _ in range(3)] == [{"place": number} for number in range(3)]
    batches.close()
    assert "if they hang, repeat the command with --data.num-workers 0" in caplog.text
