import os
import signal
import subprocess
import sys
import time

import pytest

from jaxnlp.cli import interrupts
from jaxnlp.cli.interrupts import no_interrupt_is_lost
from jaxnlp.cli.messages import exit_status, reason

IMPORTS = """
import signal, sys
from jaxnlp.cli.interrupts import end_at_interrupt, raise_at_interrupt
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever starts the tests may ignore it
end_at_interrupt()
try:
    signal.raise_signal(signal.SIGINT) if sys.argv[1] == "early" else raise_at_interrupt()
    signal.raise_signal(signal.SIGINT)
except KeyboardInterrupt:
    print("raised")
"""


@pytest.mark.parametrize(
    ("when", "status", "output", "errors"),
    [("early", 130, "", "interrupted; nothing was started\n"), ("later", 0, "raised\n", "")],
)
def test_an_interrupt_during_imports_ends_the_process_with_a_line_and_is_raised_later(when, status, output, errors):
    command = [sys.executable, "-c", IMPORTS, when]
    found = subprocess.run(command, capture_output=True, text=True)
    assert (found.returncode, found.stdout, found.stderr) == (status, output, errors)


EARLY = """
import os, runpy, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
class Finder:
    def find_spec(name, *_):
        if name == "jaxnlp.cli.messages":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder)
sys.argv = ["jaxnlp", "--version"]
runpy.run_module("jaxnlp", run_name="__main__")
"""
RESTARTED = """
import os, signal, sys
from jaxnlp.cli.interrupts import hold_interrupts
hold_interrupts()
signal.signal(signal.SIGINT, signal.default_int_handler)
os.kill(os.getpid(), signal.SIGINT)
os.execv(sys.executable, [sys.executable, "-m", "jaxnlp", "--version"])
"""


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="signals wait on POSIX systems")
@pytest.mark.parametrize("program", [EARLY, RESTARTED], ids=["early", "restarted"])
def test_an_interrupt_before_the_first_line_or_during_a_restart_is_a_line(program):
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (found.returncode, found.stdout, found.stderr) == (130, "", "interrupted; nothing was started\n")


class Callback:
    """Python drops the errors of its end."""

    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1_000):  # the handler runs here
            pass


@pytest.fixture
def interrupts_are_raised():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_that_a_callback_drops_ends_the_program(interrupts_are_raised, capsys):
    def program():
        callback = Callback()
        del callback
        for _ in range(400):
            time.sleep(0.05)

    assert exit_status(program) == 130
    assert capsys.readouterr() == ("\n", "")


def test_other_dropped_errors_are_shown_as_before(monkeypatch):
    seen = []
    monkeypatch.setattr(sys, "unraisablehook", seen.append)

    class Wrong:
        def __del__(self):
            raise ZeroDivisionError

    with no_interrupt_is_lost():
        wrong = Wrong()
        del wrong
    assert [dropped.exc_type for dropped in seen] == [ZeroDivisionError]
    assert sys.unraisablehook == seen.append


def test_an_interrupt_that_is_ignored_stays_ignored(interrupts_are_raised):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    interrupts.end_at_interrupt()
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


DROPS = """
import time
from jaxnlp.cli.interrupts import no_interrupt_is_lost
class Callback:
    def __del__(self):
        raise MemoryError
with no_interrupt_is_lost():
    callback = Callback()
    del callback
    time.sleep(60)
    print("goes on")
"""


def test_a_lack_of_memory_that_a_callback_drops_ends_the_process_with_the_line_of_any_other():
    found = subprocess.run([sys.executable, "-c", DROPS], capture_output=True, text=True)
    assert (found.returncode, found.stdout) == (2, "")
    assert found.stderr == f"error: {reason(MemoryError())}\n" == interrupts.NO_MEMORY.decode()


HAS_NO_FRAME = """
import re, resource
from pathlib import Path
from jaxnlp.cli.interrupts import no_interrupt_is_lost

class Callback:
    def __del__(self):
        pass

def deeper():
    callback = Callback()
    del callback
    deeper()

with no_interrupt_is_lost():
    kilobytes = int(re.search(r"VmSize:\\s*(\\d+)", Path("/proc/self/status").read_text())[1])
    resource.setrlimit(resource.RLIMIT_AS, (1024 * kilobytes, 1024 * kilobytes))
    deeper()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is that of Linux")
def test_without_memory_for_a_frame_the_line_is_still_the_only_one():
    found = subprocess.run([sys.executable, "-c", HAS_NO_FRAME], capture_output=True, text=True)
    assert (found.returncode, found.stderr) == (2, interrupts.NO_MEMORY.decode())
