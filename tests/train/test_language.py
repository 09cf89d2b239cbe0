import math
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from train.language import NeuralCache, continuations, judge, next_word_losses, token_losses

from jaxnlp.decoding.beam import beam_search
from jaxnlp.decoding.generate import generate
from jaxnlp.decoding.sampling import Sampling
from jaxnlp.models.recurrent_lm import RecurrentLMConfig
from jaxnlp.runs import Run, make_decoder
from jaxnlp.text.words import UNK, WordVocabulary
from train import language

VOCABULARY, ROWS, LENGTH = 7, 2, 5
MODEL = RecurrentLMConfig(embedding_width=3, widths=(5, 4)).build(VOCABULARY)


def random_params():
    params = MODEL.init(jax.random.key(0), jnp.zeros((1, 1), jnp.int32))["params"]
    return jax.tree.map(lambda p: 8.0 * p, params)


def batches(count=3, seed=0):
    """One text in two tracks, whose last batch is padded."""
    text = np.random.default_rng(seed).integers(0, VOCABULARY, (ROWS, count * LENGTH + 1)).astype(np.int32)
    found = []
    for number in range(count):
        here = slice(number * LENGTH, (number + 1) * LENGTH)
        mask = np.ones((ROWS, LENGTH), bool)
        if number == count - 1:
            mask[:, -2:] = False
        found.append(
            {
                "tokens": text[:, :-1][:, here],
                "targets": text[:, 1:][:, here],
                "loss_mask": mask,
                "reset": np.full(ROWS, number == 0),
            }
        )
    return found


def by_hand(params, cache):
    """Word by word, the states carried, the cache's mixture as its equations have it."""
    total, count = 0.0, 0
    held = batches()
    for row in range(ROWS):
        tokens, targets, mask = (
            np.concatenate([batch[name][row] for batch in held]) for name in ("tokens", "targets", "loss_mask")
        )
        reading = MODEL.apply({"params": params}, tokens[None], method="read")
        hidden = np.asarray(reading.outputs[0], np.float64)
        logits = np.asarray(MODEL.apply({"params": params}, tokens[None])[0], np.float64)
        for t in np.flatnonzero(mask):
            scores = np.exp(logits[t] - logits[t].max())
            probability = scores[targets[t]] / scores.sum()
            before = range(max(0, t - cache.cache_window), t)
            if len(before):
                likeness = np.exp([cache.cache_theta * hidden[t] @ hidden[i] for i in before])
                same = np.array([targets[i] == targets[t] for i in before])
                share = cache.cache_share
                probability = (1 - share) * probability + share * likeness[same].sum() / likeness.sum()
            total -= math.log(probability)
            count += 1
    return total, count


@pytest.mark.parametrize("window", [0, 3, 50])
def test_losses_of_a_text_are_those_of_its_words_one_by_one(window):
    cache = NeuralCache(cache_window=window, cache_theta=0.9, cache_share=0.3)
    expected, count = by_hand(random_params(), cache)
    found, found_count = token_losses(MODEL, random_params(), batches(), cache)
    assert found_count == count == ROWS * (3 * LENGTH - 2)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_a_cache_that_has_no_share_changes_nothing():
    plain, _ = token_losses(MODEL, random_params(), batches())
    with_cache, _ = token_losses(MODEL, random_params(), batches(), NeuralCache(cache_window=4, cache_share=0.0))
    np.testing.assert_allclose(with_cache, plain, rtol=1e-6)


def test_next_word_losses_are_of_the_word_behind_each_window():
    inputs, targets = batches()[0]["tokens"], np.array([3, 6])
    logits = np.asarray(MODEL.apply({"params": random_params()}, inputs)[:, -1], np.float64)
    expected = np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(ROWS), targets]
    np.testing.assert_allclose(next_word_losses(MODEL, random_params(), inputs, targets), expected, rtol=1e-5)


@pytest.fixture
def parts_of_four(monkeypatch):
    monkeypatch.setattr(language, "READ_TOGETHER", 4)


def random_run():
    vocabulary = WordVocabulary((UNK, *"abcdef"))
    return Run(Path("run"), 12, {}, MODEL, random_params(), vocabulary)


def random_prompts(count):
    return np.random.default_rng(5).integers(0, VOCABULARY, (count, LENGTH)).astype(np.int32)


def logits_of(text):
    return np.asarray(jax.jit(MODEL.apply)({"params": random_params()}, text), np.float64)


@pytest.mark.parametrize("count", [8, 10])
def test_next_word_losses_do_not_depend_on_the_parts_they_are_found_in(parts_of_four, count):
    inputs, targets = random_prompts(count), np.arange(count) % VOCABULARY
    logits = logits_of(inputs)[:, -1]
    expected = np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(count), targets]
    np.testing.assert_allclose(next_word_losses(MODEL, random_params(), inputs, targets), expected, rtol=1e-5)


@pytest.mark.parametrize("count", [8, 10])
def test_the_likeliest_continuations_do_not_depend_on_the_parts_they_are_found_in(parts_of_four, count):
    prompts = random_prompts(count)
    found = continuations(random_run(), prompts, max_new_tokens=3, sampling=Sampling(temperature=0.0), seed=0)
    assert found.shape == (count, 3)
    logits = logits_of(np.concatenate([prompts, found], axis=1))[:, LENGTH - 1 : -1]
    np.testing.assert_array_equal(found, logits.argmax(axis=2))


