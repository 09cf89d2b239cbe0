import logging
import threading

import jax.monitoring
import pytest

from jaxnlp.inference import compilation
from jaxnlp.inference.compilation import announce_no_more, compilation_announced

LOWERED, COMPILED = "/jax/core/compile/jaxpr_to_mlir_module_duration", "/jax/core/compile/backend_compile_duration"


@pytest.fixture
def compiles(monkeypatch):
    """A program that takes this long to compile: without waiting, the timer fires at once or never."""
    monkeypatch.setattr(compilation, "PATIENCE_SECONDS", 1.0)
    waits = []

    class Timer:
        def __init__(self, seconds, function):
            self.seconds, self.function, self.cancelled = seconds, function, False

        def start(self):
            waits.append(self)

        def cancel(self):
            self.cancelled = True

    monkeypatch.setattr(threading, "Timer", Timer)

    def compile_for(seconds):
        before = len(waits)
        jax.monitoring.record_event_duration_secs(LOWERED, 0.01)
        if len(waits) > before and waits[-1].seconds <= seconds:
            waits[-1].function()
        jax.monitoring.record_event_duration_secs(COMPILED, seconds)

    return compile_for


@pytest.mark.parametrize(("programs", "messages"), [([0.5], 0), ([2.0], 1), ([0.6, 0.6], 1), ([2.0, 2.0, 2.0], 1)])
def test_compilation_of_over_a_second_is_said_once(compiles, caplog, programs, messages):
    caplog.set_level(logging.INFO, "jaxnlp.inference.compilation")
    with compilation_announced():
        for seconds in programs:
            compiles(seconds)
    assert len(caplog.records) == messages
    assert all("compiling" in record.message for record in caplog.records)


def test_nothing_is_said_in_the_middle_of_a_line(compiles, caplog):
    caplog.set_level(logging.INFO, "jaxnlp.inference.compilation")
    for announced in (False, True):
        with compilation_announced():
            if not announced:
                announce_no_more()
            compiles(3.0)
        assert len(caplog.records) == announced


def test_programs_of_the_user_are_not_announced(compiles, caplog):
    caplog.set_level(logging.INFO, "jaxnlp.inference.compilation")
    with compilation_announced(), compilation_announced():
        pass
    compiles(3.0)
    assert not caplog.records


def test_on_a_terminal_it_is_printed_on_standard_error(compiles, capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with compilation_announced():
        compiles(2.0)
    assert capsys.readouterr().err.count("compiling") == 1


def test_it_listens_to_the_events_that_jax_records(monkeypatch):
    seen = []
    monkeypatch.setattr(compilation, "_stop", lambda: seen.append("stop"))
    with compilation_announced():
        jax.jit(lambda x: x * 3.0 + len(seen))(1.0).block_until_ready()
        assert compilation._watch.spent > 0
        compilation._watch.timer.cancel()
    assert seen
