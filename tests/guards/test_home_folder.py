"""Every function that takes a path as a text or as a Path: ~ is the home folder. Options: see test_options.py."""

import importlib
import inspect
import operator
import pkgutil
import re

import pytest

import jaxnlp
import train

ELSEWHERE = {
    "save_pretrained": "they write a model: see tests/jaxnlp/convert",
    "save_decoder": "as save_pretrained",
    "save_encoder_decoder": "as save_pretrained",
    "save_image_encoder": "as save_pretrained",
    "save_clip": "as save_pretrained",
    "Task.from_pretrained": "subclasses define it",
    "classifier_of_transformers": "the task has read the folder's config before",
    "is_run": "a folder without checkpoints is none: see tests/jaxnlp/test_runs.py",
    "evaluate": "it reads its file as evaluate_places, which is called here",
    "recipe": "it names a file that ends in .py: see tests/train/test_recipes.py",
}
"""Functions that this test does not call, and why."""
PATH = re.compile(r": str \| pathlib\.(_local\.)?Path")  # Python 3.13 names the module of the class


def doors():
    """The module and the qualified name of each function with such a path."""
    for package in (jaxnlp, train):
        for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if info.name.endswith(("__main__", ".loader")):  # programs
                continue
            for name, value in vars(importlib.import_module(info.name)).items():
                if getattr(value, "__module__", "") == info.name and not name.startswith("_"):
                    members = vars(value).values() if inspect.isclass(value) else [value]
                    for function in (getattr(one, "__func__", one) for one in members):
                        if inspect.isfunction(function) and PATH.search(str(inspect.signature(function))):
                            yield info.name, function.__qualname__


DOORS = [*doors()]


def test_functions_that_are_not_called_here_exist():
    assert ELSEWHERE.keys() <= {name for _, name in DOORS}


@pytest.mark.parametrize(
    ("module", "name"), [door for door in DOORS if door[1] not in ELSEWHERE], ids=lambda part: part.rpartition(".")[2]
)
def test_a_path_may_begin_with_the_home_folder(module, name, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "here").mkdir()
    for file in ("config.json", "jaxnlp.json"):
        (tmp_path / "here" / file).write_text("{")
    function = operator.attrgetter(name)(importlib.import_module(module))
    given = {"path": "~/here", "folder": "~/here", "workdir": "~/here", "task": None, "head": None, "words": ["a"]}
    given |= {"filepath": "~/here", "predicted_places": []}
    if "config" in inspect.signature(function).parameters:
        given["config"] = jaxnlp.recipe("number_words")
    needed = [one for one in inspect.signature(function).parameters.values() if one.default is one.empty]
    arguments = {one.name: given[one.name] for one in needed if one.kind is not one.VAR_KEYWORD}
    try:
        found = function(**arguments)
    except (ValueError, OSError) as error:
        assert str(tmp_path / "here") in str(error)  # noqa: PT017  # some of the functions return something
    else:
        assert found is True or found == tmp_path / "here"
