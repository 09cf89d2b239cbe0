"""Finds public data sets, in a given path, the user's folder or the cache, and downloads them with their checksums.

`jaxnlp download` lists the data sets, `jaxnlp download NAME` downloads one.
"""

import contextlib
import gzip
import hashlib
import logging
import os
import shutil
import sys
import tempfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path, PurePosixPath
from typing import Annotated, Any
from urllib.parse import urljoin, urlsplit

import pooch
import tyro
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from data import short_reason
from data.data_sets import DATA_SETS, DataSet, RemoteFile
from jaxnlp.cli.messages import program_name, reason
from jaxnlp.cli.options import read_options
from jaxnlp.cli.suggestions import suggestion
from jaxnlp.inference.caches import cache_folder

_logger = logging.getLogger(__name__)

MOST_BYTES = 2**28
"""Maximum size of a download, also uncompressed. No data set of the list comes near."""

(TINY_SHAKESPEARE,) = DATA_SETS["tinyshakespeare"].remote


class DataNotFoundError(FileNotFoundError):
    """A data set's file is not found; the message says what to do."""


def locate(file: RemoteFile, path: str | Path | None = None) -> Path:
    """Path of a data set's file, downloaded into the cache if it is not found.

    The order: `path`, the folder JAXNLP_DATA, the cache, a download. Files in the first two are the user's own and are
    not checked. A cached file with another checksum is downloaded again.

    Args:
      file: which file.
      path: the user's own copy; None = look for it.

    Raises: DataNotFoundError, with the places, the reason and the remedy, when `path` is not a file, JAXNLP_DATA not a
    directory, or the file is not found and cannot be downloaded.
    """
    if path is not None:
        given = Path(path)
        if not given.is_file():
            raise DataNotFoundError(
                f"{file.name}: there is no file at {str(path)!r}; give an existing file with --data.path, "
                f"or remove --data.path to search JAXNLP_DATA and the cache and to download"
            )
        return given

    searched = "JAXNLP_DATA is not set"
    if (own := own_folder(file.name)) is not None:
        if (own_path := own / file.relative_path).is_file():
            return own_path
        searched = f"not in JAXNLP_DATA at {own_path}"

    cached = cached_data() / file.relative_path
    searched += f", not in the cache at {cached}"
    if cached.is_file():
        if digest_of(cached) == file.sha256:
            return cached
        searched += " (damaged: its SHA-256 differs)"
        _logger.warning("%s: %s is damaged (its SHA-256 differs) and is downloaded again", file.name, cached)
    try:
        _download(file, cached)
    except (OSError, ValueError) as error:  # whatever requests raises is an OSError
        raise DataNotFoundError(
            f"{file.name}: {searched}, and the download from {file.url} failed ({_reason(error)}); "
            f"set JAXNLP_DATA to a folder that contains {file.relative_path}, or give its path with --data.path"
        ) from error
    return cached


def locate_folder(name: str, path: str | None, *, holds: str, otherwise: str, takes_path: bool = True) -> Path:
    """Path of a data set's folder, which is never downloaded here: `path`, or else one in JAXNLP_DATA or the cache.

    Args:
      name: of the folder in JAXNLP_DATA and in the cache.
      path: the user's own folder; None = look for it.
      holds: its required content, such as "train.txt and valid.txt".
      otherwise: the alternative to this folder, which messages name first if `path` is a file.
      takes_path: whether --data.path gives `path`.

    Raises: DataNotFoundError when there is none, with the places and the remedies.
    """
    if path is not None:
        folder, give = Path(path), f"give a folder that contains {holds} with --data.path"
        if folder.is_file():
            raise DataNotFoundError(f"{folder} is a file, not a folder; {otherwise}, or {give}")
        if not folder.is_dir():
            raise DataNotFoundError(f"there is no folder {folder}; {give}, or {otherwise}")
        return folder
    own, cached = own_folder(name), cached_data() / name
    if own is not None and (own / name).is_dir():
        return own / name
    if cached.is_dir():
        return cached
    known = DATA_SETS.get(name)
    wanted = f"{own / name}" if own is not None else f"a folder {name} in a folder that JAXNLP_DATA names"
    if known is None:
        remedy = f"copy {holds} to {wanted}"
    elif known.remote:
        remedy = f"download it from {known.page} with jaxnlp download {name}"
    else:
        remedy = f"get it from {known.page}, as docs/data.md says, and copy {holds} to {wanted}"
    give = "give its folder with --data.path, " if takes_path else ""
    searched = "JAXNLP_DATA is not set" if own is None else f"there is no folder {own / name}"
    raise DataNotFoundError(
        f"the data set {name} is not found: {searched}, and there is no folder {cached}; {remedy}, {give}or {otherwise}"
    )


