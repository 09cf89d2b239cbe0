"""Recipes: the modules of `configs`, found by their file names."""

import ast
import difflib
import importlib
from pathlib import Path

import configs
from train.config import TrainConfig


class UnknownRecipeError(ValueError):
    """There is no recipe of this name; the message suggests others."""


def recipe_names() -> list[str]:
    """Names of all recipes, in alphabetical order."""
    return sorted(path.stem for path in Path(configs.__file__).parent.glob("[!_]*.py"))


def recipe_summary(name: str) -> str:
    """The first line of a recipe's docstring, read without importing the recipe."""
    source = (Path(configs.__file__).parent / f"{name}.py").read_text(encoding="utf-8")
    return (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0]


def load_recipe(name: str) -> TrainConfig:
    """A recipe's config. Raises: UnknownRecipeError for an unknown recipe; it suggests similar names."""
    names = recipe_names()
    if name not in names:
        nearest = difflib.get_close_matches(name, names, n=3, cutoff=0.4)
        hint = f"did you mean {' or '.join(nearest)}?" if nearest else f"the recipes are {', '.join(names)}"
        raise UnknownRecipeError(f"unknown recipe {name!r}; {hint}")
    return importlib.import_module(f"configs.{name}").get_config()
