"""What the calls of all Linen modules have in common."""

import dataclasses
import importlib
import inspect
import pkgutil

import flax.linen as nn
import pytest

import jaxnlp.models
import jaxnlp.nn

MODULES = sorted(
    {
        value
        for package in (jaxnlp.nn, jaxnlp.models)
        for info in pkgutil.iter_modules(package.__path__, f"{package.__name__}.")
        for value in vars(importlib.import_module(info.name)).values()
        if isinstance(value, type) and issubclass(value, nn.Module) and value.__module__ == info.name
    },
    key=lambda module: module.__qualname__,
)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__qualname__)
def test_deterministic_is_a_keyword_of_calls_and_no_attribute(module):
    assert "deterministic" not in {field.name for field in dataclasses.fields(module)}
    calls = {name: call for name, call in vars(module).items() if name == "__call__" or not name.startswith("_")}
    for name, call in calls.items():
        argument = inspect.signature(call).parameters.get("deterministic") if inspect.isfunction(call) else None
        assert argument is None or argument.kind is argument.KEYWORD_ONLY, name


def test_there_are_modules_that_take_it():
    takes = [module for module in MODULES if "deterministic" in inspect.signature(module.__call__).parameters]
    assert len(takes) > 20
