"""Keeps Orbax from changing the user's logging."""

import contextlib
import logging
from collections.abc import Iterator


@contextlib.contextmanager
def logging_unchanged() -> Iterator[None]:
    """A context in which no library adds a handler to Python's root logger.

    absl, Orbax's logger, adds one if there is none: a later `logging.basicConfig` of the user would have no effect, and
    each warning would have a prefix, such as `WARNING:jaxnlp.runs:`.
    """
    root, stand_in = logging.getLogger(), logging.lastResort
    if root.handlers or stand_in is None:
        yield
        return
    root.addHandler(stand_in)
    try:
        yield
    finally:
        root.removeHandler(stand_in)