def own_folder(name: str) -> Path | None:
    """The folder JAXNLP_DATA. Raises: DataNotFoundError, naming the data set, when it is not a directory."""
    if not (own := os.environ.get("JAXNLP_DATA")):
        return None
    if not (folder := Path(own).expanduser()).is_dir():
        raise DataNotFoundError(f"{name}: JAXNLP_DATA is {own!r}, which is not a directory; correct or unset it")
    return folder


def cached_data() -> Path:
    """The cache's folder of data sets."""
    return cache_folder() / "data"


def digest_of(path: Path) -> str | None:
    """SHA-256 of a file's content, uncompressed where its name ends in .gz; None = not a gzip file, or more than
    `MOST_BYTES`."""
    opener: Any = gzip.open if path.suffix == ".gz" else open
    digest, left = hashlib.sha256(), MOST_BYTES
    try:
        with opener(path, "rb") as stream:
            while chunk := stream.read(2**18):
                digest.update(chunk)
                left -= len(chunk)
                if left < 0:
                    return None
    except (gzip.BadGzipFile, EOFError, zlib.error):
        return None
    return digest.hexdigest()


def fetch(data_set: DataSet, folder: Path, progress: Progress | None = None) -> int:
    """Downloads the files that the folder of a data set lacks, all or nothing. Returns: their number.

    Args:
      data_set: to download.
      folder: of its files; created if it does not exist.
      progress: shows a bar for each file; None = no bars.

    Raises:
      DataNotFoundError: when nothing can be downloaded, a download fails, or a checksum differs.
      FileExistsError: when a file in the folder has other content; nothing is overwritten.
    """
    if not data_set.remote:
        raise DataNotFoundError(
            f"{data_set.name} cannot be downloaded from here: get {', '.join(data_set.checksums)} from {data_set.page} "
            f"and copy them to {folder}. {data_set.note}"
        )
    missing = []
    for file in data_set.remote:
        there = folder.parent / file.relative_path
        if not there.is_file():
            missing.append(file)
        elif digest_of(there) != file.sha256:
            raise FileExistsError(f"{there} has other content (its SHA-256 differs); move or delete it first")
    if not missing:
        return 0
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{data_set.name}-", dir=folder.parent) as temporary:
        for file in missing:
            try:
                _download(file, Path(temporary, file.relative_path), progress)
            except (OSError, ValueError) as error:
                raise DataNotFoundError(
                    f"{data_set.name}: the download from {file.url} failed ({_reason(error)})"
                ) from error
        for file in missing:
            there = folder.parent / file.relative_path
            there.parent.mkdir(parents=True, exist_ok=True)
            os.replace(Path(temporary, file.relative_path), there)
    return len(missing)


