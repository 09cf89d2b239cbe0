"""Decoding by a model that reads a source first, against its forward pass over whole targets."""

import functools

import jax
import numpy as np
import pytest
import scipy.special

from jaxnlp.decoding.beam import beam_search
from jaxnlp.decoding.generation import generate, target_decoder_of
from jaxnlp.decoding.sampling import Sampling
from jaxnlp.models import parameter_shapes
from jaxnlp.models.attention_lstm import AttentionLSTMConfig
from jaxnlp.models.encoder_decoder import EncoderDecoderConfig
from tests.processors import translating

SIZE, CONTEXT, START, END, MOST = 5, 16, 1, 3, 4
SOURCE = np.array([[1, 4, 2], [3, 3, 0], [2, 0, 0]], np.int32)
MASK = np.array([[1, 1, 1], [1, 1, 0], [1, 0, 0]], bool)
PROMPT = np.full((3, 1), START, np.int32)
CONFIGS = {
    "transformer": EncoderDecoderConfig(num_layers=1, num_heads=2, width=8, context_length=CONTEXT),
    "lstm": AttentionLSTMConfig(embedding_width=8, width=8),
}
each_model = pytest.mark.parametrize("kind", CONFIGS)


@functools.cache
def translator(kind="transformer"):
    """Model, decoder, parameters, and the log-probabilities [B, V] of what follows targets [B, T]."""
    model = CONFIGS[kind].build(translating(SIZE))
    shapes = parameter_shapes(model, SOURCE, PROMPT)
    generator = np.random.default_rng(3)
    params = jax.tree.map(lambda leaf: np.float32(0.7 * generator.normal(size=leaf.shape)), shapes)
    forward = jax.jit(lambda source, mask, inputs: model.apply({"params": params}, source, inputs, mask))

    def log_probabilities(row, target):
        padded = np.zeros((1, MOST), np.int32)
        padded[0, : len(target)] = target
        logits = np.asarray(forward(SOURCE[row : row + 1], MASK[row : row + 1], padded))[0, len(target) - 1]
        return scipy.special.log_softmax(logits.astype(np.float64))

    return model, target_decoder_of(model), params, log_probabilities


@functools.partial(jax.jit, static_argnames=("model", "capacity", "count_coverage"))
def cache_of(model, params, source=SOURCE, mask=MASK, **options):
    return model.initial_cache(params, source, mask, **options)


def search(source=SOURCE, mask=MASK, num_beams=2, kind="transformer", **options):
    model, decoder, params, _ = translator(kind)
    prompt = np.full((len(source), 1), START, np.int32)
    options = {"max_new_tokens": MOST, "stop": END, "cache": cache_of(model, params, source, mask)} | options
    return jax.device_get(beam_search(decoder, params, prompt, num_beams=num_beams, **options))


@functools.cache
def every_translation(row, kind="transformer"):
    """{tokens: log-probability} of all translations that end or have the maximum length."""
    *_, log_probabilities = translator(kind)
    running, found = {(): 0.0}, {}
    for _ in range(MOST):
        longer = {
            (*prefix, token): score + one
            for prefix, score in running.items()
            for token, one in enumerate(log_probabilities(row, (START, *prefix)))
        }
        found |= {tokens: score for tokens, score in longer.items() if tokens[-1] == END}
        running = {tokens: score for tokens, score in longer.items() if tokens[-1] != END}
    return found | running


def assert_best(result, row, scores):
    """The search has found the five best translations of a source, by {tokens: score}."""
    best = sorted(scores.items(), key=lambda one: -one[1])[:5]
    lengths = np.asarray(result.lengths[row])
    assert [tuple(result.tokens[row, n, : lengths[n]].tolist()) for n in range(5)] == [one for one, _ in best]
    np.testing.assert_allclose(result.scores[row, :5], [score for _, score in best], atol=1e-4)


@pytest.mark.thorough
@each_model
def test_wide_enough_a_search_finds_the_best_translations_of_all(kind):
    result = search(num_beams=SIZE**3, kind=kind)
    for row in range(len(SOURCE)):
        assert_best(result, row, every_translation(row, kind))


