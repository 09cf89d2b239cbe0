"""docs/coursework.md: its Python runs on small models, and its tables name what there is."""

import pkgutil
import re

import numpy as np
import pytest

import jaxnlp
from tests import coursework_runs
from tests.pages import blocks_of

RUNS = {
    "runs/lstm_lm_hw4": coursework_runs.language_model,
    "runs/ud_parser_words": coursework_runs.parser,
    "runs/chr_en_lstm": coursework_runs.translator,
    "runs/names_finetune": coursework_runs.names,
}


@pytest.fixture
def page(root):
    return root / "docs" / "coursework.md"


@pytest.mark.thorough
def test_the_python_of_the_page_runs(page, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fixtures").mkdir()
    windows = np.random.default_rng(0).integers(0, 7, (4, 5))
    np.savez("fixtures/prediction.npz", inp=windows, out=windows[:, 0])
    np.save("fixtures/generation.npy", windows)
    question = coursework_runs.QUESTION
    (tmp_path / "birth_dev.tsv").write_text(f"{question}\tOslo\n{question}\tLondon\n")
    (tmp_path / "birth_test_inputs.tsv").write_text(f"{question}\n")
    monkeypatch.setattr(jaxnlp, "load_run", lambda folder: RUNS[folder](), raising=False)
    found: dict = {}
    code = "\n".join(block.text for block in blocks_of(page) if block.language == "python")
    exec(code.replace("ᎾᏍᎩ ᏃᏊ", "one two"), found)
    assert np.isfinite(found["nll"])
    assert found["words"].shape == (4, 10)
    words, trees, best, hiddens, places = capsys.readouterr().out.rstrip("\n").split("\n")
    assert len(words.split()) == 10
    assert trees.count("ROOT") == 2
    assert float(best.split(" ")[0]) == found["best"].score
    assert hiddens == "(1, 2, 6)"
    assert re.fullmatch("[012] of 2", places)
    assert found["baseline"] == (2.0, 1.0)
    assert found["y"].shape == found["x"].shape
    for split, count in (("dev", 2), ("test", 1)):
        assert (tmp_path / f"vanilla.pretrain.{split}.predictions").read_text(encoding="utf-8").count("\n") == count


def test_the_tables_name_what_there_is(page):
    names = re.findall(r"`((?:jaxnlp|data)\.[\w.]+)`", page.read_text(encoding="utf-8"))
    assert len(names) > 20
    for name in names:
        pkgutil.resolve_name(name)
