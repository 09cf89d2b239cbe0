"""The command line of training: recipes by name, config fields by tyro, suggestions for misspelt names."""

import dataclasses
import re
import shlex
import sys
from pathlib import Path
from typing import TypeVar

from rich.console import Console

from data import DataError
from jaxnlp.cli.options import read_options
from jaxnlp.cli.suggestions import similar_options
from jaxnlp.config import Config
from jaxnlp.ops.checks import UnavailableError
from jaxnlp.runs import read_config
from jaxnlp.saving.checkpoints import RunError
from jaxnlp.saving.serialization import ConfigError, differences, to_json
from train.cli.help import help_topic, show_topic
from train.config import TrainConfig
from train.parallel import ParallelMode
from train.recipes import UnknownRecipeError, load_recipe, print_overview_if_asked, recipe_docstring, recipe_list
from train.run.begin import typed_config
from train.run.folder import RunMismatchError

Options = TypeVar("Options", bound=Config)


USUAL_NAMES = {
    "lr": "optimizer.learning-rate",
    "learning-rate": "optimizer.learning-rate",
    "wd": "optimizer.weight-decay",
    "weight-decay": "optimizer.weight-decay",
    "bs": "data.batch-size",
    "batch-size": "data.batch-size",
    "steps": "total-steps",
    "max-steps": "total-steps",
    "num-steps": "total-steps",
    "patience": "stop-after",
    "early-stopping": "stop-after",
    "early-stopping-patience": "stop-after",
    "warmup": "optimizer.warmup-steps",
    "grad-clip": "optimizer.max-grad-norm",
    "max-grad-norm": "optimizer.max-grad-norm",
    "output-dir": "workdir",
    "out-dir": "workdir",
    "init": "init-from",
    "resume-from": "resume",
}
"""Options as other programs call them, and as they are called here."""


class UsageError(ValueError):
    """A command that is not valid; the message says what is."""


WRONG_COMMANDS = (
    UsageError,
    UnknownRecipeError,
    ConfigError,
    UnavailableError,
    DataError,
    RunError,
    RunMismatchError,
    FileNotFoundError,
)
"""Errors whose message is printed without a traceback."""


@dataclasses.dataclass(frozen=True)
class RunOptions(Config):
    """Options of one start of a run; they do not change its numbers."""

    usual = ("workdir",)

    workdir: Path | None = None
    """Folder of the run; None = runs/RECIPE. To resume a run, repeat the command, or give only --resume FOLDER."""
    extend: bool = False
    """Allow more total steps than the run was started with, even if its learning-rate schedule depends on their number:
    the remaining steps then follow the longer schedule."""
    parallel: ParallelMode = "jit"
    """How devices share a batch: one jitted step over sharded batches (jit), or pmap."""
    compilation_cache: Path | None = None
    """Compilation cache folder; None = $JAX_COMPILATION_CACHE_DIR, or a folder in jaxnlp's cache."""


def parse(arguments: list[str], options: Options, *, program: str) -> tuple[TrainConfig, Options]:
    """Parses a command: a recipe's name, then fields of its config and of the program's options.

    Exits with status 0 after printing help.

    Args:
      arguments: the command without the program's name.
      options: a dataclass instance with the program's own options at their defaults.
      program: the program's name in messages, such as `python -m train`.

    Returns:
      The config and the options.

    Raises:
      UnknownRecipeError: for an unknown recipe.
      UsageError: for a missing recipe, for unknown fields, and for values that are missing, wrong or refused.
    """
    print_overview_if_asked(arguments, program)
    if arguments == ["--list"]:
        print(recipe_list())
        sys.exit(0)
    name, *fields = arguments
    if name.startswith("-"):
        raise UsageError(f"the first argument must be a recipe, got {name!r}; list the recipes with {program} --help")
    recipe = load_recipe(name)
    return _typed(recipe, options, fields, program=f"{program} {name}")


def refuse_resume(arguments: list[str], program: str) -> None:
    """Raises UsageError, with the command to type, for --resume after a recipe."""
    words = [word for one in arguments[1:] for word in (one.split("=", 1) if one.startswith("--resume=") else [one])]
    if "--resume" in words:
        place = words.index("--resume")
        folder = words[place + 1 : place + 2] or ["FOLDER"]
        command = shlex.join(["--resume", *folder, *words[:place], *words[place + 2 :]])
        raise UsageError(f"--resume is given without a recipe: {program} {command}")


def parse_resumed(arguments: list[str], program: str) -> tuple[TrainConfig, RunOptions]:
    """Parses what follows `--resume`: a run's folder, then fields that differ from the run's.

    Returns: the run's config, as it was given when the run started, with these fields; and the options.

    Raises: UsageError, RunError, ConfigError.
    """
    if not arguments or arguments[0].startswith("-"):
        raise UsageError(f"--resume needs the run's folder: {program} --resume FOLDER")
    folder, *fields = arguments
    read_config(Path(folder))  # names the runs inside, where it is not one
    options = RunOptions(workdir=Path(folder))
    config, options = _typed(typed_config(Path(folder)), options, fields, program=f"{program} --resume {folder}")
    if options.workdir != Path(folder):
        raise UsageError(f"--resume {folder} continues in that folder; remove --workdir")
    return config, options


def _typed(config: TrainConfig, options: Options, fields: list[str], *, program: str) -> tuple[TrainConfig, Options]:
    """A config and options with the fields of a command."""
    try:
        docstring = recipe_docstring(config.recipe)
    except FileNotFoundError:  # a run whose recipe was given by a path, or was renamed since
        docstring = ""
    description = re.sub(r"(?<!\n)\n(?=[A-Z]\w+: )", "\n\n", docstring)  # lines of a paragraph are joined
    topic = help_topic(fields)
    try:
        if topic is not None:
            show_topic(topic, (options, config), program=program, description=description)
            sys.exit(0)
        options, config = read_options(
            (options, config), fields, program=program, description=description, similar=similar
        )
        return config, options
    except ValueError as error:  # raised by a config's check of its fields
        raise UsageError(str(error)) from error


def similar(option: str, known: list[str]) -> list[str]:
    """The known options that are most like one without its dashes, which may have its name in other programs."""
    ours = USUAL_NAMES.get(option.rpartition(".")[2])
    return [ours] if ours in known else similar_options(option, known)


def print_config(console: Console, config: TrainConfig) -> None:
    """Prints the differences between a config and its recipe."""
    try:
        recipe = load_recipe(config.recipe)
    except UnknownRecipeError:  # a run that continues, whose recipe was given by a path
        console.print(f"recipe {config.recipe}", highlight=False)
        return
    changed = differences(to_json(recipe), to_json(config))
    if not changed:
        console.print(f"recipe {config.recipe}, unchanged", highlight=False)
        return
    console.print(f"recipe {config.recipe}, with", highlight=False)
    for line in changed:
        console.print(f"  {line}", highlight=False, markup=False)
