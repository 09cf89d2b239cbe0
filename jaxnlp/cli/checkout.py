"""Where the training programs are: in a checkout, not in the installed package.

`jaxnlp train` and its like run them from any folder, and `enable_training` makes them importable. Modules in the
current folder never replace ours, or those of a library: `train.py`, `data/` and `numpy.py` are usual names.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import jaxnlp

MODULES = {
    "train": "train",
    "evaluate": "train.evaluate",
    "report": "train.report",
    "compare": "train.compare",
    "sweep": "train.sweep",
    "lr-find": "train.lr_find",
}
"""The module of each program."""
PACKAGES = ("train", "configs", "data")
"""The packages that only a checkout has."""
SUMMARIES = {
    "train": "Trains a recipe, or resumes its run.",
    "evaluate": "Scores runs on a split or a file.",
    "report": "Rebuilds the report of a run.",
    "compare": "Compares runs on one page.",
    "sweep": "Trains a recipe with several values of its fields.",
    "lr-find": "Suggests a learning rate for a recipe.",
}
TYPED = "JAXNLP_TYPED"
"""The environment variable with the program's name as typed, for usage lines."""


def find_checkout() -> Path | None:
    """The checkout from which this jaxnlp is imported; else the current folder, if it is a checkout; else None."""
    files = ("jaxnlp/cli/checkout.py", "train/__main__.py", "configs/__init__.py", "data/__init__.py")
    for folder in (Path(jaxnlp.__file__).resolve().parent.parent, Path.cwd()):
        if all((folder / file).is_file() for file in files):
            return folder
    return None


def require_checkout(what: str) -> Path:
    """The checkout. Raises: ValueError when there is none; `what` needs it."""
    checkout = find_checkout()
    if checkout is None:
        raise ValueError(
            f"{what} needs a checkout of the repository, which has {', '.join(PACKAGES)}: the installed package has "
            "none of them. Clone the repository, and install it with pip install -e FOLDER"
        )
    return checkout


def program_command(name: str, arguments: Sequence[str], program: str) -> tuple[list[str], dict[str, str]]:
    """The command that runs a program of the checkout in any folder, and its environment.

    Args:
      name: one of `MODULES`.
      arguments: arguments of the program.
      program: its name in messages.

    Raises: ValueError when there is no checkout.
    """
    # Without empty entries, such as in PYTHONPATH=:/x: each would be the current folder. -P leaves it out, too.
    others = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    environ = os.environ | {"PYTHONPATH": os.pathsep.join([str(require_checkout(program)), *others])}
    return [sys.executable, "-P", "-m", MODULES[name], *arguments], environ


def run_in_checkout(name: str, arguments: Sequence[str], program: str) -> NoReturn:
    """Replaces this process by a program of the checkout, which stays in the current folder.

    Args:
      name: one of `MODULES`.
      arguments: arguments of the program.
      program: its name as typed.

    Raises: ValueError when there is no checkout.
    """
    command, environ = program_command(name, arguments, program)
    os.execve(command[0], command, environ | {TYPED: program})


def enable_training() -> None:
    """Makes `train`, `configs` and `data` importable in this process: the checkout comes first on `sys.path`.

    Call it before the first import of one of them. Modules of your own with these names cannot be imported afterwards.

    Raises:
      ValueError: when there is no checkout.
      ImportError: when another module with one of these names is imported already.
    """
    checkout = require_checkout("training in Python")
    for name in PACKAGES:
        module = sys.modules.get(name)
        if module is not None and checkout / name / "__init__.py" != Path(module.__file__ or "").resolve():
            where = module.__file__ or list(module.__path__)
            raise ImportError(f"{name} is imported already, from {where}; call jaxnlp.enable_training() before it")
    sys.path[:] = [str(checkout), *(entry for entry in sys.path if entry != str(checkout))]
