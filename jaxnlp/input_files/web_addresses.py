"""Web addresses instead of files, as users of other software may give."""

import os
import re

_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]+:/", re.IGNORECASE)  # a Path has one slash where the address had two


def is_web_address(path: str | os.PathLike[str]) -> bool:
    """Whether a path without a file is a web address."""
    return _ADDRESS.match(os.fspath(path)) is not None


def absence(path: str | os.PathLike[str], thing: str = "file") -> str:
    """Why a path has no file, as the end of a sentence: it does not exist, or is a web address.

    Args: thing: what to download, such as "image".
    """
    if is_web_address(path):
        return f"is a web address; download the {thing}, and give its path"
    return "does not exist"
