"""UTF-8 for a process whose locale is ASCII."""

import os
import sys


def restart_in_utf8() -> None:
    """Restarts the process in Python's UTF-8 mode if its locale is ASCII, as with LC_ALL=C and PYTHONUTF8=0.

    Otherwise non-ASCII arguments, file names and output are errors.
    """
    if sys.getfilesystemencoding() == "ascii" and os.environ.get("PYTHONUTF8") != "1":
        os.execve(sys.executable, sys.orig_argv, os.environ | {"PYTHONUTF8": "1"})
