import pytest

from jaxnlp.options import field_docs
from train.command_line import RunOptions
from train.help import help_topic, options_of
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
    assert options["total-steps"].group == "run"
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


def test_every_option_of_every_recipe_has_a_help_text():
    missing = {option.name for name in recipe_names() for option in options_of(load_recipe(name)) if not option.help}
    assert missing == set()
    assert field_docs(RunOptions)["workdir"]
