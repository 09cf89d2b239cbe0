"""The example of docs/your_own_model.md trains, is read back, and its cache gives what the whole text gives."""

import re
import sys

import jax
import numpy as np
import pytest

import jaxnlp
from train.config import update
from train.loop import fit
from train.recipes import load_recipe


@pytest.fixture
def blocks(root, monkeypatch):
    """The page's blocks of Python."""
    monkeypatch.setattr("train.recipes._given", {})
    monkeypatch.setattr("jaxnlp.saving.serialization.TRUSTED", {"jaxnlp", "data", "train"})
    monkeypatch.setattr(sys, "path", list(sys.path))
    page = (root / "docs" / "your_own_model.md").read_text(encoding="utf-8")
    yield re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    sys.modules.pop("neural_lm", None)


def test_commands_that_read_the_run_trust_its_module(root):
    page = (root / "docs" / "your_own_model.md").read_text(encoding="utf-8")
    reading = re.findall(r"^(.*)jaxnlp (?!train).*runs/neural_lm", page, re.M)
    assert reading == ["JAXNLP_TRUST=neural_lm "] * 2


@pytest.mark.thorough
def test_the_example_trains_and_generates_unchanged(blocks, tmp_path, capsys):
    example, use = blocks
    assert len(example.splitlines()) <= 70
    (tmp_path / "neural_lm.py").write_text(example, encoding="utf-8")
    config = load_recipe(str(tmp_path / "neural_lm.py"))
    assert config.recipe == "neural_lm"
    small = {"data.sequence_length": 16, "data.evaluation_batch_size": 512, "task.sample_prompt": None}
    folder = tmp_path / "run"
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        fit(update(config, total_steps=2, evaluate_every_steps=2, **small), folder)
        with pytest.raises(jaxnlp.runs.RunError, match="set JAXNLP_TRUST=neural_lm"):
            jaxnlp.load_run(folder)
        with pytest.raises(ValueError, match=re.escape("trust must be a list of packages, such as ['neural_lm']")):
            jaxnlp.load_run(folder, trust="neural_lm")
        capsys.readouterr()
        exec(use.replace("runs/neural_lm", str(folder)), found := {})
        text, run = capsys.readouterr().out, found["run"]
        assert text.startswith("The ")
        greedy = run.generate("The language", max_new_tokens=9, temperature=0.0)
        ids = run.processor.encode(greedy)
        best = np.argmax(run.model.apply({"params": run.params}, ids[None])[0], axis=-1)  # without a cache
    assert len(greedy) == len("The language") + 9
    np.testing.assert_array_equal(best[-10:-1], ids[-9:])
