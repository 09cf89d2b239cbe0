"""The README's code runs, and the commands of all pages are ones that there are."""

import json
import re
import shlex
from pathlib import Path

import jax
import numpy as np
import pytest

from jaxnlp import __main__ as verbs
from train import evaluate
from train.command_line import RunOptions, UsageError, parse
from train.recipes import load_recipe, recipe_names
from train.sweep import plan, read_command

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])


def commands_of(page):
    """The programs and arguments in a page's blocks of code."""
    for block in re.findall(r"^```\w*\n(.*?)^```$", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE):
        for line in block.replace("\\\n", " ").splitlines():
            if line.startswith("python -m "):
                _, _, program, *words = shlex.split(line, comments=True)
                if program in ("train", "train.sweep", "train.evaluate", "jaxnlp"):
                    yield program, words


def runs_of(pages):
    """The recipe of each run's folder, by the commands that train them."""
    found = {f"runs/{recipe}": recipe for recipe in recipe_names()}
    for page in pages:
        for program, words in commands_of(page):
            if program == "train" and "--workdir" in words and not words[0].endswith(".py"):
                found[words[words.index("--workdir") + 1]] = words[0]
    return found


RECIPES = runs_of(PAGES)
TASKS = {recipe: load_recipe(recipe).task for recipe in recipe_names()}


def check_train(words):
    if words[0].endswith(".py"):  # a file that the page shows: tests/docs/test_your_own_model.py
        return
    parse(words, RunOptions(), program="python -m train")


def check_sweep(words):
    plan(read_command(words))


def check_evaluate(place, *words):
    name, flags = (words[0], words[1:]) if words and not words[0].startswith("-") else ("validation", words)
    check_one_of(place, name, lambda task: task.evaluators(), list(flags), evaluate.parse)


def check_verb(verb, place, *flags):
    check_one_of(place, verb, lambda task: task.commands(), list(flags), verbs.parse)


def check_one_of(place, name, kinds_of, flags, parse):
    """Parses the flags as the task of the folder does; for other places, as any of the tasks that have the name."""
    tasks = [TASKS[RECIPES[place]]] if place in RECIPES else TASKS.values()
    kinds = {kinds_of(task)[name] for task in tasks if name in kinds_of(task)}
    failed = []
    for kind in kinds:
        try:
            parse(kind, flags, name)
        except (SystemExit, ValueError) as error:
            failed.append(error)
    if len(failed) == len(kinds):
        raise UsageError(f"no task of {place} has {name} with {flags}")


PROGRAMS = {"train": check_train, "train.sweep": check_sweep, "train.evaluate": check_evaluate, "jaxnlp": check_verb}
"""Parses a program's arguments, and raises an error for wrong ones."""


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_commands_have_the_options_that_pages_give_them(page):
    for program, words in commands_of(page):
        if {"--help", "-h", "--list"} & {*words}:
            continue
        PROGRAMS[program](*([words] if program in ("train", "train.sweep") else words))


def test_pages_have_commands():
    assert sum(1 for page in PAGES for _ in commands_of(page)) > 40


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("jaxnlp", ["predict", "runs/x", "--no-such-option"]),
        ("jaxnlp", ["predict", "runs/gpt_shakespeare_cpu", "a text"]),
        ("train.evaluate", ["runs/names_finetune", "perplexity"]),
        ("train.evaluate", ["runs/lstm_lm_cpu", "perplexity", "--answer", "London"]),
    ],
)
def test_wrong_commands_would_be_found(program, words):
    with pytest.raises(UsageError, match="no task of runs/"):
        PROGRAMS[program](*words)


def test_the_functions_of_the_readme_run_as_they_are_written(root: Path, capsys):
    page = (root / "README.md").read_text(encoding="utf-8")
    section = page.split("## Pure functions", 1)[1].split("\n## ", 1)[0]
    (code,) = re.findall(r"```python\n(.*?)```", section, flags=re.DOTALL)
    found: dict = {}
    exec(code, found)
    assert capsys.readouterr().out == "(2, 10, 10) (16, 8)\n"
    assert found["y"].shape == (2, 10, 4, 8)
    objective, nll, count = found["loss"]
    assert float(count) == 20.0
    assert np.isfinite(objective)
    assert np.isfinite(nll)
    assert nll != objective


@pytest.mark.thorough
def test_the_python_of_the_readme_trains_and_generates_unchanged(root: Path, tmp_path, capsys):
    page = (root / "README.md").read_text(encoding="utf-8")
    section = page.split("## In Python", 1)[1].split("\n## ", 1)[0]
    use, train = re.findall(r"```python\n(.*?)```", section, flags=re.DOTALL)
    folder = str(tmp_path / "run")
    with jax.numpy_dtype_promotion("standard"):
        exec(train.replace("runs/from_python", folder).replace("total_steps=20", "total_steps=2"), {})
        capsys.readouterr()
        exec(use.replace("runs/mine", folder).replace("max_new_tokens=100", "max_new_tokens=8"), found := {})
    shown, text = capsys.readouterr().out.split("\n", 1)
    assert re.fullmatch(r"Trained\(gpt_python_docs, .*, step 2; generate\)", shown)
    assert text.startswith("To be, or not")
    assert found["logits"].shape[:2] == (1, 13)


def test_results_of_the_readme_are_those_of_the_ledger(root: Path):
    page = (root / "README.md").read_text(encoding="utf-8")
    results = re.findall(r"\| `(\w+)` \| works \| validation loss ([\d.]+) after (\d+) s \|", page)
    assert len(results) == len(re.findall("validation loss", page)) == 3
    for recipe, loss, seconds in results:
        entry = json.loads((root / "docs" / "results" / f"{recipe}.json").read_text())[-1]
        assert (entry["recipe"], entry["metric"], entry["split"]) == (recipe, "loss", "validation")
        assert float(loss) == pytest.approx(entry["value"], abs=5.1e-4)
        assert float(seconds) == pytest.approx(entry["train_seconds"], abs=0.51)
