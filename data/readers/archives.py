"""Safe unpacking of untrusted archives."""

import contextlib
import gzip
import lzma
import os
import shutil
import stat
import tarfile
import tempfile
import textwrap
import zipfile
from collections.abc import Generator
from pathlib import Path, PureWindowsPath
from typing import Any


def leads_out(name: str) -> bool:
    """Whether a path is absolute or leaves its folder.

    It uses the rules of Windows, which include those of POSIX: both slashes separate, and drives are absolute.
    """
    path = PureWindowsPath(name)
    return bool(path.anchor) or ".." in path.parts


def short_reason(error: Exception) -> str:
    """The cause in one short line; urllib3 has it under `reason`."""
    cause = getattr(error.args[0], "reason", error) if error.args else error
    return textwrap.shorten(str(cause) or type(cause).__name__, width=240, placeholder=" ...")


def unpack(archive: Path, destination: Path, *, max_bytes: int = 4 * 2**30, max_members: int = 200_000) -> Path:
    """Unpacks an archive into a new folder, atomically.

    An archive may have only folders and plain files, all inside the new folder and each file once; anything else is an
    error. Owners, modes and times are not kept.

    Args:
      archive: a .zip, .tar, .tar.gz, .tgz or .tar.xz.
      destination: the folder to create; must not exist.
      max_bytes: maximum number of uncompressed bytes, a tar's headers included.
      max_members: maximum number of files and folders.

    Returns:
      destination.

    Raises:
      FileExistsError: when destination exists.
      ValueError: when the archive is unsafe, too large, damaged or cannot be written; names archive, member and reason.
    """
    if destination.exists():
        raise FileExistsError(f"{destination} exists: delete it, or unpack {archive.name} elsewhere")
    destination.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".unpack-", dir=destination.parent) as temporary:
        folder = Path(temporary) / "whole"  # other users cannot read the temporary folder
        folder.mkdir()
        name = None
        try:
            with contextlib.closing(_members(archive, max_bytes)) as members:
                for number, (name, kind, content) in enumerate(members, start=1):
                    if number > max_members:
                        raise ValueError(f"more than {max_members} members")
                    if leads_out(name):
                        raise ValueError("its path leaves the folder")
                    if kind == "other":
                        raise ValueError("neither a plain file nor a folder")
                    target = folder / name
                    (target if kind == "folder" else target.parent).mkdir(parents=True, exist_ok=True)
                    if kind == "file":
                        # The file system decides which names are equal: mode "x" fails if a name occurs twice.
                        with target.open("xb") as copy:
                            shutil.copyfileobj(content, copy)
        except Exception as error:  # for damaged bytes the parsers raise a dozen unrelated types
            raise ValueError(f"cannot unpack {archive}, last member read {name!r}: {short_reason(error)}") from error
        os.rename(folder, destination)
    return destination


def _members(archive: Path, max_bytes: int) -> Generator[tuple[str, str, Any]]:
    """Yields (name, "file" or "folder" or "other", a file's content) of each member."""
    metered: Any = _Metered(max_bytes)
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive) as zipped:
            for info in zipped.infolist():
                plain = stat.S_IFMT(info.external_attr >> 16) in (0, stat.S_IFREG)
                kind = "folder" if info.is_dir() else "file" if plain else "other"
                with zipped.open(info) as metered.stream:
                    yield info.filename, kind, metered
        return
    openers: dict[str, Any] = {".tar": open, ".gz": gzip.open, ".tgz": gzip.open, ".xz": lzma.open}
    if archive.suffix not in openers:
        raise ValueError("expected .zip, .tar, .tar.gz, .tgz or .tar.xz")
    with openers[archive.suffix](archive, "rb") as metered.stream:
        with tarfile.open(fileobj=metered, mode="r|") as tar:
            for member in tar:
                plain = member.isreg() and not member.issparse()  # the holes of a sparse file are not counted
                kind = "folder" if member.isdir() else "file" if plain else "other"
                yield member.name, kind, tar.extractfile(member) if plain else None
        while metered.read(2**16):  # up to the checksum at the end of the compression
            pass


class _Metered:
    """A stream with a limit on the bytes read, because the sizes in an archive's headers may be wrong."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.count = 0
        self.stream: Any = None

    def read(self, size: int) -> bytes:
        chunk = self.stream.read(size)
        self.count += len(chunk)
        if self.count > self.limit:
            raise ValueError(f"more than {self.limit} bytes uncompressed")
        return chunk
