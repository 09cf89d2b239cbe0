"""A lock, so that only one run trains in a folder: process 0 holds it."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from jaxnlp.saving.atomic_files import naming
from train.run import folder as run_folder

LOCK_FILE = run_folder.LOCK_FILE


@contextlib.contextmanager
def locked(workdir: Path) -> Iterator[None]:
    """Holds the lock of a run's folder. The system releases it whenever the process ends.

    A folder that is still empty at the end is removed, with its parents that did not exist before.

    Raises: RunMismatchError when another process holds the lock, or when the folder cannot be that of a run.
    """
    run_folder.check_path(workdir)
    if not run_folder.writes_folder():
        yield
        return
    new = [path for path in (workdir, *workdir.parents) if not path.exists()]
    workdir.mkdir(parents=True, exist_ok=True)
    descriptor = _acquire(workdir)
    try:
        yield
    finally:
        (workdir / LOCK_FILE).unlink(missing_ok=True)
        os.close(descriptor)
        with contextlib.suppress(OSError):  # not empty
            for path in new:
                path.rmdir()


def _acquire(workdir: Path) -> int:
    path = workdir / LOCK_FILE
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.read(descriptor, 20).decode()
            os.close(descriptor)
            raise run_folder.RunMismatchError(
                f"process {holder or 'unknown'} is training in {workdir}; wait for it, or give another --workdir"
            ) from error
        # Between opening and locking, the process that held the lock may have removed the file.
        if path.exists() and path.stat().st_ino == os.fstat(descriptor).st_ino:
            break
        os.close(descriptor)
    os.ftruncate(descriptor, 0)
    with naming(path):
        os.write(descriptor, str(os.getpid()).encode())
    return descriptor
