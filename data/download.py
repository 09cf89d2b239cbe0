"""Finding a public data set's file or folder: a given path, the user's folder, the cache, a checked download."""

import logging
import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urljoin, urlsplit

import pooch

from data.archives import leads_out, short_reason
from jaxnlp.caches import cache_folder

_logger = logging.getLogger(__name__)


class DataNotFoundError(FileNotFoundError):
    """A data set's file is not found; the message says what to do."""


@dataclass(frozen=True)
class RemoteFile:
    """One file of a public data set, the same bytes wherever it is fetched.

    Attributes:
      name: what messages call it.
      relative_path: its path in the folder JAXNLP_DATA and under the cache's `data/`, such as `set/train.txt`.
      url: where it is downloaded from, https only.
      sha256: its checksum, 64 lower-case hex digits.
    """

    name: str
    relative_path: str
    url: str
    sha256: str

    def __post_init__(self) -> None:
        if not PurePosixPath(self.relative_path).name or leads_out(self.relative_path):
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


def locate(file: RemoteFile, path: str | Path | None = None) -> Path:
    """Path of a data set's file, downloaded into the cache if it is not found.

    The order: `path`, the folder JAXNLP_DATA, the cache, a download. The first two are the user's own and
    returned as they are; the cached file's checksum is compared, and a damaged one is downloaded again.

    Args:
      file: which file.
      path: the user's own copy; None = look for it.

    Returns:
      The path of an existing file.

    Raises:
      DataNotFoundError: when `path` is not a file, JAXNLP_DATA not a directory, or the file is not found and cannot be
        downloaded; one line that names the places, the reason and the remedy.
    """
    if path is not None:
        given = Path(path).expanduser()
        if not given.is_file():
            raise DataNotFoundError(
                f"{file.name}: there is no file at {str(path)!r}; give an existing file with --data.path, "
                f"or remove --data.path to search JAXNLP_DATA and the cache and to download"
            )
        return given

    searched = "JAXNLP_DATA is not set"
    if own := os.environ.get("JAXNLP_DATA"):
        folder = Path(own).expanduser()
        if not folder.is_dir():
            raise DataNotFoundError(
                f"{file.name}: JAXNLP_DATA is {own!r}, which is not a directory; correct or unset it"
            )
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
            f"{file.name}: {searched}, and the download from {file.url} failed ({short_reason(error)}); "
            f"set JAXNLP_DATA to a folder that contains {file.relative_path}, or give its path with --data.path"
        ) from error
    return cached


def locate_folder(relative_path: str, path: str | None, *, holds: str, otherwise: str) -> Path:
    """Path of a data set's folder, which is never downloaded: `path`, or else one in the folder JAXNLP_DATA.

    Args:
      relative_path: its path in the folder JAXNLP_DATA.
      path: the user's own folder; None = look for it.
      holds: what it must contain, such as "train.txt and valid.txt".
      otherwise: what the user can do without it.

    Raises:
      DataNotFoundError: when there is none; one line that names the place and the remedies.
    """
    if path is not None:
        folder, remedy = Path(path).expanduser(), f"give a folder that contains {holds} with --data.path"
    elif own := os.environ.get("JAXNLP_DATA"):
        folder, remedy = (
            Path(own).expanduser() / relative_path,
            f"copy {holds} there, or give their folder with --data.path",
        )
    else:
        raise DataNotFoundError(
            f"the data set {relative_path} is not found: give its folder with --data.path, set JAXNLP_DATA to a folder "
            f"that contains {relative_path}, or {otherwise}; docs/data.md says where it comes from"
        )
    if not folder.is_dir():
        raise DataNotFoundError(f"there is no folder {folder}; {remedy}, or {otherwise}")
    return folder


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
