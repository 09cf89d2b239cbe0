"""The README's code runs."""

import json
import re
from pathlib import Path

import numpy as np
import pytest


def test_the_functions_of_the_readme_run_as_they_are_written(root: Path, capsys):
    page = (root / "README.md").read_text(encoding="utf-8")
    section = page.split("## The functions alone", 1)[1].split("\n## ", 1)[0]
    (code,) = re.findall(r"```python\n(.*?)```", section, flags=re.DOTALL)
    found: dict = {}
    exec(code, found)
    assert capsys.readouterr().out == "(2, 10, 10) (16, 8)\n"
    assert found["y"].shape == (2, 10, 4, 8)
    assert float(found["count"]) == 20.0
    assert np.isfinite(found["loss"])


def test_results_of_the_readme_are_those_of_the_ledger(root: Path):
    page = (root / "README.md").read_text(encoding="utf-8")
    results = re.findall(r"\| `(\w+)` \| works \| validation loss ([\d.]+) after (\d+) s \|", page)
    assert len(results) == len(re.findall("validation loss", page)) == 3
    for recipe, loss, seconds in results:
        entry = json.loads((root / "docs" / "results" / f"{recipe}.json").read_text())[-1]
        assert (entry["recipe"], entry["metric"], entry["split"]) == (recipe, "loss", "validation")
        assert float(loss) == pytest.approx(entry["value"], abs=5.1e-4)
        assert float(seconds) == pytest.approx(entry["train_seconds"], abs=0.51)
