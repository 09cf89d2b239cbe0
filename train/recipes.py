"""Recipes: the modules of `configs`, by their file names, and other files, by their paths."""

import ast
import dataclasses
import difflib
import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import configs
from jaxnlp.cli.messages import table

if TYPE_CHECKING:  # the names of all recipes are listed without JAX, which takes seconds to import
    from train.config import TrainConfig

_given: dict[str, Path] = {}
"""The recipes of this process that have a path."""


class UnknownRecipeError(ValueError):
    """A recipe of this name does not exist; the message suggests others."""


def recipe_names() -> list[str]:
    """Names of all recipes in `configs`, in alphabetical order."""
    return sorted(path.stem for path in _folder().glob("[!_]*.py"))


def recipe_docstring(name: str) -> str:
    """A recipe's docstring, read without importing the recipe."""
    source = _given.get(name, _folder() / f"{name}.py").read_text(encoding="utf-8")
    return ast.get_docstring(ast.parse(source)) or ""


def recipe_summary(name: str) -> str:
    """The first line of a recipe's docstring."""
    return recipe_docstring(name).partition("\n")[0]


def load_recipe(name: str) -> "TrainConfig":
    """A recipe's config, which has the name of its file.

    Args:
      name: of a file in `configs`, or a path that ends in .py. Later calls may use the file's name.

    Raises: UnknownRecipeError for an unknown recipe; it suggests similar names.
    """
    if name.endswith(".py"):
        path = Path(name)
        if not path.is_file():
            raise UnknownRecipeError(f"the recipe {path} does not exist; python -m train --list shows the recipes")
        name = path.stem
        _given[name] = path
    names = recipe_names()
    if name not in names and name not in _given:
        nearest = difflib.get_close_matches(name, names, n=3, cutoff=0.4)
        hint = f"did you mean {' or '.join(nearest)}?" if nearest else f"the recipes are {', '.join(names)}"
        raise UnknownRecipeError(f"unknown recipe {name!r}; {hint}")
    if name not in _given:
        config = importlib.import_module(f"configs.{name}").get_config()
        return dataclasses.replace(config, recipe=name)
    module = _imported(_given[name])
    if "get_config" not in module.__dict__:
        raise UnknownRecipeError(f"{_given[name]} must define get_config, a function that returns a config")
    return dataclasses.replace(module.get_config(), recipe=name)


def overview(program: str) -> str:
    """The help text that lists every recipe."""
    return "\n".join(
        [
            f"usage: {program} RECIPE [--FIELD VALUE ...]",
            "",
            "RECIPE is one of these, or the path of a file like those in configs:",
            "",
            table([(name, recipe_summary(name)) for name in recipe_names()]),
            "",
            table(
                [
                    (f"{program} RECIPE --help", "shows a recipe's options"),
                    (f"{program} --list", "shows which data each recipe needs"),
                ]
            ),
        ]
    )


def print_overview_if_asked(arguments: list[str], program: str) -> None:
    """Prints the overview and exits, where a command has no recipe: with status 0 where it asks for help, else 2."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(overview(program))
        sys.exit(0 if arguments else 2)


def recipe_list() -> str:
    """A line for each recipe: its name, its summary and the data set that it needs."""
    rows = [(name, _needs(load_recipe(name)), recipe_summary(name)) for name in recipe_names()]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    lines = [f"{name:<{widths[0]}}  {needs or '-':<{widths[1]}}  {summary}" for name, needs, summary in rows]
    head = f"{'recipe':<{widths[0]}}  {'data':<{widths[1]}}  what it trains"
    notes = [
        "docs/data.md says where the data sets come from; - = nothing is needed.",
        "weights = also pretrained weights, downloaded from the Hugging Face Hub, or from the folder of --init-from.",
    ]
    return "\n".join([head, *lines, "", *notes])


def _needs(config: "TrainConfig") -> str:
    """The data that a recipe needs, and whether it needs pretrained weights; "" = neither."""
    return ", ".join(filter(None, [config.data.needs, "weights" if config.init_from else ""]))


def _imported(path: Path) -> ModuleType:
    """Imports a file under its own name, so that saved configs can name classes in it and in files next to it."""
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.append(folder)  # last: its files must not replace libraries
    module = importlib.import_module(path.stem)
    if Path(str(module.__file__)).resolve() != path.resolve():
        raise UnknownRecipeError(f"{path} has the name of another module, {module.__file__}; rename the file")
    return module


def _folder() -> Path:
    return Path(configs.__file__).parent
