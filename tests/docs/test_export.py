"""The page about exported programs says what they do."""

import re
import sys

import jax
import pytest

from jaxnlp.models.gpt import GPTConfig
from jaxnlp.tasks import Trained
from jaxnlp.tasks.export import ExportCommand
from jaxnlp.tasks.language_model import LanguageModel
from jaxnlp.text.characters import CharacterVocabulary
from tests.jaxnlp.tasks.export.models import MODELS, trained_of
from tests.pages import blocks_of
from tests.random_parameters import random_parameters


@pytest.fixture
def page(root):
    return root / "docs" / "export.md"


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
    (code,) = [block.text for block in blocks_of(page) if block.language == "python"]
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
