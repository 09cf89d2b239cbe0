"""Finding a public data set's file: a given path, the user's folder, the cache, a checked download."""

import contextlib
import gzip
import logging
import lzma
import os
import re
import shutil
import stat
import tarfile
import tempfile
import textwrap
import zipfile
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any
from urllib.parse import urljoin, urlsplit

import pooch

_logger = logging.getLogger(__name__)


class DataNotFoundError(FileNotFoundError):
    """A data set's file is in none of the places where it may lie; the message says what to do."""


def _leads_out(name: str) -> bool:
    """By the rules of Windows, which include those of POSIX: both slashes separate, drives are absolute."""
    path = PureWindowsPath(name)
    return bool(path.anchor) or ".." in path.parts


@dataclass(frozen=True)
class RemoteFile:
    """One file of a public data set, the same bytes wherever it is fetched.

    Attributes:
      name: what messages call it.
      relative_path: where it lies under the folder JAXNLP_DATA and under the cache's `data/`, such as `set/train.txt`.
      url: where it is downloaded from, https only.
      sha256: its checksum, 64 lower-case hex digits.
    """

    name: str
    relative_path: str
    url: str
    sha256: str

    def __post_init__(self) -> None:
        if not PurePosixPath(self.relative_path).name or _leads_out(self.relative_path):
            raise ValueError(f"relative_path is {self.relative_path!r}, expected a relative path without '..'")
        address = urlsplit(self.url)
        if address.scheme != "https" or not address.hostname:
            raise ValueError(f"url is {self.url!r}, expected an address that begins with https://")
        if not re.fullmatch("[0-9a-f]{64}", self.sha256):
            raise ValueError(f"sha256 is {self.sha256!r}, expected 64 lower-case hex digits")


TINY_SHAKESPEARE = RemoteFile(
    name="tinyshakespeare",
    relative_path="tinyshakespeare/input.txt",
    url="https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
    sha256="86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
)


def cache_folder() -> Path:
    """Folder for what can be fetched again: $JAXNLP_CACHE, else $XDG_CACHE_HOME/jaxnlp, else ~/.cache/jaxnlp."""
    if own := os.environ.get("JAXNLP_CACHE"):
        return Path(own).expanduser()
    shared = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification asks for an absolute path and has any other ignored.
    return (Path(shared) if os.path.isabs(shared) else Path.home() / ".cache") / "jaxnlp"


def locate(file: RemoteFile, path: str | Path | None = None) -> Path:
    """Path of a data set's file, downloaded into the cache where it lies nowhere yet.

    The order: `path`, the folder JAXNLP_DATA, the cache, a download. The first two are the user's own and
    returned as they are; the cached file's checksum is compared, and a damaged one is downloaded again.

    Args:
      file: which file.
      path: the user's own copy; None = look for it.

    Returns:
      The path of an existing file.

    Raises:
      DataNotFoundError: when `path` is no file, JAXNLP_DATA no folder, or the file is nowhere and cannot be
        downloaded; one line that names the places, the reason and the remedy.
    """
    if path is not None:
        given = Path(path).expanduser()
        if not given.is_file():
            raise DataNotFoundError(
                f"{file.name}: no file at {str(path)!r}; give --data.path a file that exists, "
                f"or leave it out to search JAXNLP_DATA and the cache and to download"
            )
        return given

    searched = "JAXNLP_DATA is not set"
    if own := os.environ.get("JAXNLP_DATA"):
        folder = Path(own).expanduser()
        if not folder.is_dir():
            raise DataNotFoundError(f"{file.name}: JAXNLP_DATA is {own!r}, which is no folder; correct it or unset it")
        if (found := folder / file.relative_path).is_file():
            return found
        searched = f"not in JAXNLP_DATA at {found}"

    cached = cache_folder() / "data" / file.relative_path
    searched += f", not in the cache at {cached}"
    if cached.is_file():
        if pooch.file_hash(str(cached)) == file.sha256:
            return cached
        searched += " (damaged: its SHA-256 differs)"
        _logger.warning("%s: %s is damaged (its SHA-256 differs) and is downloaded again", file.name, cached)
    try:
        _download(file, cached)
    except (OSError, ValueError) as error:  # whatever requests raises is an OSError
        raise DataNotFoundError(
            f"{file.name}: {searched}, and the download from {file.url} failed ({_reason(error)}); "
            f"set JAXNLP_DATA to a folder that holds {file.relative_path}, or give its path with --data.path"
        ) from error
    return cached


