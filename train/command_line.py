"""The command line of training: recipes by name, fields by tyro, the nearest name for a wrong one."""

import ast
import dataclasses
import difflib
import importlib
import re
import sys
from pathlib import Path
from typing import Annotated, Any, TypeVar

import tyro
from rich.console import Console

import configs
from data import DataError
from jaxnlp.checkpoints import RunError
from jaxnlp.ops.checks import UnavailableError
from jaxnlp.serialization import ConfigError, differences, to_json
from train.config import TrainConfig
from train.parallel import ParallelMode
from train.run_folder import RunMismatchError

Options = TypeVar("Options")


class UsageError(ValueError):
    """What was typed cannot be done; the message says what can."""


WRONG_COMMANDS = (
    UsageError,
    ConfigError,
    UnavailableError,
    DataError,
    RunError,
    RunMismatchError,
    FileNotFoundError,
)
"""Errors whose message is for those who typed a command: it is printed, without where it was raised."""


@dataclasses.dataclass(frozen=True)
class RunOptions:
    """Where and how this start runs; none of it changes the run's numbers."""

    workdir: Path | None = None
    """The run's folder; None = runs/RECIPE. The same command on the same folder continues."""
    parallel: ParallelMode = "jit"
    """How all local devices share a batch: one jitted step over sharded batches, or pmap."""
    compilation_cache: Path | None = None
    """Folder of compiled programs; None = $JAX_COMPILATION_CACHE_DIR, or jaxnlp's cache folder."""


def recipe_names() -> list[str]:
    """All recipes, in alphabetical order."""
    return sorted(path.stem for path in Path(configs.__file__).parent.glob("[!_]*.py"))


def recipe_summary(name: str) -> str:
    """The first line of a recipe's docstring, read without running it."""
    source = (Path(configs.__file__).parent / f"{name}.py").read_text(encoding="utf-8")
    return (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0]


def load_recipe(name: str) -> TrainConfig:
    """A recipe's config. Raises: UsageError naming the nearest recipes when there is none of that name."""
    names = recipe_names()
    if name not in names:
        nearest = difflib.get_close_matches(name, names, n=3, cutoff=0.4)
        hint = f"did you mean {' or '.join(nearest)}?" if nearest else f"there are: {', '.join(names)}"
        raise UsageError(f"there is no recipe {name!r}; {hint}")
    return importlib.import_module(f"configs.{name}").get_config()


def overview(program: str) -> str:
    """The help text that lists every recipe."""
    width = max(map(len, recipe_names()))
    lines = [f"  {name:<{width}}  {recipe_summary(name)}" for name in recipe_names()]
    return "\n".join(
        [
            f"usage: {program} RECIPE [--FIELD VALUE ...] [--workdir DIR]",
            "",
            "Recipes:",
            *lines,
            "",
            f"{program} RECIPE --help shows every field of a recipe with its type, default and meaning.",
        ]
    )


def parse(arguments: list[str], options: Options, *, program: str) -> tuple[TrainConfig, Options]:
    """The config and the options that were typed: a recipe's name, then fields of both.

    Exits with status 0 after showing help, with 2 for fields that do not exist or do not fit.

    Args:
      arguments: without the program's name.
      options: a dataclass instance with the program's own options at their defaults.
      program: how it was called.

    Raises:
      UsageError: when the recipe is missing or unknown, or a field's value is refused.
    """
    if not arguments or arguments[0] in ("-h", "--help"):
        print(overview(program))
        sys.exit(0 if arguments else 2)
    name, *fields = arguments
    if name.startswith("-"):
        raise UsageError(f"the recipe comes first, got {name!r}; {program} --help lists them")
    recipe = load_recipe(name)
    flat = tyro.conf.arg(name="")  # no prefix: --workdir, not --options.workdir
    fields_of_both: Any = [("config", Annotated[TrainConfig, flat]), ("options", Annotated[type(options), flat])]
    both = dataclasses.make_dataclass("Command", fields_of_both)
    docstring = importlib.import_module(f"configs.{name}").__doc__ or ""
    try:
        typed: Any = tyro.cli(
            both,
            default=both(recipe, options),
            args=fields,
            prog=f"{program} {name}",
            description=re.sub(r"\n(?=[A-Z]\w+: )", "\n\n", docstring),  # tyro joins the lines of a paragraph
            config=(tyro.conf.SuppressFixed,),
        )
        return typed.config, typed.options
    except ValueError as error:  # a config's own check
        raise UsageError(str(error)) from error


def print_config(console: Console, config: TrainConfig) -> None:
    """Shows how the effective config differs from its recipe."""
    changed = differences(to_json(load_recipe(config.recipe)), to_json(config))
    if not changed:
        console.print(f"recipe {config.recipe}, unchanged", highlight=False)
        return
    console.print(f"recipe {config.recipe}, with", highlight=False)
    for line in changed:
        console.print(f"  {line}", highlight=False, markup=False)
