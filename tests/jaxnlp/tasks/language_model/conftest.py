"""Commands keep compiled programs where all tests here do."""

import dataclasses
from pathlib import Path

import pytest

from jaxnlp.runs import load_run
from jaxnlp.tasks import Trained
from jaxnlp.text.words import WordVocabulary
from tests.jaxnlp.conftest import FinishedRun


@pytest.fixture(autouse=True)
def programs_stay_in_the_tests_own_folder(monkeypatch: pytest.MonkeyPatch, compiled_programs: Path) -> None:
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(compiled_programs))


@pytest.fixture
def word_model(finished_run: FinishedRun) -> Trained:
    """A model whose vocabulary has words in place of characters, as many."""
    trained = load_run(finished_run.folder)
    words = WordVocabulary(("<unk>", *(f"w{i}" for i in range(1, trained.processor.size))), unknown="<unk>")
    return dataclasses.replace(trained, processor=words)
