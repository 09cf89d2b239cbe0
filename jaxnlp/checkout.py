"""Programs that only a checkout has, not the installed package: in a checkout, `jaxnlp train` is `python -m train`."""

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
    """The folder with the training programs: the current folder, or the folder of an editable installation, or None."""
    for folder in (Path.cwd(), Path(jaxnlp.__file__).resolve().parent.parent):
        if (folder / "train" / "__main__.py").is_file() and (folder / "configs" / "__init__.py").is_file():
            return folder
    return None


def run_in_checkout(name: str, arguments: Sequence[str], program: str) -> NoReturn:
    """Replaces this process by a program of the checkout, which stays in the current folder.

    Args:
      name: one of `MODULES`.
      arguments: arguments of the program.
      program: its name as typed.

    Raises: ValueError when there is no checkout.
    """
    checkout = find_checkout()
    if checkout is None:
        raise ValueError(
            f"{program} needs a checkout of the repository, which has train and configs: the installed package has "
            "neither. Clone the repository, and run the command in its folder"
        )
    path = os.pathsep.join(filter(None, [str(checkout), os.environ.get("PYTHONPATH")]))
    environ = os.environ | {TYPED: program, "PYTHONPATH": path}
    os.execve(sys.executable, [sys.executable, "-m", MODULES[name], *arguments], environ)
