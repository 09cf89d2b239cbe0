"""Commands of jaxnlp in processes of their own, which start in a tenth of a second.

A start is a fork of this process, which has imported everything and has no device yet. A start that is `whole` is a new
process, as a user's: it can be stopped while it imports.
"""

import atexit
import contextlib
import gc
import importlib
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path

DAY = 86_400
MODULES = (
    "matplotlib.backends.backend_svg",
    "matplotlib.pyplot",
    "sklearn.datasets",
    "jaxnlp.cli.verbs",
    "jaxnlp.tasks.export.programs",
    "train.report",
    "train.start",
)


class Start:
    """A process that runs one command, or several that run it together.

    Args:
      words: of the command, without `jaxnlp`.
      output: its standard output is this file, its errors are `output` with the suffix .errors.
      whole: a new process.
      clock: from the moment this file exists, the clock that Python reads is a day behind.
      draws: whether a fork's report has charts; they take half of the time.
      processes: their number; the first one is this one.

    Attributes:
      others: the further processes.
      struck: the one that gets signals.
    """

    def __init__(
        self,
        words: list[str],
        output: Path,
        *,
        whole: bool = False,
        clock: Path | None = None,
        draws: bool = True,
        processes: int = 1,
    ):
        self._output = output
        self.others: list[Start] = []
        self.struck = self
        if processes > 1:
            words = [*words, "--coordinator", f"127.0.0.1:{free_port()}", "--num-processes", str(processes)]
            for number in range(1, processes):
                own = output.with_stem(f"{output.stem}-{number}")
                self.others.append(Start([*words, "--process-id", str(number)], own, whole=whole, draws=draws))
            words = [*words, "--process-id", "0"]
        self.status: int | None = None
        self.whole = whole
        sys.stdout.flush()
        if whole:
            with output.open("w") as out, self.errors_path.open("w") as errors:
                command = [sys.executable, "-m", "jaxnlp", *words]
                self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=errors)
            self.pid = self._process.pid
            return
        self.pid = os.fork()
        if self.pid == 0:
            _become(words, output, self.errors_path, clock, draws)

    @property
    def errors_path(self) -> Path:
        return self._output.with_suffix(".errors")

    @property
    def output(self) -> str:
        return self._output.read_text(encoding="utf-8", errors="replace")

    @property
    def errors(self) -> str:
        return self.errors_path.read_text(encoding="utf-8", errors="replace")

    def ended(self) -> bool:
        """Whether all processes have ended."""
        return all([self._ended(), *(other.ended() for other in self.others)])

    def _ended(self) -> bool:
        """Whether this process has ended; its `status` is known then, a signal's number as a negative one."""
        if self.status is None and self.whole:
            self.status = self._process.poll()
        elif self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(status)
        return self.status is not None

    def wait(self, seconds: float) -> bool:
        """Whether it ends within this time."""
        return self.wait_until(lambda: False, seconds) or self.ended()

    def wait_until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Whether the condition holds within this time, before the process ends."""
        end = time.monotonic() + seconds
        while not self.ended() and time.monotonic() < end:
            if condition():
                return True
            time.sleep(0.001)
        return False

    def send(self, number: int) -> None:
        """Sends a signal, if the process still runs."""
        if not self.struck._ended():
            os.kill(self.struck.pid, number)

    def kill(self) -> None:
        """Kills all, and waits for their end."""
        for process in (self, *self.others):
            for number in (signal.SIGCONT, signal.SIGKILL):
                if not process._ended():
                    os.kill(process.pid, number)
        self.wait(60)

    def children(self) -> list[int]:
        """Processes that make batches."""
        found = []
        for task in Path(f"/proc/{self.pid}/task").glob("*/children"):
            for pid in task.read_text().split():
                with contextlib.suppress(OSError):
                    if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes():
                        found.append(int(pid))
        return found


def free_port() -> int:
    """A port of this machine that nobody uses."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _become(words: list[str], output: Path, errors: Path, clock: Path | None, draws: bool) -> None:
    """Runs the command in this fork, and ends it as Python does."""
    status = 70
    try:
        for number, path in ((1, output), (2, errors)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        logging.getLogger().handlers.clear()  # a program begins with none
        if clock is not None:
            _slow(clock)
        if not draws:
            _draw_nothing()
        import jaxnlp.__main__

        sys.argv = ["jaxnlp", *words]
        sys.modules["__main__"] = jaxnlp.__main__  # processes that make batches import it
        status = jaxnlp.__main__.main(words)
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else 1
    except BaseException:
        traceback.print_exc()
        status = 1
    finally:
        try:
            threading._shutdown()
            atexit._run_exitfuncs()
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(status)


def _slow(clock: Path) -> None:
    """Sets the clock back for Python in this process; the kernel's is everybody's."""
    real, real_ns = time.time, time.time_ns
    time.time = lambda: real() - DAY * clock.exists()
    time.time_ns = lambda: real_ns() - DAY * 10**9 * clock.exists()


def _draw_nothing() -> None:
    from matplotlib.figure import Figure

    Figure.savefig = lambda self, stream, **_: stream.write('<svg viewBox="0 0 9 9"></svg>')


def import_everything() -> None:
    """Imports what starts need, so that none of them has to; no device, and no thread."""
    for name in MODULES:
        importlib.import_module(name)
    from train.recipes import load_recipe, recipe_names

    for name in recipe_names():
        load_recipe(name)
    assert threading.active_count() == 1
    gc.collect()
    gc.freeze()
    gc.set_threshold(200_000, 50, 1_000)
