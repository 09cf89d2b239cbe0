import threading

import jax
import numpy as np
import pytest

from train.compile_ahead import AheadCompiler
from train.logs.compile_time import compile_seconds


def double(x):
    return 2.0 * x


def test_a_call_waits_for_its_program_and_compiles_no_other():
    traced = []

    def traced_double(x):
        traced.append(x.shape)
        return double(x)

    function = jax.jit(traced_double)
    with AheadCompiler() as ahead:
        call, shapes = ahead.called(function), [(2,), (3,)]
        for shape in [*shapes, (2,)]:
            ahead.compile(function, np.ones(shape, np.float32))
        for shape in shapes:
            np.testing.assert_array_equal(call(np.ones(shape, np.float32)), np.full(shape, 2.0))
        assert ahead.report()[0].startswith("compiled 2 programs in ")
        assert ahead.report() == []
        np.testing.assert_array_equal(call(np.ones(4, np.float32)), np.full(4, 2.0))  # a shape that nobody named
    assert traced == [(2,), (3,), (4,)]


class Broken:
    """A jitted function whose program of one shape cannot be compiled."""

    def lower(self, x):
        return self

    def compile(self):
        raise MemoryError("no space for the program")

    def __call__(self, x):
        raise AssertionError("it has no program")


def test_an_error_of_the_compiler_is_logged_at_once_and_raised_where_its_program_is_called(caplog):
    with AheadCompiler() as ahead:
        broken = Broken()
        ahead.compile(broken, np.ones(2))
        while not all(program.done() for program in ahead._compiling.values()):
            pass
        assert "the run will stop where it needs it: MemoryError: no space" in caplog.text
        ahead.report()
        with pytest.raises(MemoryError, match="no space"):
            ahead.called(broken)(np.ones(2))


class Slow(Broken):
    """Its program is compiled when the test says so."""

    def __init__(self):
        self.go = threading.Event()

    def compile(self):
        self.go.wait(timeout=5)

    def __call__(self, x):
        return x


def test_waiting_for_a_program_counts_as_compile_time():
    slow, before = Slow(), compile_seconds()
    with AheadCompiler() as ahead:
        ahead.compile(slow, np.ones(2))
        assert compile_seconds() == before
        threading.Timer(0.05, slow.go.set).start()
        ahead.called(slow)(np.ones(2))
    assert compile_seconds() - before >= 0.04


def test_a_call_that_will_wait_for_its_program_first_does_what_is_due():
    slow, due = Slow(), []

    def write():
        due.append("row")
        slow.go.set()

    with AheadCompiler() as ahead:
        ahead.compile(slow, np.ones(2))
        call = ahead.called(slow, before_waiting=write)
        call(np.ones(2))
        call(np.ones(2))  # its program is there
    assert due == ["row"]