@pytest.mark.sweep(1)
@pytest.mark.parametrize("size", [2, 1])
def test_ngrams_are_not_repeated_where_that_is_asked_for(size):
    result = search(num_beams=SIZE**3, no_repeat_ngram=size)

    def repeats(tokens):
        ngrams = [tokens[n : n + size] for n in range(len(tokens) - size + 1)]
        return len(set(ngrams)) < len(ngrams)

    for row in range(len(SOURCE)):
        scores = every_translation(row)
        assert any(map(repeats, scores))
        assert_best(result, row, {tokens: score for tokens, score in scores.items() if not repeats(tokens)})


@pytest.mark.thorough
@each_model
def test_the_coverage_penalty_ranks_by_what_was_attended_to(kind):
    model, _, params, _ = translator(kind)
    cache = cache_of(model, params, count_coverage=True)
    result = search(num_beams=SIZE**3, kind=kind, coverage_penalty=0.7, cache=cache)
    align = jax.jit(model.alignment)
    for row in range(len(SOURCE)):
        scores = {}
        for tokens, score in every_translation(row, kind).items():
            inputs = np.zeros((1, MOST), np.int32)
            inputs[0, : len(tokens)] = (START, *tokens[:-1])
            weights = np.asarray(align(params, SOURCE[row : row + 1], inputs, MASK[row : row + 1]))[0, : len(tokens)]
            attended = weights.sum(axis=0)[MASK[row]]
            scores[tokens] = score + 0.7 * np.log(np.minimum(attended, 1.0)).sum()
        assert_best(result, row, scores)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["lstm", "transformer"])
def test_one_beam_and_sampling_without_temperature_are_greedy(kind):
    model, decoder, params, log_probabilities = translator(kind)
    cache = cache_of(model, params)
    options = {"max_new_tokens": MOST, "key": jax.random.key(0), "sampling": Sampling(temperature=0.0)}
    drawn = np.stack(list(generate(decoder, params, PROMPT, cache=cache, **options)), axis=1)
    beam = search(num_beams=1, stop=None, kind=kind)
    np.testing.assert_array_equal(drawn, beam.tokens[:, 0])
    for row, tokens in enumerate(drawn):
        for place, token in enumerate(tokens):
            assert token == log_probabilities(row, (START, *tokens[:place])).argmax()


@pytest.mark.thorough
@each_model
def test_sentences_of_a_batch_are_translated_like_each_one_separately(kind):
    whole = search(kind=kind)
    for row, kept in enumerate((3, 3, 1)):  # the second one with its padding, the third one without it
        alone = search(SOURCE[row : row + 1, :kept], MASK[row : row + 1, :kept], kind=kind)
        np.testing.assert_array_equal(alone.tokens[0], whole.tokens[row])
        np.testing.assert_allclose(alone.scores[0], whole.scores[row], atol=1e-5)


@pytest.mark.thorough
def test_a_cache_with_little_room_gives_the_same():
    model, _, params, _ = translator()
    small = search(cache=cache_of(model, params, capacity=16), max_new_tokens=MOST)
    np.testing.assert_array_equal(small.tokens, search().tokens)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"coverage_penalty": -1.0}, "coverage_penalty must be at least 0 and finite, got -1.0"),
        ({"coverage_penalty": 0.1, "cache": None}, "coverage_penalty needs a model that attends to a source"),
        ({"no_repeat_ngram": -1}, "no_repeat_ngram must be at least 0, got -1"),
        ({"coverage_penalty": 0.1}, "this cache does not count coverage; call initial_cache with count_coverage=True"),
    ],
)
def test_options_that_cannot_be_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        search(**options)


def test_a_search_without_a_source_is_refused():
    with pytest.raises(
        ValueError,
        match="EncoderDecoder reads a source first; give the result of its method initial_cache as the cache",
    ):
        search(cache=None)


def test_a_target_that_the_context_cannot_hold_is_refused_at_the_call():
    model, decoder, params, _ = translator()
    with pytest.raises(ValueError, match="need a context of 17, but the model's context has only 16"):
        search(max_new_tokens=17)
    with pytest.raises(ValueError, match="need a context of 17, but the model's context has only 16"):
        generate(decoder, params, PROMPT, max_new_tokens=17, key=jax.random.key(0), cache=cache_of(model, params))
