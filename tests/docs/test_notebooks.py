"""The notebooks run from the first cell to the last, and are stored without outputs."""

import json
import sys

import jax
import matplotlib
import matplotlib.pyplot as plt
import nbformat
import pytest

from docs.site_pages import notebooks

STEPS = 200
"""In the notebooks."""
FEW = 6
"""In tests: as many as it takes until a loss has fallen by more than batches differ."""


@pytest.fixture
def shown(monkeypatch, quick_training):
    """Figures that a notebook has shown."""
    matplotlib.use("Agg")
    figures = []
    monkeypatch.setattr(plt, "show", lambda: figures.append(plt.gcf()) or plt.close())
    monkeypatch.setattr(sys, "path", list(sys.path))  # what a notebook adds is forgotten
    return figures


@pytest.mark.parametrize("path", notebooks(), ids=lambda path: path.stem)
def test_notebooks_are_stored_without_outputs(path):
    notebook = json.loads(path.read_text(encoding="utf-8"))
    nbformat.validate(notebook)
    assert [cell for cell in notebook["cells"] if cell.get("outputs") or cell.get("execution_count")] == []
    assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])


def assert_losses_fall(folder):
    """The training losses of the runs in a folder, where there are several."""
    falls = []
    for file in folder.rglob("metrics.jsonl"):
        rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        losses = [row["loss"] for row in rows if row["split"] == "train"]
        falls += [losses[-1] < losses[0]] if len(losses) > 1 else []
    assert falls
    assert all(falls)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("path", "figures"),
    [
        pytest.param(path, figures, marks=[pytest.mark.thorough] if trains else [], id=path.stem)
        for path, figures, trains in zip(notebooks(), [1, 0, 1, 1], [False, True, True, True], strict=True)
    ],
)
def test_notebooks_run(path, figures, shown, capsys):
    found: dict = {}
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            if cell["cell_type"] == "code":
                exec("".join(cell["source"]).replace(f"STEPS = {STEPS}", f"STEPS = {FEW}"), found)
    assert len(shown) == figures
    assert capsys.readouterr().out
    assert found.get("STEPS", FEW) == FEW
    if "STEPS" in found:
        assert_losses_fall(found["folder"])
