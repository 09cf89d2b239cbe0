"""The page about exported programs says what they do."""

import os
import re
import subprocess
import sys

import jax
import numpy as np
import pytest

from jaxnlp.models.gpt import GPTConfig
from jaxnlp.tasks import Trained
from jaxnlp.tasks.export import ExportCommand
from jaxnlp.tasks.language_model import LanguageModel
from jaxnlp.text.characters import CharacterVocabulary
from tests.conftest import ROOT
from tests.jaxnlp.tasks.export.models import MODELS, trained_of
from tests.pages import blocks_of
from tests.random_parameters import random_parameters


@pytest.fixture
def page(root):
    return root / "docs" / "export.md"


@pytest.mark.thorough
def test_the_example_generates_the_text_of_the_library(page, tmp_path, monkeypatch, capsys):
    vocabulary = CharacterVocabulary.of("The \n")
    config = GPTConfig(num_layers=1, num_heads=2, width=8, context_length=64)
    model = config.build(vocabulary)
    params = jax.device_put(random_parameters(model, *config.inputs(vocabulary)))
    trained = Trained(LanguageModel(), model, params, vocabulary)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    ExportCommand(tmp_path / "exported", format="jax")(trained)
    capsys.readouterr()
    code, _ = [block.text for block in blocks_of(page) if block.language == "python"]
    before = {*sys.modules}
    try:
        exec(code, {})
    finally:
        for name in {*sys.modules} - before:
            del sys.modules[name]
    expected = trained.generate("The ", max_new_tokens=50, temperature=0.0)
    assert capsys.readouterr().out == f"{expected}\n"


def test_the_functions_of_the_table_are_those_of_the_tasks(page):
    section = page.read_text(encoding="utf-8").partition("## Functions")[2].partition("\n## ")[0]
    named = {*re.findall(r"`(\w+)`", "".join(line for line in section.splitlines() if line[:1] == "|"))}
    assert named == {
        re.sub("^classify_.*", "classify_PART", function)
        for name in MODELS
        for function in trained_of(name).task.exports(trained_of(name))
    }


@pytest.mark.thorough
def test_the_example_of_onnx_gives_the_logits_of_the_library(page, tmp_path):
    _, code = [block.text for block in blocks_of(page) if block.language == "python"]
    export = """
from jaxnlp.tasks.export import ExportCommand
from tests.conftest import ROOT
from tests.jaxnlp.tasks.export.models import trained_of
ExportCommand(Path(sys.argv[1]) / "onnx_exported", format="onnx")(trained_of("transformer"))
os.chdir(sys.argv[1])
"""
    save = 'np.save("logits.npy", logits)'
    program = f"import os, sys\nfrom pathlib import Path\n{export}{code}{save}\n"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "XLA_FLAGS": ""}
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True, cwd=ROOT, env=environment)
    trained = trained_of("transformer")
    source, mask = np.array([[5, 6, 3]], np.int32), np.ones((1, 3), bool)
    expected = trained.model.apply({"params": trained.params}, source, np.array([[2]], np.int32), mask)
    np.testing.assert_allclose(np.load(tmp_path / "logits.npy"), expected, atol=1e-4)
