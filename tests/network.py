"""A network for tests of downloads: pages by address, and what was asked for."""

import hashlib
import io

import requests
import urllib3

from data.data_sets import RemoteFile
from jaxnlp.inference.caches import cache_folder

CONTENT = b"First Citizen:\nBefore we proceed any further, hear me speak.\n" * 3000
PLAYS = RemoteFile("plays", "plays/input.txt", "https://example.org/plays.txt", hashlib.sha256(CONTENT).hexdigest())


class Network:
    """Stands where requests hands a prepared request to the network: pages by address, and what was asked for."""

    def __init__(self):
        self.pages = {}
        self.asked = []
        self.timeouts = []
        self.ranges = []

    def send(self, adapter, request, timeout=None, **_):
        self.asked.append(request.url)
        self.timeouts.append(timeout)
        self.ranges.append(request.headers.get("Range"))
        if request.url not in self.pages:
            reason = urllib3.exceptions.NewConnectionError(None, "Name or service not known")
            raise requests.ConnectionError(urllib3.exceptions.MaxRetryError(None, request.url, reason))
        status, headers, body = self.pages[request.url]
        body = io.BytesIO(body) if isinstance(body, bytes) else body
        raw = urllib3.HTTPResponse(body, headers, status, preload_content=False)
        return adapter.build_response(request, raw)


class Body:
    """A page that arrives in pieces; something happens before the last one."""

    closed = False

    def __init__(self, pieces, happens):
        self.pieces = list(pieces)
        self.happens = happens

    def read(self, size=None):
        if len(self.pieces) == 1:
            self.happens()
        return self.pieces.pop(0) if self.pieces else b""

    def close(self):
        self.closed = True


def put(folder, content):
    """Writes a file where `PLAYS` is looked for in a folder of data sets; returns its path."""
    path = folder / PLAYS.relative_path
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    return path


def cached_path():
    """The place of `PLAYS` in the cache."""
    return cache_folder() / "data" / PLAYS.relative_path