def _download(file: RemoteFile, destination: Path) -> None:
    _logger.info("%s: downloading %s to %s", file.name, file.url, destination)
    destination.parent.mkdir(parents=True, exist_ok=True)
    # A folder of its own for each process; the file appears at its place whole, checked and in one step.
    with tempfile.TemporaryDirectory(prefix=".download-", dir=destination.parent) as temporary:
        partial = os.path.join(temporary, destination.name)
        seconds_to_connect_and_to_read = (10, 60)
        fetch = pooch.HTTPDownloader(
            chunk_size=2**16, timeout=seconds_to_connect_and_to_read, hooks={"response": _refuse_plain_http}
        )
        fetch(file.url, partial, None)
        if (digest := pooch.file_hash(partial)) != file.sha256:
            raise ValueError(f"its SHA-256 is {digest}, expected {file.sha256}")
        os.replace(partial, destination)


def _refuse_plain_http(response: Any, **_: Any) -> None:
    """Runs on every response before its redirect is followed."""
    target = urljoin(response.url, response.headers.get("location", ""))
    if urlsplit(target).scheme != "https":
        raise ValueError(f"redirected to {target}, which is not https")


def _reason(error: Exception) -> str:
    """The cause in one short line: urllib3 hides it at the end of a long one, under `reason`."""
    cause = getattr(error.args[0], "reason", error) if error.args else error
    return textwrap.shorten(str(cause) or type(cause).__name__, width=240, placeholder=" ...")


def unpack(archive: Path, destination: Path, *, max_bytes: int = 4 * 2**30, max_members: int = 200_000) -> Path:
    """New folder with an archive's files, whole or not there at all.

    Folders and plain files are written, each inside the new folder and each file once; anything else in the
    archive refuses the whole of it. Owners, modes and times are not taken over.

    Args:
      archive: a .zip, .tar, .tar.gz, .tgz or .tar.xz.
      destination: the folder to make; must not exist.
      max_bytes: most bytes that may come out of the compression, a tar's headers among them.
      max_members: most files and folders together.

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
        folder = Path(temporary) / "whole"  # the temporary folder itself is closed to other users
        folder.mkdir()
        name = None
        try:
            with contextlib.closing(_members(archive, max_bytes)) as members:
                for number, (name, kind, content) in enumerate(members, start=1):
                    if number > max_members:
                        raise ValueError(f"more than {max_members} members")
                    if _leads_out(name):
                        raise ValueError("it leads out of the folder")
                    if kind == "other":
                        raise ValueError("neither a plain file nor a folder")
                    target = folder / name
                    (target if kind == "folder" else target.parent).mkdir(parents=True, exist_ok=True)
                    if kind == "file":
                        # The file system decides which names are the same: "x" fails where one occurs twice.
                        with target.open("xb") as copy:
                            shutil.copyfileobj(content, copy)
        except Exception as error:  # on damaged bytes the parsers raise a dozen unrelated types
            raise ValueError(f"{archive} not unpacked, last member read {name!r}: {_reason(error)}") from error
        os.rename(folder, destination)
    return destination


def _members(archive: Path, max_bytes: int) -> Generator[tuple[str, str, Any]]:
    """(name, "file" or "folder" or "other", a file's content to read) of each member in turn."""
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
                plain = member.isreg() and not member.issparse()  # the holes of a sparse file are not metered
                kind = "folder" if member.isdir() else "file" if plain else "other"
                yield member.name, kind, tar.extractfile(member) if plain else None
        while metered.read(2**16):  # up to the checksum at the end of the compression
            pass


class _Metered:
    """A stream that fails beyond a limit on what really comes out: the sizes in an archive's headers may lie."""

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
