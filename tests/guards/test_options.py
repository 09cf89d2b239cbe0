"""Every option of every recipe, verb and evaluator: a path is declared as one, and what the help promises is read."""

import dataclasses
import re
import typing
from pathlib import Path

import pytest

from jaxnlp.cli.options import EMPTY, Option, options_of, read_options
from jaxnlp.cli.verbs import every_command
from jaxnlp.config import Config
from jaxnlp.tasks import every_task
from train import average, compare, evaluate, lr_find
from train.cli.command_line import RunOptions
from train.config import TrainConfig
from train.recipes import load_recipe, recipe_names

TEXTS = {
    "init-new-tokens",
    *("init-ignore", "best-metric", "mesh", "coordinator", "model.encoder.model-type", "task.sample-prompt"),
    *("optimizer.lora-targets", "optimizer.frozen"),
    *("data.encoding", "data.delimiter", "data.separator", "data.parts", "data.data-set"),
    *("data.text", "data.pair", "data.label", "data.tables"),  # data.tables: NAME=FILE, see data.readers.labelled_texts
    *("texts", "questions", "inputs", "pair", "text", "target", "prompt", "stop", "part", "answer", "split"),
    *("classes", "template"),
}
"""Options whose values are texts or names, not paths. Any other option of a text is declared as `UserPath`."""


@pytest.fixture(scope="module")
def each_option() -> list[tuple[typing.Any, Option]]:
    """Each option once, with a config or a class that has it: recipes share most of them."""
    recipes = [load_recipe(name) for name in recipe_names()]
    verbs = [kind for kinds in every_command().values() for kind in kinds]
    evaluators = [kind for task in every_task() for kind in task().evaluators.values()]
    others = [RunOptions, evaluate.Options, average.Options, compare.Options, lr_find.FindOptions]
    parts = [*recipes, *verbs, *evaluators, *others]
    return [*{(str(one.kind), one.name, one.help): (part, one) for part in parts for one in options_of(part)}.values()]


def _single(kind: typing.Any) -> set[typing.Any]:
    """The types of single values: str and NoneType of `tuple[str, ...] | None`."""
    return {one for part in typing.get_args(kind) for one in _single(part)} or {kind}


def _field_type(part: typing.Any, name: str) -> typing.Any:
    """The type of an option's field, with its marks."""
    *groups, field = name.replace("-", "_").split(".")
    for group in groups:
        part = getattr(part, group)
    return typing.get_type_hints(part if isinstance(part, type) else type(part), include_extras=True)[field]


def test_every_path_is_declared_as_one_and_its_class_replaces_the_home_folder(each_option, monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    checked = 0
    for part, option in each_option:
        if {str, Path} & _single(option.kind) and option.name not in TEXTS:
            kind = part if isinstance(part, type) else type(part)
            assert issubclass(kind, Config), f"{kind} reads --{option.name}, but is no Config"
            field = dataclasses.make_dataclass(
                "One", [("field", _field_type(part, option.name))], bases=(Config,), frozen=True
            )
            value = ("~/x", "y~") if typing.get_origin(option.kind) is tuple else "~/x"
            read = field(value).field
            assert str(read[0] if isinstance(read, tuple) else read) == "/home/me/x", option.name
            checked += 1
    assert checked > 30


def test_an_option_of_a_vocabulary_is_declared_so_that_init_from_refuses_it():
    for data in (load_recipe(name).data for name in recipe_names()):
        names = {field.name for field in dataclasses.fields(data)}
        assert names >= {*data.processor_fields} >= names & {"vocabulary_size"}, data


@pytest.mark.sweep(1)
@pytest.mark.parametrize("words", [["--{}", EMPTY], ["--{}=" + EMPTY], ["--{}"]], ids=["empty", "=empty", "no value"])
def test_a_list_of_a_recipe_can_be_empty(words, each_option):
    refused: list[str] = []
    for part, option in each_option:
        if isinstance(part, TrainConfig) and typing.get_origin(option.kind) is tuple and option.default != ():
            try:
                (read,) = read_options([part], [word.format(option.name) for word in words], program="test")
            except ValueError as error:  # this recipe needs the list, or another option with it
                refused.append(str(error))
                continue
            *groups, field = option.name.replace("-", "_").split(".")
            for group in groups:
                read = getattr(read, group)
            assert getattr(read, field) == (), option.name
    assert not [error for error in refused if "no option" in error or "unexpected" in error]


def test_help_promises_only_values_that_are_read(each_option):
    for _, option in each_option:
        promised = set(re.findall(r"(?<![\w-])(\w+|\(\)) = ", option.help))
        assert "()" not in promised, f"--{option.name}: a shell reads parentheses; its help should say {EMPTY}"
        if {"None", "none"} & promised and type(None) in _single(option.kind):
            assert "none" not in promised or "none" in _single(option.kind), f"--{option.name}: None, not none"
        if "None" in promised:
            assert type(None) in _single(option.kind), f"--{option.name} cannot be None"
        if promised & {EMPTY, EMPTY.title()}:
            assert (typing.get_origin(option.kind), bool(option.group)) == (tuple, True), f"--{option.name}: {EMPTY}"
