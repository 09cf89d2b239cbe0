"""The README's code runs, and the commands of all pages are ones that there are."""

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import tyro
from train.baselines import COMMANDS as BASELINES

from jaxnlp.__main__ import COMMANDS
from train.command_line import RunOptions, parse
from train.evaluate import Evaluate

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
PROGRAMS = {
    "train": lambda words: parse(words, RunOptions(), program="python -m train"),
    "train.evaluate": lambda words: tyro.cli(Evaluate, args=words),
    "train.baselines": lambda words: tyro.extras.subcommand_cli_from_dict(BASELINES, args=words),
    "jaxnlp": lambda words: tyro.extras.subcommand_cli_from_dict(
        {n: kind for n, (kind, _) in COMMANDS.items()}, args=words
    ),
}
"""What each program makes of its arguments, before it does anything."""


def commands_of(page):
    """The programs and arguments in a page's blocks of code."""
    for block in re.findall(r"^```\w*\n(.*?)^```$", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE):
        for line in block.replace("\\\n", " ").splitlines():
            if line.startswith("python -m "):
                _, _, program, *words = shlex.split(line, comments=True)
                if program in PROGRAMS:
                    yield program, words


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_commands_have_the_options_that_pages_give_them(page):
    for program, words in commands_of(page):
        if "--help" not in words:  # which ends as a wrong command does
            PROGRAMS[program](words)


def test_pages_have_commands():
    assert sum(1 for page in PAGES for _ in commands_of(page)) > 40
    with pytest.raises(SystemExit):
        PROGRAMS["jaxnlp"](["predict", "runs/x", "--no-such-option"])


def test_the_functions_of_the_readme_run_as_they_are_written(root: Path, capsys):
    page = (root / "README.md").read_text(encoding="utf-8")
    section = page.split("## The functions alone", 1)[1].split("\n## ", 1)[0]
    (code,) = re.findall(r"```python\n(.*?)```", section, flags=re.DOTALL)
    found: dict = {}
    exec(code, found)
    assert capsys.readouterr().out == "(2, 10, 10) (16, 8)\n"
    assert found["y"].shape == (2, 10, 4, 8)
    assert float(found["losses"].count) == 20.0
    assert np.isfinite(found["objective"])
    assert np.isfinite(found["nll"])
    assert found["nll"] != found["objective"]


def test_results_of_the_readme_are_those_of_the_ledger(root: Path):
    page = (root / "README.md").read_text(encoding="utf-8")
    results = re.findall(r"\| `(\w+)` \| works \| validation loss ([\d.]+) after (\d+) s \|", page)
    assert len(results) == len(re.findall("validation loss", page)) == 3
    for recipe, loss, seconds in results:
        entry = json.loads((root / "docs" / "results" / f"{recipe}.json").read_text())[-1]
        assert (entry["recipe"], entry["metric"], entry["split"]) == (recipe, "loss", "validation")
        assert float(loss) == pytest.approx(entry["value"], abs=5.1e-4)
        assert float(seconds) == pytest.approx(entry["train_seconds"], abs=0.51)
