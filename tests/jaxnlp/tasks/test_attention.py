import json
import re

import numpy as np
import pytest

from jaxnlp.models.recurrent_lm import RecurrentLMConfig
from jaxnlp.pages.attention_page import render_page
from jaxnlp.tasks import Trained, every_task
from jaxnlp.tasks.attention import Attention
from jaxnlp.tasks.language_model import LanguageModel, RecurrentLanguageModel
from jaxnlp.text.characters import CharacterVocabulary
from tests.jaxnlp.models.gpt_helpers import VOCABULARY, make_model, random_params
from tests.processors import sized

TEXT = "abcab </ba"


@pytest.fixture(scope="module")
def gpt():
    vocabulary = CharacterVocabulary.of("abc </", special="0123456")
    assert vocabulary.size == VOCABULARY
    model = make_model()
    return Trained(LanguageModel(), model, random_params(model), vocabulary, name="gpt<1>")


def test_the_page_is_that_of_the_maps_of_the_models_task(gpt, tmp_path, capsys):
    out = tmp_path / "new" / "page.html"
    Attention(TEXT, out=out)(gpt)
    assert capsys.readouterr() == (f"{out}\n", "")
    assert out.read_text(encoding="utf-8") == render_page(gpt.attend(TEXT).maps, title=TEXT, model="gpt<1>")


def test_a_long_text_is_truncated_with_a_note(gpt, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Attention(TEXT, max_length=4)(gpt)
    assert capsys.readouterr() == ("attention.html\n", "note: the text was truncated to 4 tokens\n")
    (data,) = re.findall(r'id="data">(.*?)</script>', (tmp_path / "attention.html").read_text())
    assert json.loads(data)[0]["rows"] == list(TEXT[:4])


@pytest.mark.parametrize(
    ("text", "message"), [(" ", "the text is blank"), ("xyz", "unknown characters|not in the vocabulary")]
)
def test_a_text_that_cannot_be_drawn_is_refused_and_nothing_is_written(gpt, tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        Attention(text, out=tmp_path / "page.html")(gpt)
    assert list(tmp_path.iterdir()) == []


def test_a_model_that_does_not_attend_says_so_in_one_line(tmp_path):
    model = RecurrentLMConfig(embedding_width=4, widths=(4,)).build(sized(3))
    lstm = Trained(RecurrentLanguageModel(), model, {}, CharacterVocabulary.of("abc"), name="mine")
    with pytest.raises(ValueError, match=r"^mine has no attention to show: its model is a RecurrentLM$"):
        Attention("abc", out=tmp_path / "page.html")(lstm)
    assert repr(lstm).endswith("; generate, perplexity)")


def test_every_task_with_the_verb_has_the_function_and_no_other_has_it():
    tasks = [task() for task in every_task()]
    assert sum("attention" in task.commands for task in tasks) >= 7
    for task in tasks:
        assert ("attention" in task.commands) == ("attend" in task.methods), type(task).__name__


def test_weights_in_python_have_the_shape_that_is_told(gpt):
    assert repr(gpt).endswith("; generate, perplexity, attend)")
    (maps,) = gpt.attend(TEXT).maps
    assert maps.weights.shape == (2, 2, len(TEXT), len(TEXT))
    assert maps.weights.dtype == np.float32
