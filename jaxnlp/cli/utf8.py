"""UTF-8 for a process whose locale is ASCII."""

import os
import sys


def restart_in_utf8() -> None:
    """Starts the process again in Python's UTF-8 mode if its locale is ASCII, as with LC_ALL=C and PYTHONUTF8=0.

    Other texts, in arguments, names of files and output, would be errors.
    """
    if sys.getfilesystemencoding() == "ascii" and os.environ.get("PYTHONUTF8") != "1":
        os.execve(sys.executable, sys.orig_argv, os.environ | {"PYTHONUTF8": "1"})
