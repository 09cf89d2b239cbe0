"""The commands of all pages are ones that there are, and the README's results are those of the ledger."""

import importlib.util
import json
import re
import statistics
from pathlib import Path
from typing import Any

import pytest

from jaxnlp.cli import verbs
from jaxnlp.cli.programs import PROGRAMS
from jaxnlp.tasks import every_task
from tests.pages import PAGES, blocks_of, commands_of, shell_lines
from train import evaluate
from train.cli.command_line import RunOptions, UsageError, parse
from train.recipes import load_recipe, recipe_names
from train.sweep import plan, read_command


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
UNTRAINED = [kind() for kind in every_task() if kind not in {*map(type, TASKS.values())}]
"""Tasks without a recipe: their models are pretrained."""


def check_train(words):
    if words[0].endswith(".py"):  # a file that the page shows: tests/docs/test_your_own_model.py
        return
    parse(words, RunOptions(), program="jaxnlp train")


def check_sweep(words):
    plan(read_command(words))


def check_evaluate(place, *words):
    while words and words[0].startswith("runs/"):  # several runs
        words = words[1:]
    name, flags = (words[0], words[1:]) if words and not words[0].startswith("-") else ("validation", words)
    check_one_of(place, name, lambda task: task.evaluators, list(flags), evaluate.parse)


def check_verb(verb, place, *flags):
    check_one_of(place, verb, lambda task: task.commands, list(flags), verbs.parse_options)


def check_one_of(place, name, kinds_of, flags, parse):
    """Parses the flags as the task of the folder does; for other places, as any of the tasks that have the name."""
    tasks = [TASKS[RECIPES[place]]] if place in RECIPES else [*TASKS.values(), *UNTRAINED]
    kinds = {kinds_of(task)[name] for task in tasks if name in kinds_of(task)}
    failed = []
    for kind in kinds:
        try:
            parse(kind, flags, name)
        except (SystemExit, ValueError) as error:
            failed.append(error)
    if len(failed) == len(kinds):
        raise UsageError(f"no task of {place} has {name} with {flags}")


CHECKS = {"train": check_train, "sweep": check_sweep, "evaluate": lambda words: check_evaluate(*words)}
"""Parses a program's arguments, and raises an error for wrong ones."""


def check(name, words):
    """Raises an error for wrong arguments of a verb, or of a program in `CHECKS`."""
    if name in CHECKS:
        CHECKS[name](words)
    elif name not in PROGRAMS:
        check_verb(name, *words)


@pytest.mark.sweep(1)
@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_commands_have_the_options_that_pages_give_them(page):
    for name, words in commands_of(page):
        if not {"--help", "-h", "--list"} & {*words}:
            check(name, words)


def test_options_in_sentences_have_a_value_only_if_they_take_one():
    for page in PAGES:
        for words in re.findall(r"`(--[^`]* (?:True|False))`", page.read_text()):
            recipe = "conll_tagger" if words.startswith("--data") else "gpt2_finetune"
            check_train([recipe, *words.split()])


def test_pages_have_commands():
    assert sum(1 for page in PAGES for _ in commands_of(page)) > 40


LANGUAGES = {"": "shell", "python": "run: tests/docs/test_code.py", "text": "no code", "math": "formulas"}
"""What may follow the backticks at the beginning of a block, and "python FILE": tests/docs/test_attention.py."""
OTHER_COMMANDS = {
    "pip": "changes the environment; the extras are those of pyproject.toml",
    "source": "changes the shell",
    "jupyter": "is installed by the line before it; tests/docs/test_notebooks.py runs the notebooks",
    "iconv": "converts a file of the reader; the message with this command is tested in tests/jaxnlp/input_files",
    "sha256sum": "tests/docs/test_data.py compares the files",
    "JAXNLP_TRUST=neural_lm": "tests/docs/test_your_own_model.py",
}
"""Commands that are not looked at here, and why."""


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_every_block_of_a_page_is_code_that_is_tested_or_no_code(page):
    for language, _ in blocks_of(page):
        assert language in LANGUAGES or language.startswith("python jaxnlp/"), language


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_every_command_of_a_page_is_one_that_there_is(page, root: Path):
    targets = re.findall(r"^([\w-]+):", (root / "Makefile").read_text(encoding="utf-8"), re.M)
    for words in shell_lines(page):
        if words[0] == "make":
            assert words[1] in targets
        elif words[:2] == ["python", "-m"]:
            assert importlib.util.find_spec(words[2])
        elif words[0] == "jaxnlp":
            assert words[1] in PROGRAMS or words[1] in verbs.every_command()
        elif words[:2] == ["python", "-c"]:
            compile(words[2], page.name, "exec")
        elif words[0] in ("python", "bash"):
            assert (root / words[1]).is_file()
        else:
            assert words[0] in OTHER_COMMANDS, words


def test_extras_of_the_pages_are_those_of_the_project(root: Path):
    extras = re.findall(r"^(\w+) = \[", (root / "pyproject.toml").read_text(encoding="utf-8"), re.M)
    installed = [words[-1] for page in PAGES for words in shell_lines(page) if words[:2] == ["pip", "install"]]
    named = {extra for word in installed for extra in re.findall(r"\[(\w+)\]", word)}
    assert named
    assert named <= {*extras}


def test_the_readme_is_ascii(root: Path):
    assert (root / "README.md").read_bytes().isascii()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("predict", ["runs/x", "--no-such-option"]),
        ("predict", ["runs/gpt_shakespeare_cpu", "a text"]),
        ("evaluate", ["runs/names_finetune", "perplexity"]),
        ("evaluate", ["runs/lstm_lm_cpu", "perplexity", "--answer", "London"]),
    ],
)
def test_wrong_commands_would_be_found(name, words):
    with pytest.raises(UsageError, match="no task of runs/"):
        check(name, words)


def test_results_of_the_readme_are_those_of_the_ledger(root: Path):
    page = (root / "README.md").read_text(encoding="utf-8")
    results = re.findall(
        r"\| `(\w+)` \| works \| validation loss ([\d.]+) after (\d+) s(?: \(mean of three seeds: ([\d.]+)\))? \|", page
    )
    assert len(results) == len(re.findall("validation loss", page)) == 3
    for recipe, loss, seconds, mean in results:
        entry = newest_loss(root, recipe)
        assert float(loss) == pytest.approx(entry["value"], abs=5.1e-4)
        assert float(seconds) == pytest.approx(entry["train_seconds"], abs=0.51)
        seeds = [entry["value"], *(newest_loss(root, recipe, seed)["value"] for seed in (1, 2) if mean)]
        assert float(mean or loss) == pytest.approx(statistics.mean(seeds), abs=5.1e-4)


def newest_loss(root: Path, recipe: str, seed: int = 0) -> dict[str, Any]:
    name = f"{recipe}-seed{seed}" if seed else recipe
    entries = json.loads((root / "docs" / "results" / f"{name}.json").read_text())
    entry = [entry for entry in entries if entry["metric"] == "loss"][-1]
    expected = (recipe, seed, entries[-1]["commit"], "validation")
    assert (entry["recipe"], entry["seed"], entry["commit"], entry["split"]) == expected
    return entry
