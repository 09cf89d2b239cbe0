"""Programs for training, such as `jaxnlp train`, which run in any folder.

Modules in the current folder, such as `train.py`, `data/` or `numpy.py`, never replace ours or a library's.
"""

import os
import sys
import time
from collections.abc import Sequence

from jaxnlp.cli.interrupts import raise_at_interrupt
from jaxnlp.cli.messages import program_name, say_that_jax_loads
from jaxnlp.training import import_training

STARTED = time.time()
"""The start time of this program, before it imports JAX, which takes seconds."""
PROGRAMS = {
    "train": ("train.start", "Trains a recipe, or resumes its run."),
    "evaluate": ("train.evaluate", "Scores runs on a split or a file."),
    "report": ("train.report.rebuild", "Rebuilds the report of a run."),
    "average": ("train.average", "Averages the parameters of runs, or of the checkpoints of a run."),
    "compare": ("train.compare", "Compares runs on one page."),
    "sweep": ("train.sweep", "Trains a recipe with several values of its fields."),
    "compile": ("train.compile", "Compiles a recipe for a device that need not be there, and counts."),
    "shardings": ("train.shardings", "Prints what each device of a mesh holds of a recipe."),
    "lr-find": ("train.lr_find", "Suggests a learning rate for a recipe."),
    "download": ("data.download", "Lists public data sets, and downloads them."),
    "invent-people": ("data.invented_people", "Writes articles about invented people, to train on."),
}
"""Each program's module and summary. The module's `main` takes the arguments and returns the exit status."""


def program_summary(program: str) -> str:
    """The summary of a program other than `train`; "" for `train` and unknown names."""
    name = program.rpartition(" ")[2]
    return "" if name in ("train", "") or name not in PROGRAMS else PROGRAMS[name][1]


def run_program(name: str, arguments: list[str]) -> int:
    """Runs one of `PROGRAMS`. Returns: the exit status."""
    module, _ = PROGRAMS[name]
    if name in ("train", "lr-find", "compile", "shardings"):  # without JAX
        status = import_training("train.recipes").show_recipes(
            arguments, f"{program_name()} {name}", program_summary(name)
        )
        if status is not None:
            return status
    if module.startswith("train"):
        say_that_jax_loads(arguments)
    program = import_training(module)
    raise_at_interrupt()
    return program.main(arguments)


def command_of(name: str, arguments: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """The command that runs a program in a process of its own, and its environment, with the same `sys.path`."""
    folders = os.pathsep.join(filter(None, sys.path))
    return [sys.executable, "-P", "-m", "jaxnlp", name, *arguments], os.environ | {"PYTHONPATH": folders}
