import re

import pytest

from jaxnlp.cli.options import field_docs, options_of
from train.cli.command_line import RunOptions
from train.cli.help import group_summary, help_topic
from train.recipes import load_recipe, recipe_names


@pytest.mark.parametrize(
    ("fields", "topic"),
    [
        (["--seed", "1"], None),
        (["--help"], ""),
        (["--seed", "1", "-h"], ""),
        (["--help", "--seed", "1"], ""),
        (["--help", "model"], "model"),
        (["--help=all"], "all"),
    ],
    ids=str,
)
def test_the_topic_follows_the_flag(fields, topic):
    assert help_topic(fields) == topic


def test_options_are_named_and_grouped_as_they_are_typed():
    options = {option.name: option for option in options_of(load_recipe("gpt_python_docs"))}
    assert options["model.compute.matmul-dtype"].group == "model.compute"
    assert options["total-steps"].group == ""
    assert options["optimizer.learning-rate"].default == 0.006
    assert options["optimizer.learning-rate"].help == "Peak learning rate."
    assert "recipe" not in options
    assert "model.compute.attention" in options
    assert "model.compute.recurrence" not in options  # the model ignores it


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_has_some_ten_usual_options(name):
    usual = [option.name for part in (RunOptions(), load_recipe(name)) for option in options_of(part) if option.usual]
    assert {"workdir", "total-steps", "seed", "data.batch-size", "optimizer.learning-rate"} <= {*usual}
    assert 8 <= len(usual) <= 13


@pytest.mark.parametrize(
    ("name", "shown", "hidden"),
    [
        ("translation_text_files", {"train"}, {"path"}),
        ("multi30k_transformer", {"path"}, {"train"}),
        ("conll_tagger", {"source", "path", "train"}, {"text"}),
        ("ud_parser", {"source", "path", "train"}, set()),
        ("span_corruption", {"files", "data-set"}, set()),
        ("bert_multitask", {"parts", "tables", "path"}, set()),
        ("bert_classify", {"path", "text", "label", "pair", "predict"}, {"source"}),
        ("bert_cfimdb", {"source", "path"}, {"text"}),
    ],
)
def test_the_options_that_a_data_set_requires_are_usual_and_those_that_it_does_not_read_are_not(name, shown, hidden):
    usual = {option.name for option in options_of(load_recipe(name)) if option.usual}
    assert {f"data.{field}" for field in shown} <= usual
    assert not {f"data.{field}" for field in hidden} & usual


@pytest.mark.parametrize("name", recipe_names())
def test_the_summary_of_every_group_is_a_sentence(name):
    config = load_recipe(name)
    for group in {option.group for option in options_of(config)}:
        assert re.fullmatch(r"[A-Z`].*[^.]\.", group_summary(config, group)), group


def test_every_option_of_every_recipe_has_a_help_text():
    missing = {option.name for name in recipe_names() for option in options_of(load_recipe(name)) if not option.help}
    assert missing == set()
    assert field_docs(RunOptions)["workdir"]
