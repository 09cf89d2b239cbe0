import os
import signal
import types
from concurrent.futures import ThreadPoolExecutor

import pytest

from train.run.signals import SECOND_SIGNAL_SECONDS, STOP_SIGNALS, StopSignal, exit_status


@pytest.fixture(autouse=True)
def hang_up_is_heeded():
    """Whoever starts the tests may ignore SIGHUP."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_first_signal_is_noted_by_name_and_does_nothing_else(number):
    with StopSignal() as stop:
        assert stop.received is None
        os.kill(os.getpid(), number)
        assert stop.received == number.name


@pytest.fixture
def clock(monkeypatch):
    """Stands where `train.run.signals` reads the time."""
    clock = types.SimpleNamespace(now=100.0)
    clock.monotonic = lambda: clock.now
    monkeypatch.setattr("train.run.signals.time", clock)
    return clock


def test_repetition_at_once_is_the_same_wish(clock):
    with StopSignal() as stop:
        for number in (signal.SIGINT, signal.SIGINT, signal.SIGTERM):
            signal.raise_signal(number)
            clock.now += SECOND_SIGNAL_SECONDS / 3
        assert stop.received == "SIGINT"


@pytest.mark.parametrize(("first", "second"), [("SIGINT", "SIGINT"), ("SIGTERM", "SIGINT")])
def test_later_second_signal_acts_as_it_always_did(clock, first, second):
    # A shell starts background jobs with SIGINT ignored; here it shall mean what it means on a terminal.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with StopSignal() as stop:
            signal.raise_signal(signal.Signals[first])
            clock.now += SECOND_SIGNAL_SECONDS + 0.1
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.Signals[second])
            assert stop.received == first
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_hang_up_that_is_ignored_stays_ignored():
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    with StopSignal() as stop:
        signal.raise_signal(signal.SIGHUP)
    assert stop.received is None


def test_after_the_terminal_is_closed_output_to_it_is_discarded(monkeypatch):
    controller, terminal = os.openpty()
    with os.fdopen(terminal, "w") as stream, StopSignal() as stop:
        monkeypatch.setattr("sys.__stdout__", stream)
        signal.raise_signal(signal.SIGHUP)
        os.close(controller)
        print("to nowhere", file=stream, flush=True)
        assert stop.received == "SIGHUP"


def test_the_exit_status_is_128_and_the_number_of_the_signal():
    assert [exit_status(name) for name in ("SIGHUP", "SIGINT", "SIGTERM")] == [129, 130, 143]


def test_leaving_gives_back_the_handlers_that_were_there():
    seen = []
    before = {number: signal.signal(number, lambda number, frame: seen.append(number)) for number in STOP_SIGNALS}
    try:
        with StopSignal() as stop:
            pass
        for number in STOP_SIGNALS:
            signal.raise_signal(number)
        assert seen == list(STOP_SIGNALS)
        assert stop.received is None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_leaving_by_an_error_gives_back_the_handlers_too():
    before = [signal.getsignal(number) for number in STOP_SIGNALS]
    with pytest.raises(ArithmeticError), StopSignal():
        raise ArithmeticError
    assert [signal.getsignal(number) for number in STOP_SIGNALS] == before


def test_stop_signal_can_be_used_again():
    stop = StopSignal()
    for _ in range(2):
        with stop:
            signal.raise_signal(signal.SIGTERM)
    assert stop.received == "SIGTERM"


def test_training_in_another_thread_goes_on_without_signals():
    """Such as the thread of a web server: Python lets only the main one handle signals."""

    def stopped():
        with StopSignal() as stop:
            return stop.stops_at(1)

    before = signal.getsignal(signal.SIGINT)
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(stopped).result() is False
    assert signal.getsignal(signal.SIGINT) is before
