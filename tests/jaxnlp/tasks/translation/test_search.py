"""Translators of small random models; tests/jaxnlp/decoding tests the search itself, test_init.py a trained run."""

import collections
import functools
import itertools
import re

import jax
import numpy as np
import pytest

from jaxnlp.models import parameter_shapes
from jaxnlp.models.attention_lstm import AttentionLSTMConfig
from jaxnlp.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from jaxnlp.tasks import Trained
from jaxnlp.tasks.translation import Translation, commands
from jaxnlp.tasks.translation.commands import Translate
from jaxnlp.tasks.translation.search import SearchOptions, Translator, max_target_length, padded_sources
from jaxnlp.text.subword_training import train_subwords
from jaxnlp.text.subwords import END
from jaxnlp.text.translation import TranslationProcessor
from tests.processors import translating

SIZE = 9
CONFIGS = {
    "transformer": EncoderDecoderConfig(num_layers=1, num_heads=2, width=8, context_length=64),
    "lstm": AttentionLSTMConfig(embedding_width=8, width=8),
}


def random_params(model):
    tokens = np.ones((1, 2), np.int32)
    shapes = parameter_shapes(model, tokens, tokens)
    generator = np.random.default_rng(3)
    return jax.tree.map(lambda leaf: np.float32(0.7 * generator.normal(size=leaf.shape)), shapes)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", CONFIGS)
@pytest.mark.parametrize("num_beams", [1, 3])
def test_a_long_neighbour_does_not_change_a_translation(kind, num_beams):
    model = CONFIGS[kind].build(translating(SIZE))
    translate = functools.partial(Translator.of(model), random_params(model), n_best=num_beams)
    options = SearchOptions(num_beams=num_beams)
    sources = [[5, 6, 7, END], [8, END], [4, 5, 6, 7, 8] * 5]
    together = [np.asarray(part) for part in translate(*padded_sources(sources, 64), options=options)]
    truncated = 0
    for row, source in enumerate(sources):
        alone = [np.asarray(part)[0] for part in translate(*padded_sources([source], 64), options=options)]
        length = max_target_length(len(source))
        np.testing.assert_array_equal(together[0][row, :, :length], alone[0][:, :length])
        assert (together[0][row, :, length:] == END).all()
        np.testing.assert_allclose(together[1][row], alone[1], atol=1e-4)
        truncated += (alone[0][:, length - 1] != END).sum()
    assert truncated  # the maximum length matters


@pytest.mark.thorough
def test_few_programs_are_compiled_for_texts_of_many_lengths(monkeypatch, capsys):
    words = train_subwords(["one two three four five six seven eight nine ten"], "words", 50, minimum_count=1)
    traced = collections.Counter()

    class Counted(EncoderDecoder):
        def advance(self, params, tokens, cache, count=None):
            traced["advance", len(tokens), cache.source_mask.shape, tokens.shape[1]] += 1
            return super().advance(params, tokens, cache, count)

        def initial_cache(self, params, source, source_mask=None, **options):
            traced["initial_cache", source.shape] += 1
            return super().initial_cache(params, source, source_mask, **options)

    model = Counted(CONFIGS["transformer"], words.size, words.size)
    processor = TranslationProcessor(words, words)
    trained = Trained(Translation(), model, random_params(model), processor)
    monkeypatch.setattr(commands, "CHUNK", 4)
    batches = [3, 1, 2, 5], [15, 0, 4, 7], [16, 2, 2, 20], [0, 9, 0, 0], [30, 31, 1, 2], [12, 12, 0, 8], [17, 18]
    lengths = list(itertools.chain(*batches))
    Translate(texts=tuple(" ".join(["two"] * length) for length in lengths), num_beams=2)(trained)
    assert len(capsys.readouterr().out.splitlines()) == len(lengths)
    shapes = {(1, 32)} | {(8, 32)}
    assert {key[1] for key in traced if key[0] == "initial_cache"} == shapes
    # One program reads a source, and one each token.
    assert len(traced) == 2 * len(shapes)
    assert set(traced.values()) == {1}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"num_beams": 0}, "num_beams must be at least 1, got 0"),
        ({"no_repeat_ngram": -1}, "no_repeat_ngram must be at least 0, got -1"),
        ({"length_penalty": -0.5}, "length_penalty must be finite and not negative, got -0.5"),
        ({"coverage_penalty": float("nan")}, "coverage_penalty must be finite and not negative, got nan"),
    ],
)
def test_invalid_options_are_refused(fields, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        SearchOptions(**fields)


def test_the_search_of_a_command_has_only_the_options_of_the_search():
    command = Translate(texts=("a",), num_beams=3, n_best=2, coverage_penalty=0.2)
    assert command.search == SearchOptions(num_beams=3, coverage_penalty=0.2)
