"""Locks: only one run trains in a folder, and its processes have distinct numbers."""

import contextlib
import fcntl
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from jaxnlp.saving.atomic_files import naming
from train.run import folder as run_folder

LOCK_FILE = run_folder.LOCK_FILE
SECONDS_BETWEEN_TRIES = 0.5


@contextlib.contextmanager
def locked(workdir: Path) -> Iterator[None]:
    """Holds the lock of a run's folder, in process 0. The system releases it whenever the process ends.

    At the end an empty folder is removed, with its new parents.

    Raises: RunMismatchError when another process holds the lock, or when the folder cannot be a run's.
    """
    run_folder.check_path(workdir)
    if not run_folder.writes_folder():
        yield
        return

    with held(workdir, "is training"):
        yield


@contextlib.contextmanager
def held(folder: Path, action: str) -> Iterator[None]:
    """Holds the lock of a folder as `locked`, in every process. Args: action: what the holder does, for the error."""

    def refuse(holder: str) -> None:
        raise run_folder.RunMismatchError(
            f"process {holder or 'unknown'} {action} in {folder}; wait for it, or give another --workdir"
        )

    with _made(folder), _held(folder / LOCK_FILE, str(os.getpid()), refuse):
        yield


@contextlib.contextmanager
def numbered(workdir: Path, number: int, count: int, *, seconds: float) -> Iterator[None]:
    """Holds the number of one of the processes that train a run. JAX would abort both of two with one number.

    The lock is a file next to the run's folder. The system releases it when the process ends, on a network disk perhaps
    later, so this waits, with a message.

    Args:
      workdir: the run's folder.
      number: of this process.
      count: of all processes.
      seconds: to wait for another process with this number.

    Raises: RunMismatchError when there still is one; and when the folder cannot be a run's.
    """
    run_folder.check_path(workdir)
    end, named = time.monotonic() + seconds, False

    def wait(holder: str) -> None:
        nonlocal named
        which = f"process {number} of {count} is there already {holder}"
        if time.monotonic() > end:
            raise run_folder.RunMismatchError(f"{which}; give each process a --process-id of its own")
        if not named:
            line = f"{which}; this one waits for its end, for at most {seconds} s: no two processes can have one number"
            print(line, file=sys.stderr, flush=True)
        named = True
        time.sleep(SECONDS_BETWEEN_TRIES)

    path = _of_number(workdir, number)
    with _made(path.parent), _held(path, f"({socket.gethostname()}, pid {os.getpid()})", wait):
        yield


def absent(workdir: Path, count: int) -> list[int]:
    """The numbers below `count` that no process of a run holds, see `numbered`."""
    found = []
    for number in range(count):
        try:
            with _of_number(workdir, number).open() as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        except FileNotFoundError:
            pass
        found.append(number)
    return found


def _of_number(workdir: Path, number: int) -> Path:
    return workdir.parent / f".{workdir.name}.process-{number}"


@contextlib.contextmanager
def _made(folder: Path) -> Iterator[None]:
    """Makes a folder with its parents, and removes the new ones that are empty at the end."""
    new = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # not empty
            for path in new:
                path.rmdir()


@contextlib.contextmanager
def _held(path: Path, holder: str, refused: Callable[[str], None]) -> Iterator[None]:
    """Holds the lock of a file with the name of its holder.

    Args:
      path: the file, which is removed at the end.
      holder: the name of this process.
      refused: called with the other holder's name while the lock is held; raises, or waits.
    """
    descriptor = _acquire(path, refused)
    try:
        os.ftruncate(descriptor, 0)
        with naming(path):
            os.write(descriptor, holder.encode())
        yield
    finally:
        with contextlib.suppress(OSError):  # such as a folder that cannot be written now: the error before it counts
            if _is_at(path, descriptor):  # a folder that was moved has taken its lock with it
                path.unlink()
        os.close(descriptor)


def _acquire(path: Path, refused: Callable[[str], None]) -> int:
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, 1000).decode()
            os.close(descriptor)
            refused(holder)
            continue
        # Between opening and locking, the process that held the lock may have removed the file.
        if _is_at(path, descriptor):
            return descriptor
        os.close(descriptor)


def _is_at(path: Path, descriptor: int) -> bool:
    """Whether an open file is the one at this path."""
    return path.exists() and os.path.samestat(path.stat(), os.fstat(descriptor))
