import random
import signal

import pytest

from tests.faults import flags
from tests.faults.flags import VALUES, attempt, options_to_walk, tiny, write_files
from train.recipes import load_recipe, recipe_names

QUICK = ("additions", "gpt_python_docs")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with tiny data, in which commands are given; without a network."""
    write_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("jaxnlp.convert.folders._downloaded", flags.no_network)
    before = signal.signal(signal.SIGPROF, flags._stop)
    yield tmp_path
    signal.signal(signal.SIGPROF, before)


def finds(recipes, count, folder):
    """What is wrong with senseless values of some options, which a seed chooses."""
    generator = random.Random(0)
    cases = generator.sample([*options_to_walk(recipes)], count)
    configs = {recipe: tiny(load_recipe(recipe), folder) for recipe in {recipe for recipe, _ in cases}}
    outcomes = [
        attempt(recipe, configs[recipe], folder, option.name, generator.choice(VALUES)) for recipe, option in cases
    ]
    assert {one.kind for one in outcomes} >= {"accepted", "refused"}
    return [one for one in outcomes if one.kind == "find"]


@pytest.mark.thorough
def test_senseless_values_are_accepted_or_refused_in_a_line(folder):
    assert not finds(list(QUICK), 40, folder)


@pytest.mark.thorough
def test_senseless_values_of_every_recipe_are_accepted_or_refused_in_a_line(folder):
    assert not finds(recipe_names(), 150, folder)


@pytest.mark.parametrize(
    "option", ["model.num-layers", "model.width", "data.batch-size", "data.num-workers", "total-steps"]
)
def test_numbers_that_no_machine_can_hold_are_refused(folder, option):
    config = tiny(load_recipe("gpt_python_docs"), folder)
    for value in ("1000000000000000000", "1000000000"):
        outcome = attempt("gpt_python_docs", config, folder, option, value)
        assert outcome.kind == ("accepted" if (option, value) == ("total-steps", "1000000000") else "refused"), outcome