def test_beams_do_not_depend_on_the_parts_they_are_found_in(parts_of_four):
    run, prompts = random_run(), random_prompts(10)
    found = continuations(run, prompts, max_new_tokens=3, sampling=Sampling(), seed=0, num_beams=3)
    expected = beam_search(make_decoder(MODEL), run.params, prompts, num_beams=3, max_new_tokens=3)
    np.testing.assert_array_equal(found, expected.tokens[:, 0])


def test_each_part_of_the_prompts_is_continued_by_draws_of_its_own(parts_of_four):
    run, prompts = random_run(), np.ones((12, LENGTH), np.int32)
    uniform = {"max_new_tokens": 8, "sampling": Sampling(temperature=1e4), "seed": 3}
    found = continuations(run, prompts, **uniform)
    np.testing.assert_array_equal(found[:4], continuations(run, prompts[:4], **uniform))
    assert len({row.tobytes() for row in found}) == 12


def test_the_first_part_is_drawn_with_the_seeds_own_key():
    run, prompts = random_run(), random_prompts(4)
    sampling = Sampling(temperature=5.0)
    found = continuations(run, prompts, max_new_tokens=5, sampling=sampling, seed=3)
    tokens = generate(
        make_decoder(MODEL), run.params, prompts, max_new_tokens=5, key=jax.random.key(3), sampling=sampling
    )
    np.testing.assert_array_equal(found, np.stack(list(tokens), axis=1))


@pytest.mark.parametrize("count", [3, 11])
def test_a_judge_counts_each_continuation_once_however_many_there_are(count):
    prompts = random_prompts(count)
    added = np.random.default_rng(6).integers(0, VOCABULARY, (count, 2)).astype(np.int32)
    text = np.concatenate([prompts, added], axis=1)
    logits = logits_of(text)[:, LENGTH - 1 : -1]
    aims = np.take_along_axis(logits, added[..., None], axis=2)[..., 0] - np.log(np.exp(logits).sum(axis=2))
    nll, tokens = judge(random_run(), prompts, added)
    assert tokens == 2 * count
    np.testing.assert_allclose(nll, -aims.sum(), rtol=1e-5)


@pytest.mark.parametrize(("count", "shapes"), [(3, [3]), (4, [4]), (10, [4, 4, 4])])
def test_all_parts_are_of_one_shape(count, shapes):
    rows, flags = np.arange(1, 2 * count + 1).reshape(count, 2), np.ones(count, bool)
    parts = list(language._parts(4, rows, flags))
    assert [(len(part), len(valid)) for part, valid in parts] == [(n, n) for n in shapes]
    padded, valid = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    np.testing.assert_array_equal(padded[:count], rows)
    assert valid.dtype == bool
    assert valid.sum() == count
    assert not padded[count:].any()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cache_window": -1}, "cache_window must be at least 0, got -1"),
        ({"cache_theta": -0.5}, "cache_theta must be finite and not negative, got -0.5"),
        ({"cache_share": 1.0}, "cache_share must lie in [0, 1), got 1.0"),
    ],
)
def test_impossible_caches_are_refused(settings, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        NeuralCache(**settings)


def test_without_a_word_about_resets_every_row_begins_anew_with_every_batch():
    held = [{name: array for name, array in batch.items() if name != "reset"} for batch in batches()]
    last = {name: array[:1] for name, array in held[-1].items()}  # of another number of rows
    found, count = token_losses(MODEL, random_params(), [*held, last], NeuralCache(cache_window=4))
    each = [token_losses(MODEL, random_params(), [batch], NeuralCache(cache_window=4)) for batch in [*held, last]]
    np.testing.assert_allclose(found, sum(total for total, _ in each), rtol=1e-6)
    assert count == sum(number for _, number in each)


def test_a_row_that_begins_anew_forgets_the_memory_of_the_cache_too():
    first, second, _ = batches()
    anew = second | {"reset": np.array([True, False])}
    cache = NeuralCache(cache_window=4, cache_share=0.5)
    alone, _ = token_losses(MODEL, random_params(), [{name: array[:1] for name, array in second.items()}], cache)
    rest = [{name: array[1:] for name, array in batch.items()} for batch in (first, second)]
    other, _ = token_losses(MODEL, random_params(), rest, cache)
    before, _ = token_losses(MODEL, random_params(), [{name: array[:1] for name, array in first.items()}], cache)
    found, _ = token_losses(MODEL, random_params(), [first, anew], cache)
    np.testing.assert_allclose(found, alone + other + before, rtol=1e-5)


def test_what_model_and_cache_find_impossible_stays_finite():
    loud = jax.tree.map(lambda p: 500.0 * p, random_params())
    plain, _ = token_losses(MODEL, loud, batches())
    found, _ = token_losses(MODEL, loud, batches(), NeuralCache(cache_window=1, cache_share=0.1))
    assert plain > 300.0
    assert np.isfinite(found)
