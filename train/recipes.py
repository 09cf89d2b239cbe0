"""Recipes: the modules of `configs`, by their file names, and other files, by their paths."""

import ast
import dataclasses
import difflib
import importlib
import shlex
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import configs
from jaxnlp.cli.messages import table

if TYPE_CHECKING:  # the names of all recipes are listed without JAX, which takes seconds to import
    from train.config import TrainConfig

_given: dict[str, Path] = {}
"""The recipes given by path, by name."""
_sources: dict[str, bytes] = {}
"""The contents of these files at their last import."""


class UnknownRecipeError(ValueError):
    """A recipe of this name does not exist; the message suggests others."""


def recipe_names() -> list[str]:
    """Names of all recipes in `configs`, in alphabetical order."""
    return sorted(path.stem for path in _folder().glob("[!_]*.py"))


def recipe_docstring(name: str) -> str:
    """A recipe's docstring, read without an import; "" if its file no longer exists."""
    file = _given.get(name, _folder() / f"{name}.py")
    return (ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) if file.is_file() else None) or ""


def load_recipe(name: str) -> "TrainConfig":
    """A recipe's config, which has the name of its file.

    Args:
      name: of a file in `configs`, or a path that ends in .py. Later calls may use the file's name, if `configs` does
        not have it. A changed file is read again.

    Raises: UnknownRecipeError for an unknown recipe; it suggests similar names.
    """
    path = Path(name).expanduser()
    if name.endswith(".py"):
        if not path.is_file():
            raise UnknownRecipeError(f"the recipe {path} does not exist; jaxnlp train --list shows the recipes")
        if "." in path.stem:
            raise UnknownRecipeError(f"{path} has a dot before .py, which no module's name may have; rename the file")
        _given[path.stem] = path
        return _config(path.stem, _imported(path))
    names = recipe_names()
    if name in names:
        return _config(name, importlib.import_module(f"configs.{name}"))
    if name in _given:
        return _config(name, importlib.import_module(name))
    if path.is_dir():
        hint = f"jaxnlp train --resume {shlex.quote(name)} continues a run"
        raise UnknownRecipeError(f"{name} is a folder, not a recipe; {hint}")
    nearest = difflib.get_close_matches(name, names, n=3, cutoff=0.4)
    hint = f"did you mean {' or '.join(nearest)}?" if nearest else f"the recipes are {', '.join(names)}"
    raise UnknownRecipeError(f"unknown recipe {name!r}; {hint}")


def recipe_of(config: "TrainConfig") -> "TrainConfig":
    """The recipe that a config names: the user's file before one in `configs`. Raises: as there."""
    name = config.recipe
    return _config(name, importlib.import_module(name)) if name in _given else load_recipe(name)


def _config(name: str, module: ModuleType) -> "TrainConfig":
    """The config of a recipe's module, with the recipe's name. Raises: UnknownRecipeError when it has none."""
    from train.config import TrainConfig

    if "get_config" not in module.__dict__:
        raise UnknownRecipeError(f"{module.__file__} must define get_config, a function that returns a config")
    config = module.get_config()
    if not isinstance(config, TrainConfig):
        expected = (
            "expected a config, such as another recipe's with changes: update(recipe.get_config(), total_steps=300)"
        )
        raise UnknownRecipeError(f"{module.__file__}: {expected}; get_config returns {type(config).__name__}")
    return dataclasses.replace(config, recipe=name)


def show_recipes(arguments: list[str], program: str, summary: str = "") -> int | None:
    """Lists all recipes, for a command that asks for them, or has no recipe. Returns: the exit status, or None.

    Args: summary: of the program, if it does not train.
    """
    rows = [(name, recipe_docstring(name).partition("\n")[0]) for name in recipe_names()]
    if arguments == ["--list"]:
        print("Each recipe, what it trains, and the data that it needs; docs/data.md says where they come from.\n")
        print(table([(name, f"{summary} Data: {_needs(load_recipe(name))}.") for name, summary in rows]))
        return 0
    if arguments and arguments[0] not in ("-h", "--help"):
        return None
    print(f"usage: {program} RECIPE [--FIELD VALUE ...]\n")
    if summary:
        print(f"{summary}\n")
    print("RECIPE is one of these, or the path of a file of your own that defines get_config:\n")
    further = {"RECIPE --help": "shows a recipe's options", "--list": "also shows which data each recipe needs"}
    print(table(rows), table([(f"{program} {words}", what) for words, what in further.items()]), sep="\n\n")
    return 0 if arguments else 2


def _needs(config: "TrainConfig") -> str:
    """The data that a recipe needs, and whether it needs pretrained weights."""
    return ", ".join(filter(None, [config.data.needs, "pretrained weights" if config.init_from else ""])) or "none"


def _imported(path: Path) -> ModuleType:
    """Imports a file under its own name, so that saved configs can name classes in it and in files next to it.

    In a notebook the file may have changed since its last import.
    """
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.append(folder)  # last: its files must not replace libraries
    module, source = importlib.import_module(path.stem), path.read_bytes()
    if Path(str(module.__file__)).resolve() != path.resolve():
        raise UnknownRecipeError(f"{path} has the name of another module, {module.__file__}; rename the file")
    if _sources.get(path.stem, source) != source:
        module = importlib.reload(module)
    _sources[path.stem] = source
    return module


def _folder() -> Path:
    return Path(configs.__file__).parent
