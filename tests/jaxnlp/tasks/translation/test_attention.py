"""Attention of small random translators; test_encoder_decoder.py compares the maps with PyTorch's."""

import jax
import numpy as np
import pytest

from jaxnlp.decoding.distinct_texts import Hypothesis
from jaxnlp.models.attention_lstm import AttentionLSTMConfig
from jaxnlp.models.encoder_decoder import EncoderDecoderConfig
from jaxnlp.tasks import Trained
from jaxnlp.tasks.translation import Translation
from jaxnlp.tasks.translation.attention import TranslationAttention
from jaxnlp.text.subword_training import train_subwords
from jaxnlp.text.subwords import END
from jaxnlp.text.translation import TranslationProcessor
from tests.random_parameters import random_parameters

CONFIGS = {
    "transformer": EncoderDecoderConfig(num_layers=2, num_heads=2, width=8, context_length=16),
    "lstm": AttentionLSTMConfig(embedding_width=8, width=8),
}
SOURCE, TARGET = "one two three", "two one"


@pytest.fixture(scope="module", params=CONFIGS)
def translator(request):
    words = train_subwords(["one two three four five"], "words", 50, minimum_count=1)
    model = CONFIGS[request.param].build(TranslationProcessor(words, words))
    tokens = np.ones((1, 2), np.int32)
    params = random_parameters(model, tokens, tokens, spread=0.7)
    return Trained(Translation(), model, params, TranslationProcessor(words, words), name=request.param)


@pytest.mark.thorough
def test_maps_of_a_given_translation(translator):
    found = translator.attend(SOURCE, TARGET)
    assert (found.title, found.truncated) == (f"{SOURCE} | {TARGET}", False)
    maps = {part.name: part for part in found.maps}
    assert list(maps) == (
        ["encoder", "decoder", "cross-attention"] if translator.name == "transformer" else ["cross-attention"]
    )
    source, target = (translator.processor.source.tokens(ids) for ids in encoded(translator))
    assert (maps["cross-attention"].rows, maps["cross-attention"].columns, maps["cross-attention"].visible) == (
        target,
        source,
        None,
    )
    # What `jaxnlp translate --alignment` shows is the mean over the heads of the last layer.
    read, written = encoded(translator)
    arrays = translator.processor(SOURCE, TARGET)
    assert (arrays["source"][0].tolist(), len(arrays["inputs"][0])) == (read, len(written))
    expected = jax.jit(translator.model.alignment)(translator.params, arrays["source"], arrays["inputs"])[0]
    np.testing.assert_allclose(maps["cross-attention"].weights[-1].mean(axis=0), expected, atol=1e-5)
    if translator.name == "transformer":
        assert (maps["encoder"].rows, maps["encoder"].columns) == (source, source)
        assert maps["decoder"].rows == maps["decoder"].columns == ["<s>", *target[:-1]]
        np.testing.assert_array_equal(
            maps["decoder"].weights > 0.0, np.broadcast_to(maps["decoder"].visible, maps["decoder"].weights.shape)
        )
        assert not maps["decoder"].visible.all()


def encoded(translator):
    return translator.processor.encode_source(SOURCE), translator.processor.encode_target(TARGET)


@pytest.mark.thorough
@pytest.mark.sweep(1)
def test_without_a_translation_the_maps_are_those_of_the_models_own(translator):
    own = translator.translate(SOURCE, num_beams=1)
    found = translator.attend(SOURCE)
    assert found.title == f"{SOURCE} | {own}"
    if found.maps[-1].rows[-1] == "</s>":  # it ended by itself, so that its text has the same tokens
        given = translator.attend(SOURCE, own)
        assert given.maps[-1].rows == found.maps[-1].rows
        np.testing.assert_allclose(found.maps[-1].weights, given.maps[-1].weights, atol=1e-5)


@pytest.mark.sweep(1)
def test_an_empty_translation_is_named_in_the_title(translator, monkeypatch):
    monkeypatch.setattr("jaxnlp.tasks.translation.attention.search", lambda *_: [[Hypothesis("", [END], 0.0)]])
    assert translator.attend(SOURCE).title == f"{SOURCE} (empty translation)"


@pytest.mark.thorough
def test_long_texts_are_truncated_and_blank_ones_refused(translator):
    for texts in (("one " * 9, "two"), ("one", "two " * 9)):
        found = translator.attend(*texts, max_length=4)
        assert (found.truncated, max(*found.maps[-1].weights.shape[2:])) == (True, 4)
    with pytest.raises(ValueError, match="the text is blank; give a text with characters"):
        translator.attend(" ")
    with pytest.raises(ValueError, match="max_length must be at least 1, got 0"):
        translator.attend("one", max_length=0)


@pytest.mark.sweep(1)
def test_the_verb_takes_a_source_and_a_target(translator, tmp_path, capsys):
    out = tmp_path / "page.html"
    TranslationAttention(SOURCE, target=TARGET, out=out)(translator)
    assert capsys.readouterr() == (f"{out}\n", "")
    assert f"{SOURCE} | {TARGET}" in out.read_text()
