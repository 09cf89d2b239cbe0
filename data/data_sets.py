"""The public data sets of recipes and tests: sources, files, checksums and licences."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath
from types import MappingProxyType
from urllib.parse import urlsplit

TABLE = Path(__file__).with_name("data_sets.toml")


@dataclass(frozen=True)
class RemoteFile:
    """A file of a public data set, identified by its checksum.

    Attributes:
      name: in messages.
      relative_path: in the folder JAXNLP_DATA and under the cache's `data/`, such as `set/train.txt`.
      url: of the download, https only.
      sha256: checksum of its content, 64 lower-case hex digits; for a relative_path in .gz, of the uncompressed
        content. Such a file is compressed after the download if the url does not end in .gz.
    """

    name: str
    relative_path: str
    url: str
    sha256: str

    def __post_init__(self) -> None:
        path = PureWindowsPath(self.relative_path)  # both slashes separate, and drives are absolute
        if not path.name or path.anchor or ".." in path.parts:
            raise ValueError(f"relative_path is {self.relative_path!r}, expected a relative path without '..'")
        address = urlsplit(self.url)
        if address.scheme != "https" or not address.hostname:
            raise ValueError(f"url is {self.url!r}, expected an address that begins with https://")
        if not re.fullmatch("[0-9a-f]{64}", self.sha256):
            raise ValueError(f"sha256 is {self.sha256!r}, expected 64 lower-case hex digits")


@dataclass(frozen=True)
class DataSet:
    """One public data set.

    Attributes:
      name: of its folder in JAXNLP_DATA and in the cache.
      title: a short description.
      page: address of its page.
      licence: as far as known.
      megabytes: size of its files.
      checksums: SHA-256 of each file's content by name, as in `RemoteFile`.
      remote: the files that can be downloaded; () = none.
      note: how to get the other files; "" = all can be downloaded.
    """

    name: str
    title: str
    page: str
    licence: str
    megabytes: float
    checksums: Mapping[str, str]
    remote: tuple[RemoteFile, ...]
    note: str

    @property
    def by_hand(self) -> tuple[str, ...]:
        """Names of the files that cannot be downloaded."""
        remote = {file.relative_path for file in self.remote}
        return tuple(name for name in self.checksums if f"{self.name}/{name}" not in remote)


def read_data_sets(table: Path = TABLE) -> Mapping[str, DataSet]:
    """The data sets of a table, by name; the comment at the top of data_sets.toml describes it.

    Raises: ValueError, KeyError, TypeError for another table.
    """
    return MappingProxyType(
        {name: _data_set(name, **entry) for name, entry in tomllib.loads(table.read_text(encoding="utf-8")).items()}
    )


def _data_set(
    name: str,
    *,
    title: str,
    page: str,
    licence: str,
    megabytes: float,
    files: dict[str, str],
    address: str | None = None,
    served: Mapping[str, str] = MappingProxyType({}),
    note: str = "",
) -> DataSet:
    if unknown := served.keys() - files.keys():
        raise ValueError(f"{name}: served names {', '.join(sorted(unknown))}, which files does not have")
    remote = []
    for file, sha256 in files.items():
        there = served.get(file, file)
        if address is not None and there:
            remote.append(RemoteFile(name, f"{name}/{file}", address + there, sha256))
    return DataSet(name, title, page, licence, megabytes, MappingProxyType(files), tuple(remote), note)


DATA_SETS = read_data_sets()
