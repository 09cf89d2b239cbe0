"""A full disk."""

import contextlib
import resource
from collections.abc import Iterator


@contextlib.contextmanager
def small_disk() -> Iterator[None]:
    """Files may have a hundred bytes: a write of more takes a part, and then there is an error, as on a full disk.

    A test leaves this context itself: a fixture would end after pytest has printed the result, perhaps to a file.
    """
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
