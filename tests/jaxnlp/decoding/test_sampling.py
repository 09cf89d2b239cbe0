import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnlp.decoding.sampling import LOWEST_TEMPERATURE, Sampling, filtered_logits, sample

compiled_filter = jax.jit(filtered_logits, static_argnums=1)
compiled_sample = jax.jit(sample, static_argnums=2)

LOGITS = np.random.default_rng(0).normal(scale=2.0, size=(40, 12)).astype(np.float32)
SETTINGS = [
    Sampling(),
    Sampling(temperature=0.3),
    Sampling(top_k=1),
    Sampling(top_k=4, temperature=2.0),
    Sampling(top_k=100),
    Sampling(top_p=0.05),
    Sampling(top_p=0.8, temperature=1.7),
    Sampling(top_p=1.0),
    Sampling(top_k=5, top_p=0.6),
]


def probabilities_by_hand(logits, sampling):
    """Probabilities of one row without ties, in float64: sort, truncate, renormalise."""
    logits = logits.astype(np.float64) / sampling.temperature
    likeliest_first = np.argsort(-logits)[: sampling.top_k or len(logits)]
    unnormalised = np.exp(logits[likeliest_first] - logits.max())
    cumulative = np.cumsum(unnormalised / unnormalised.sum())
    kept = len(cumulative)
    if sampling.top_p not in (None, 1.0):
        kept = 1 + np.flatnonzero(cumulative >= sampling.top_p)[0]
    probabilities = np.zeros_like(logits)
    probabilities[likeliest_first[:kept]] = unnormalised[:kept] / unnormalised[:kept].sum()
    return probabilities


def frequencies(logits, sampling, *, draws, key):
    """Of each token among independent draws from one row of logits."""
    tokens = compiled_sample(np.tile(logits, (draws, 1)), key, sampling)
    return np.bincount(np.asarray(tokens), minlength=len(logits)) / draws


@pytest.mark.parametrize("sampling", SETTINGS, ids=str)
def test_distribution_equals_that_of_sorting_and_truncating(sampling):
    expected = [probabilities_by_hand(row, sampling) for row in LOGITS]
    found = np.asarray(compiled_filter(LOGITS, sampling))
    assert found.dtype == np.float32
    unnormalised = np.exp(found.astype(np.float64) - found.max(axis=-1, keepdims=True))
    probabilities = unnormalised / unnormalised.sum(axis=-1, keepdims=True)
    np.testing.assert_array_equal(probabilities > 0.0, np.array(expected) > 0.0)
    np.testing.assert_allclose(probabilities, expected, atol=1e-6)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.99])
def test_top_p_keeps_the_fewest_tokens_that_reach_the_share(share):
    kept = np.isfinite(compiled_filter(LOGITS, Sampling(top_p=share)))
    probabilities = np.exp(LOGITS) / np.exp(LOGITS).sum(axis=-1, keepdims=True)
    for row, chosen in zip(probabilities, kept, strict=True):
        assert row[chosen].sum() >= share - 1e-6
        assert row[chosen].sum() - row[chosen].min() < share  # without the least likely one it would not do
        assert (~chosen).all() or row[chosen].min() >= row[~chosen].max(initial=0.0)


@pytest.mark.sweep(1)
@pytest.mark.parametrize(
    "sampling", [Sampling(), Sampling(temperature=2.0), Sampling(top_k=3), Sampling(top_p=0.7)], ids=str
)
def test_tokens_are_drawn_as_often_as_their_probability_says(sampling):
    draws = 40_000
    expected = probabilities_by_hand(LOGITS[0], sampling)
    found = frequencies(LOGITS[0], sampling, draws=draws, key=jax.random.key(0))
    assert (np.abs(found - expected) <= 5.0 * np.sqrt(expected * (1.0 - expected) / draws)).all()


@pytest.mark.thorough
def test_rows_are_drawn_independently():
    tokens = np.asarray(compiled_sample(np.zeros((50_000, 2), np.float32), jax.random.key(1), Sampling()))
    assert abs(np.corrcoef(tokens[:-1], tokens[1:])[0, 1]) < 5.0 / np.sqrt(len(tokens))


def test_temperature_zero_takes_the_most_probable_token_for_any_key():
    for seed in (0, 1):
        tokens = compiled_sample(LOGITS, jax.random.key(seed), Sampling(temperature=0.0, top_k=3, top_p=0.5))
        assert tokens.dtype == jnp.int32
        np.testing.assert_array_equal(tokens, LOGITS.argmax(axis=-1))