class _Bar:
    """Counts the bytes of a download, and shows them in a bar of rich. It has pooch's interface."""

    def __init__(self, progress: Progress, name: str):
        self._progress = progress
        self._task = progress.add_task(name, total=None)
        self._begun = self._received = 0

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "total":  # of what still comes; 0 = the server does not say
            self._progress.update(self._task, total=self._begun + value if value else None)
        else:
            super().__setattr__(name, value)

    def update(self, count: int) -> None:
        """Adds bytes. Raises: ValueError for more than `MOST_BYTES`."""
        self._received += count
        if self._received > MOST_BYTES:
            raise ValueError(f"it has more than {MOST_BYTES // 2**20} MB")
        self._progress.advance(self._task, count)

    def begin(self, count: int) -> None:
        """Notes the number of existing bytes."""
        self._begun = count
        self.reset()

    def reset(self) -> None:
        """Restarts from the existing bytes."""
        self._received = self._begun
        self._progress.update(self._task, completed=self._begun)

    def close(self) -> None:
        """The bar stays."""


def _download(file: RemoteFile, destination: Path, progress: Progress | None = None) -> None:
    _logger.info("%s: downloading %s to %s", file.name, file.url, destination)
    destination.parent.mkdir(parents=True, exist_ok=True)
    # Each process has its own folder. The checked file is moved to its path in one step.
    with tempfile.TemporaryDirectory(prefix=".download-", dir=destination.parent) as temporary:
        served = Path(temporary, PurePosixPath(urlsplit(file.url).path).name or "served")
        _receive(file, served, _Bar(progress or Progress(disable=True), file.relative_path))
        if (digest := digest_of(served)) != file.sha256:
            problem = (
                f"it is not a gzip file of at most {MOST_BYTES // 2**20} MB"
                if digest is None
                else f"its SHA-256 is {digest}"
            )
            raise ValueError(f"{problem}, expected {file.sha256}")
        whole = served
        if destination.suffix == ".gz" and served.suffix != ".gz":
            whole = Path(temporary, f"{served.name}.gz")
            with served.open("rb") as plain, gzip.open(whole, "wb") as compressed:
                shutil.copyfileobj(plain, compressed)
        os.replace(whole, destination)


def _receive(file: RemoteFile, served: Path, bar: _Bar) -> None:
    """Writes the server's content after an interrupted transfer's part, and keeps its own part if interrupted."""
    part = cached_data() / ".unfinished" / file.sha256
    with contextlib.suppress(FileNotFoundError):  # there is none, or another process has just taken it
        shutil.move(part, served)
    try:
        with served.open("ab") as stream:

            def begin(response: Any, **_: Any) -> None:
                _refuse_plain_http(response)
                if response.status_code in (HTTPStatus.OK, HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE):
                    stream.truncate(0)
                bar.begin(served.stat().st_size)

            seconds_to_connect_and_to_read = (10, 60)
            get = pooch.HTTPDownloader(
                chunk_size=2**16,
                timeout=seconds_to_connect_and_to_read,
                headers={"Accept-Encoding": "identity"} | ({"Range": f"bytes={n}-"} if (n := stream.tell()) else {}),
                hooks={"response": begin},
                progressbar=bar,
            )
            get(file.url, stream, None)
    except (OSError, KeyboardInterrupt):
        if served.stat().st_size:
            part.parent.mkdir(exist_ok=True)
            shutil.move(served, part)
        raise


def _reason(error: Exception) -> str:
    """The cause of an error in one short line; errors of requests have urllib3's, with the cause as `reason`."""
    return short_reason(getattr(error.args[0], "reason", error) if error.args else error)


def _refuse_plain_http(response: Any, **_: Any) -> None:
    """Runs on every response before its redirect is followed."""
    target = urljoin(response.url, response.headers.get("location", ""))
    if urlsplit(target).scheme != "https":
        raise ValueError(f"redirected to {target}, which is not https")


def folders_of(data_set: DataSet) -> dict[str, Path]:
    """The possible folders of a data set in search order: "JAXNLP_DATA" if it is set, and "the cache"."""
    own = own_folder(data_set.name)
    places = {} if own is None else {"JAXNLP_DATA": own / data_set.name}
    return {**places, "the cache": cached_data() / data_set.name}


