"""Atomic file writes, whose errors name the file."""

import contextlib
import errno
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

_PART = 40
"""Characters of a file's name in the name of its temporary file: file systems allow 255 bytes."""
_logger = logging.getLogger(__name__)

_REASONS = {
    os.strerror(code): code for code in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EIO)
}
"""Errors of a file system, by their texts, the only form in libraries that are not written in Python."""


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """A context in which each error of the file system is an OSError that names this file or folder.

    Python's own errors have no name when a write fails, as on a full disk. Other libraries' are not OSErrors.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, OSError):
            code = error.errno
        else:
            code = next((code for text, code in _REASONS.items() if text in str(error)), None)
        if code is None:
            raise
        raise OSError(code, os.strerror(code), str(path)) from error


class AppendedFile:
    """A file to which records are appended. A record is in the file as soon as `append` returns, or not at all.

    Args: path: of the file; it is created if it does not exist.

    Raises: OSError, as `append`.
    """

    def __init__(self, path: Path):
        self._path = path
        self._file = path.open("ab", buffering=0)

    def append(self, record: bytes) -> None:
        """Appends a record. Raises: OSError naming the file."""
        end, written = os.fstat(self._file.fileno()).st_size, 0
        try:
            with naming(self._path):
                while written < len(record):  # a full disk takes a part, and gives an error only for the rest
                    written += self._file.write(record[written:])
        except OSError:
            self._file.truncate(end)
            raise

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


def write_file(path: Path, content: bytes) -> None:
    """Writes a file atomically, and creates its folders, with a note. Devices and pipes are written directly.

    Raises: OSError naming the file, also if it is a folder.
    """
    if path.exists() and not path.is_file():
        with naming(path):
            path.write_bytes(content)
        return
    if not path.parent.is_dir():
        _logger.info("%s is a new folder", path.parent)
        path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name[:_PART]}.{os.getpid()}")
    try:
        with naming(path):  # not the temporary file
            temporary.write_bytes(content)
            temporary.replace(path)
    finally:
        with contextlib.suppress(OSError):  # as in a folder that cannot be written: the error before has its name
            temporary.unlink(missing_ok=True)


def write_partial(path: Path, content: bytes, what: str) -> None:
    """After a failure, writes the finished part of a file to FILE.partial, with a note. The file itself stays
    unchanged.

    Args:
      path: of the file; nothing is written for a device or a pipe.
      content: of the part.
      what: its items, such as `sentences`.
    """
    if path.exists() and not path.is_file():
        return
    partial = path.with_name(f"{path.stem}.partial{path.suffix}")
    try:
        write_file(partial, content)
    except OSError as error:  # it must not hide the failure
        _logger.warning("%s was not written: %s", partial, error)
        return
    print(f"note: {partial} has only {what} before the failure", file=sys.stderr)


FORMATS = (".csv", ".tsv", ".json", ".jsonl", ".xlsx", ".npy", ".npz", ".html", ".htm", ".svg", ".png", ".jpg", ".pdf")
"""Suffixes by which programs recognise the format of a file."""
PAGES = (".html", ".htm")
"""Suffixes of pages."""


def wrong_format(path: Path, suffixes: Sequence[str]) -> str | None:
    """Why a file's name does not fit its format; None if it does. Args: suffixes: of the format, the usual one
    first."""
    if path.suffix.lower() not in FORMATS or path.suffix.lower() in suffixes:
        return None
    return f"{path} has the format of {suffixes[0]} files; give it a name in {suffixes[0]}"


def require_place(path: Path | None, *suffixes: str, option: str = "--out", inputs: Sequence[Path | None] = ()) -> None:
    """Checks before long work that `write_file` can later write a file.

    Args:
      path: of the file; None passes.
      suffixes: of its format, the usual one first; another format's suffix is refused.
      option: the option for the path, for messages.
      inputs: files that are read, which the file must not replace.

    Raises: OSError naming the path; ValueError for "-", for a name of another format, and for one of the inputs.
    """
    if str(path) == "-":
        raise ValueError(f"{option} expects the name of a file, got -; without {option} the usual place is used")
    if path is not None and path.is_file() and any(one and one.is_file() and path.samefile(one) for one in inputs):
        raise ValueError(f"{option} {path} is the file that is read, which it would replace; give another file")
    if path is not None and suffixes and (problem := wrong_format(path, suffixes)):
        raise ValueError(problem.replace(" has ", " would have ", 1))
    if path is not None and path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if path is None or (path.exists() and not path.is_file()):
        return
    folder = next(parent for parent in (path.parent, *path.parent.parents) if parent.exists())
    if not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
    if not os.access(folder, os.W_OK):
        raise PermissionError(
            f"{path} cannot be written: the folder {folder.resolve()} does not allow it; give another place with "
            f"{option}"
        )


def refuse_contents(folder: Path) -> None:
    """Raises: FileExistsError unless a folder to write is new or empty."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileExistsError(f"{folder} exists and is not empty; give another directory")


@contextlib.contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A context with a temporary folder, which becomes this one at its end, if there was no error.

    Raises: OSError naming the folder.
    """
    with naming(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{folder.name[:_PART]}.", dir=folder.parent))
    try:
        with naming(folder):
            yield partial
        partial.chmod(0o755)  # only the owner can read temporary folders
        partial.replace(folder)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
