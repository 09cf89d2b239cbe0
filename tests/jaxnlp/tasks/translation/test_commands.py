"""What `jaxnlp translate` prepares; test_init.py runs it."""

import json
import math
import types

import numpy as np
import pytest

from jaxnlp.tasks.translation import commands
from jaxnlp.tasks.translation.commands import Translate
from jaxnlp.tasks.translation.search import SearchOptions, padded_sources
from jaxnlp.text.subwords import END, Subwords
from jaxnlp.text.translation import TranslationProcessor


def test_sources_are_padded_to_a_multiple_of_sixteen_or_the_longest_there_may_be():
    ids, mask = padded_sources([[5, 6, 7], [8]], 96)
    assert ids.shape == mask.shape == (2, 16)
    np.testing.assert_array_equal(ids[:, :4], [[5, 6, 7, 0], [8, 0, 0, 0]])
    np.testing.assert_array_equal(mask.sum(axis=1), [3, 1])
    assert padded_sources([list(range(17))], 20)[0].shape == (1, 20)


def test_no_more_translations_than_beams_are_given():
    with pytest.raises(ValueError, match="--n-best must be from 1 to --num-beams, which is 2, got 3"):
        Translate(num_beams=2, n_best=3)


@pytest.fixture
def trained(monkeypatch):
    """A translator that finds fixed beams: the first two have the same text, and the last does not exist."""
    subwords = Subwords("bpe", ("▁", "a", "b", "▁a", "▁ab"), (0.0,) * 5)
    beams = np.array([[8, END, END], [7, 6, END], [7, 5, END], [END, END, END]])
    scores = np.array([-0.5, -0.75, -1.0, -math.inf])
    monkeypatch.setattr(commands, "_searcher", lambda trained, sources, options, count: count)
    monkeypatch.setattr(commands, "in_batches", lambda lengths, shapes, count: [(beams[:count], scores[:count])])
    return types.SimpleNamespace(
        model=types.SimpleNamespace(config=types.SimpleNamespace(max_length=16)),
        processor=TranslationProcessor(subwords, subwords),
    )


@pytest.fixture
def search(trained):
    return lambda n_best: commands.search(trained, [[4, END]], SearchOptions(num_beams=4), n_best)[0]


def test_the_n_best_translations_have_distinct_texts_each_with_its_best_score(search):
    for n_best in (1, 2, 3):
        found = [(hypothesis.text, hypothesis.score) for hypothesis in search(n_best)]
        assert found == [("ab", -0.5), ("aa", -1.0)][:n_best]


def test_in_python_a_text_that_is_too_long_is_translated_with_a_warning(trained, caplog):
    assert commands.translate(trained, "a b a") == "ab"
    assert not caplog.messages
    assert commands.translate(trained, "a b " * 9) == "ab"
    assert caplog.messages == ["the text was truncated to 16 tokens"]


def test_a_text_has_as_many_lines_as_it_was_asked_for_and_json_has_no_empty_translations(search, capsys):
    Translate(n_best=3)._show("x", search(3))
    assert capsys.readouterr().out == "-0.5000\tab\n-1.0000\taa\n\n"
    Translate(n_best=1)._show("x", search(1))
    assert capsys.readouterr().out == "ab\n"
    Translate(n_best=3, json=True)._show("x", search(3))
    assert json.loads(capsys.readouterr().out)["translations"] == [
        {"text": "ab", "score": -0.5},
        {"text": "aa", "score": -1.0},
    ]
