"""Recipes: the modules of `configs`, by their file names, and other files, by their paths."""

import ast
import dataclasses
import difflib
import importlib
import sys
from pathlib import Path
from types import ModuleType

import configs
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


def load_recipe(name: str) -> TrainConfig:
    """A recipe's config.

    Args:
      name: of a file in `configs`, or a path that ends in .py. Later calls may use the file's name.

    Raises: UnknownRecipeError for an unknown recipe; it suggests similar names.
    """
    if name.endswith(".py"):
        path = Path(name)
        if not path.is_file():
            raise UnknownRecipeError(f"the recipe {path} does not exist")
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


def _imported(path: Path) -> ModuleType:
    """Imports a file under its own name, so that saved configs can name classes in it and in files next to it."""
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    module = importlib.import_module(path.stem)
    if Path(str(module.__file__)).resolve() != path.resolve():
        raise UnknownRecipeError(f"{path} has the name of another module, {module.__file__}; rename the file")
    return module


def _folder() -> Path:
    return Path(configs.__file__).parent