def test_top_k_of_one_takes_the_likeliest():
    tokens = compiled_sample(LOGITS, jax.random.key(0), Sampling(top_k=1))
    assert tokens.dtype == jnp.int32
    np.testing.assert_array_equal(tokens, LOGITS.argmax(axis=-1))


@pytest.mark.thorough
def test_low_temperature_approaches_the_likeliest_and_high_temperature_uniform_draws():
    assert frequencies(LOGITS[0], Sampling(temperature=1e-4), draws=1000, key=jax.random.key(0)).max() == 1.0
    draws, uniform = 40_000, 1.0 / 12
    found = frequencies(LOGITS[0], Sampling(temperature=1e6), draws=draws, key=jax.random.key(0))
    assert np.abs(found - uniform).max() < 5.0 * np.sqrt(uniform * (1.0 - uniform) / draws)


def test_tokens_that_tie_with_the_last_of_the_top_k_stay():
    logits = np.array([3.0, 1.0, 2.0, 2.0, 2.0, 0.0], np.float32)
    kept = np.isfinite(compiled_filter(logits, Sampling(top_k=2)))
    np.testing.assert_array_equal(kept, [True, False, True, True, True, False])


def test_top_p_takes_no_more_of_equally_likely_tokens_than_it_needs():
    logits = np.zeros(8, np.float32)
    kept = [np.isfinite(compiled_filter(logits, Sampling(top_p=share))).sum() for share in (0.01, 0.25, 0.26, 0.99)]
    assert kept == [1, 2, 3, 8]


def test_tokens_ruled_out_before_stay_ruled_out():
    logits = np.where(np.arange(12) % 2, -np.inf, LOGITS[0]).astype(np.float32)
    for sampling in (Sampling(), Sampling(top_k=9), Sampling(top_p=0.99)):
        kept = np.isfinite(compiled_filter(logits, sampling))
        assert kept.any()
        assert not kept[1::2].any()


@pytest.mark.thorough
def test_bfloat16_logits_are_filtered_in_float32():
    logits = jnp.asarray(LOGITS, jnp.bfloat16)
    found = compiled_filter(logits, Sampling(temperature=1.7, top_p=0.9))
    assert found.dtype == jnp.float32
    np.testing.assert_array_equal(
        found, compiled_filter(np.asarray(logits, np.float32), Sampling(temperature=1.7, top_p=0.9))
    )


def test_large_logits_leave_the_likeliest():
    logits = np.array([1e4, -1e4, 9.9e3], np.float32)
    for sampling in (Sampling(top_p=0.5), Sampling(top_p=0.9999, temperature=0.01)):
        np.testing.assert_array_equal(np.isfinite(compiled_filter(logits, sampling)), [True, False, False])


@pytest.mark.thorough
def test_the_lowest_temperature_draws_the_likeliest_of_large_logits():
    logits = np.array([-1e9, 1e9, 9.9e8], np.float32)
    for settings in ({}, {"top_k": 2}, {"top_p": 0.9}):
        sampling = Sampling(temperature=LOWEST_TEMPERATURE, **settings)
        assert np.asarray(compiled_sample(logits[None], jax.random.key(0), sampling)).tolist() == [1]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperature": -0.5}, "temperature must be 0, or finite and at least 1e-06, got -0.5"),
        ({"temperature": 1e-40}, "temperature must be 0, or finite and at least 1e-06, got 1e-40"),
        ({"temperature": float("inf")}, "temperature must be 0, or finite and at least 1e-06, got inf"),
        ({"temperature": float("nan")}, "temperature must be 0, or finite and at least 1e-06, got nan"),
        ({"top_k": 0}, "top_k must be at least 1, got 0"),
        ({"top_p": 0.0}, "top_p must be in (0, 1], got 0.0"),
        ({"top_p": 1.1}, "top_p must be in (0, 1], got 1.1"),
        ({"top_p": float("nan")}, "top_p must be in (0, 1], got nan"),
    ],
    ids=str,
)
def test_settings_that_cannot_be_are_refused_with_their_value(settings, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Sampling(**settings)


def test_settings_are_values_that_jit_can_tell_apart():
    traces = []

    @functools.partial(jax.jit, static_argnums=1)
    def count(logits, sampling):
        traces.append(sampling)
        return logits

    for sampling in (Sampling(top_k=3), Sampling(top_k=3), Sampling(top_p=0.5)):
        count(LOGITS, sampling)
    assert traces == [Sampling(top_k=3), Sampling(top_p=0.5)]
