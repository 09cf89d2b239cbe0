"""Decoding by a model that reads a source first, against its forward pass over whole targets."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnlp.decoding.beam import beam_search
from jaxnlp.decoding.generate import generate, target_decoder_of
from jaxnlp.decoding.sampling import Sampling
from jaxnlp.models.encoder_decoder import EncoderDecoderConfig

SIZE, CONTEXT, START, END, MOST = 5, 16, 1, 3, 4
SOURCE = np.array([[1, 4, 2], [3, 3, 0], [2, 0, 0]], np.int32)
MASK = np.array([[1, 1, 1], [1, 1, 0], [1, 0, 0]], bool)
PROMPT = np.full((3, 1), START, np.int32)
CONFIG = EncoderDecoderConfig(num_layers=1, num_heads=2, width=8, context_length=CONTEXT)


@functools.cache
def translator():
    """Model, decoder, parameters, and the log-probabilities [B, V] of what follows targets [B, T]."""
    model = CONFIG.build(SIZE)
    shapes = jax.eval_shape(model.init, jax.random.key(0), SOURCE, PROMPT)["params"]
    generator = np.random.default_rng(3)
    params = jax.tree.map(lambda leaf: jnp.float32(0.7 * generator.normal(size=leaf.shape)), shapes)
    forward = jax.jit(lambda source, mask, inputs: model.apply({"params": params}, source, inputs, mask))

    def log_probabilities(row, target):
        padded = np.zeros((1, MOST), np.int32)
        padded[0, : len(target)] = target
        logits = forward(SOURCE[row : row + 1], MASK[row : row + 1], padded)[0, len(target) - 1]
        return np.asarray(jax.nn.log_softmax(logits), np.float64)

    return model, target_decoder_of(model), params, log_probabilities


def search(source=SOURCE, mask=MASK, num_beams=2, **options):
    model, decoder, params, _ = translator()
    prompt = np.full((len(source), 1), START, np.int32)
    options = {"max_new_tokens": MOST, "stop": END, "cache": model.begin(params, source, mask)} | options
    return beam_search(decoder, params, prompt, num_beams=num_beams, **options)


def every_translation(row):
    """{tokens: log-probability} of all that end, or have the greatest length."""
    *_, log_probabilities = translator()
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


def test_wide_enough_a_search_finds_the_best_translations_of_all():
    result = search(num_beams=SIZE**3)
    for row in range(len(SOURCE)):
        best = sorted(every_translation(row).items(), key=lambda one: -one[1])[:5]
        lengths = np.asarray(result.lengths[row])
        assert [tuple(result.tokens[row, n, : lengths[n]].tolist()) for n in range(5)] == [one for one, _ in best]
        np.testing.assert_allclose(result.scores[row, :5], [score for _, score in best], atol=1e-4)


def test_one_beam_and_sampling_without_temperature_are_greedy():
    model, decoder, params, log_probabilities = translator()
    cache = model.begin(params, SOURCE, MASK)
    options = {"max_new_tokens": MOST, "key": jax.random.key(0), "sampling": Sampling(temperature=0.0)}
    drawn = np.stack(list(generate(decoder, params, PROMPT, cache=cache, **options)), axis=1)
    beam = search(num_beams=1, stop=None)
    np.testing.assert_array_equal(drawn, beam.tokens[:, 0])
    for row, tokens in enumerate(drawn):
        for place, token in enumerate(tokens):
            assert token == log_probabilities(row, (START, *tokens[:place])).argmax()


def test_sentences_of_a_batch_are_translated_as_each_would_be_alone():
    whole = search()
    for row in range(len(SOURCE)):
        kept = int(MASK[row].sum())
        alone = search(SOURCE[row : row + 1, :kept], MASK[row : row + 1, :kept])
        np.testing.assert_array_equal(alone.tokens[0], whole.tokens[row])
        np.testing.assert_allclose(alone.scores[0], whole.scores[row], atol=1e-5)


def test_a_search_without_a_source_is_refused():
    with pytest.raises(ValueError, match="EncoderDecoder reads a source first; give the cache of its method begin"):
        search(cache=None)


def test_a_target_that_the_context_cannot_hold_is_refused_at_the_call():
    model, decoder, params, _ = translator()
    with pytest.raises(ValueError, match="need a context of 17, but the model's holds 16"):
        search(max_new_tokens=17)
    with pytest.raises(ValueError, match="need a context of 17, but the model's holds 16"):
        generate(
            decoder, params, PROMPT, max_new_tokens=17, key=jax.random.key(0), cache=model.begin(params, SOURCE, MASK)
        )