def state_of(data_set: DataSet) -> str:
    """The available files of a data set, or where to get them, in a few words."""
    needed = [file.relative_path.partition("/")[2] for file in data_set.remote] or list(data_set.checksums)
    states = []
    for location, folder in folders_of(data_set).items():
        count = sum((folder / name).is_file() for name in needed)
        if count == len(needed):
            return f"in {location}"
        if count:
            states.append(f"{count} of {len(needed)} files in {location}")
    states.append("to download" if data_set.remote else f"by hand, from {data_set.page}")
    return "; ".join(states)


def print_list() -> None:
    """Prints one line a data set."""
    width = max(map(len, DATA_SETS))
    for name, data_set in DATA_SETS.items():
        print(f"{name:{width}}  {data_set.megabytes:4.1f} MB  {state_of(data_set)}")
    print("jaxnlp download NAME downloads a data set; docs/data.md has titles, addresses and licences")


def check(data_sets: Sequence[DataSet]) -> bool:
    """Compares the available files with their checksums, and prints the results. Returns: whether all are equal."""
    equal = True
    for data_set in data_sets:
        for location, folder in folders_of(data_set).items():
            there = {name: folder / name for name in data_set.checksums if (folder / name).is_file()}
            different = [name for name, path in there.items() if digest_of(path) != data_set.checksums[name]]
            for name in different:
                print(f"{there[name]}: its SHA-256 differs from the one in data/data_sets.toml")
            equal = equal and not different
            if there:
                count = len(there) - len(different)
                print(f"{data_set.name} in {location}: {count} of {len(there)} files have the right checksum")
    return equal


def find_data_sets(names: Sequence[str]) -> list[DataSet]:
    """The data sets of these names. Raises: ValueError for an unknown name, with a similar one."""
    for name in names:
        if name not in DATA_SETS:
            raise ValueError(f"there is no data set {name!r}; {suggestion(name, DATA_SETS)}")
    return [DATA_SETS[name] for name in names]


@dataclass(frozen=True)
class Options:
    """Downloads public data sets to the folder that JAXNLP_DATA names, or else to the cache."""

    names: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="[NAME ...]")] = ()
    """Names of data sets, as --list shows them."""
    list: tyro.conf.FlagCreatePairsOff[bool] = False
    """List the data sets, and where each is on this machine, as a command without names does."""
    check: tyro.conf.FlagCreatePairsOff[bool] = False
    """Compare the files on this machine with their checksums; without names, those of all data sets."""


def run(options: Options, console: Console) -> int:
    """Runs a command. Returns: the exit status."""
    chosen = find_data_sets(options.names)
    if options.check:
        return 0 if check(chosen or list(DATA_SETS.values())) else 1
    if options.list or not chosen:
        print_list()
        return 0
    for data_set in chosen:
        folder = next(iter(folders_of(data_set).values()))
        console.print(f"{data_set.name}: {data_set.title}, from {data_set.page}", highlight=False, soft_wrap=True)
        console.print(f"licence: {data_set.licence}", highlight=False, soft_wrap=True)
        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        with Progress(*columns, console=console) as progress:
            count = fetch(data_set, folder, progress)
        what = f"{count} files downloaded" if count else "nothing to download"
        console.print(f"{what}; {data_set.name} is in {folder}", highlight=False, soft_wrap=True)
        if data_set.by_hand:
            print(f"not downloaded: {', '.join(data_set.by_hand)}. {data_set.note}")
    return 0


def main(arguments: Sequence[str]) -> int:
    """Exit status: 0 done, 1 a download failed or a checksum differs, 130 interrupted. Raises: ValueError."""
    program = f"{program_name()} download"
    (options,) = read_options([Options], arguments, program=program, description=Options.__doc__ or "")
    try:
        return run(options, Console(markup=False, emoji=False))
    except BrokenPipeError:  # no failed download: the reader of the output has seen enough
        raise
    except OSError as error:
        print(f"error: {reason(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; no file was left half written", file=sys.stderr)
        return 130
