import logging
import threading
import time

import pytest

from train.run import stalls as module
from train.run.stalls import SECONDS_AT_LEAST, StallWatch


@pytest.fixture
def quick(monkeypatch):
    """Looks every millisecond, at waits of at least ten."""
    monkeypatch.setattr(module, "SECONDS_BETWEEN_LOOKS", 0.001)
    monkeypatch.setattr(module, "SECONDS_AT_LEAST", 0.01)


def lines(caplog):
    return [record.getMessage() for record in caplog.records if "so far" in record.getMessage()]


def waited_for(condition):
    end = time.monotonic() + 20
    while not condition() and time.monotonic() < end:
        time.sleep(0.001)
    return condition()


def test_a_step_that_stalls_is_named_once_with_the_stacks_of_all_threads(quick, tmp_path, caplog):
    with caplog.at_level(logging.WARNING), StallWatch(tmp_path, 0, 0.0) as stalls:
        for step in (1, 2, 3):
            stalls.step(step)
            stalls.row(step, step * 1e-4)
        assert waited_for(lambda: lines(caplog))
        time.sleep(0.05)
        stalls.step(4)
        assert len(lines(caplog)) == 1
        assert "step 4 has taken" in lines(caplog)[0]
        assert str(tmp_path / "stacks.txt") in lines(caplog)[0]
        written = (tmp_path / "stacks.txt").read_text()
        assert "test_a_step_that_stalls" in written
        assert written.count("hread 0x") >= 2  # its own, and the watch
        stalls.row(4, 5e-4)
        assert waited_for(lambda: len(lines(caplog)) == 2)  # another stall, in the same file
        assert (tmp_path / "stacks.txt").read_text().startswith(written)


def test_a_wait_without_memory_ends_the_process_also_outside_steps(quick, tmp_path, monkeypatch):
    ended = threading.Event()
    monkeypatch.setattr(module, "end_without_memory", ended.set)
    with StallWatch(tmp_path, 0, 0.0) as stalls, stalls.paused():
        time.sleep(0.1)
        assert not ended.is_set()  # there is memory
        monkeypatch.setattr(module, "SPARE", 2**62)
        assert waited_for(ended.is_set)


def test_evaluations_and_the_time_before_the_first_row_are_no_steps(quick, tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        with StallWatch(tmp_path, 0, 0.0) as stalls:
            stalls.step(1)
            time.sleep(0.1)
        stalls = StallWatch(tmp_path, 0, 0.0)
        with stalls.paused(), stalls:
            stalls.row(1, 1e-4)
            time.sleep(0.1)
    assert lines(caplog) == []
    assert not (tmp_path / "stacks.txt").exists()


def test_a_step_may_wait_for_its_program(tmp_path):
    stalls = StallWatch(tmp_path, 0, 0.0, compiling=lambda: True)
    stalls.row(1, 1.0)
    assert stalls.longest() == float("inf")


def test_queued_steps_may_take_their_time_and_twenty_more(tmp_path):
    stalls = StallWatch(tmp_path, 10, 100.0)
    assert stalls.longest() == float("inf")
    stalls.step(20)
    stalls.row(20, 120.0)
    assert stalls.longest() == pytest.approx(2.0 * 20)
    stalls.step(25)
    assert stalls.longest() == pytest.approx(2.0 * 25)
    stalls.row(30, 220.0)
    stalls.row(40, 240.0)  # the slow ten steps before do not change the median
    stalls.step(40)
    assert stalls.longest() == pytest.approx(2.0 * 20)
    stalls.step(40_040)
    for thousands in (10, 20, 30, 40):
        stalls.row(40 + thousands * 1_000, 240.0 + thousands)
    assert stalls.longest() == SECONDS_AT_LEAST


def test_a_folder_that_cannot_be_written_is_said_and_does_not_end_the_run(quick, tmp_path, caplog):
    (tmp_path / "stacks.txt").mkdir()
    with caplog.at_level(logging.WARNING), StallWatch(tmp_path, 0, 0.0) as stalls:
        stalls.row(1, 1e-4)
        assert waited_for(lambda: lines(caplog))
    assert "stacks.txt: is a directory" in lines(caplog)[0]


def test_the_thread_ends_with_the_context(quick, tmp_path):
    with StallWatch(tmp_path, 0, 0.0):
        assert [thread for thread in threading.enumerate() if thread.name == "stalls"]
    assert waited_for(lambda: not [thread for thread in threading.enumerate() if thread.name == "stalls"])
