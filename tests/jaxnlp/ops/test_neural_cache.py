import functools

import jax
import numpy as np
import pytest

from jaxnlp.ops.neural_cache import cache_probability, remembered

BATCH, WINDOW, WIDTH, WORDS = 2, 4, 3, 5
THETA = 0.7

probability_of = jax.jit(functools.partial(cache_probability, theta=THETA))
compiled_remembered = jax.jit(remembered)


def text(positions, seed=0):
    generator = np.random.default_rng(seed)
    hidden = generator.normal(size=(BATCH, positions, WIDTH)).astype(np.float32)
    return hidden, generator.integers(0, WORDS, (BATCH, positions)).astype(np.int32)


def empty_memory():
    return (
        np.zeros((BATCH, WINDOW, WIDTH), np.float32),
        np.zeros((BATCH, WINDOW), np.int32),
        np.zeros((BATCH, WINDOW), bool),
    )


def by_hand(hidden, words):
    """Equation 3 of the paper, in loops."""
    found = np.zeros(words.shape)
    for row in range(BATCH):
        for t in range(words.shape[1]):
            before = range(max(0, t - WINDOW), t)
            weights = np.exp([THETA * float(hidden[row, t] @ hidden[row, i]) for i in before])
            same = np.array([words[row, i] == words[row, t] for i in before])
            found[row, t] = weights[same].sum() / weights.sum() if len(weights) else 0.0
    return found


def test_a_window_of_nothing_remembers_nothing():
    hidden, words = text(3)
    memory = [array[:, :0] for array in empty_memory()]
    found = compiled_remembered(hidden, words, np.ones(words.shape, bool), *memory)
    assert [part.shape[1] for part in found] == [0, 0, 0]


@pytest.mark.sweep(2)
@pytest.mark.parametrize("sizes", [(11,), (3, 8), (1,) * 11, (5, 1, 5)])
def test_probability_of_a_text_read_in_parts_is_the_papers(sizes):
    hidden, words = text(11)
    memory, found, anything = empty_memory(), [], []
    first = 0
    for size in sizes:
        here = slice(first, first + size)
        given = hidden[:, here], words[:, here], np.ones((BATCH, size), bool)
        probability, there = probability_of(*given, *memory)
        memory = compiled_remembered(*given, *memory)
        found.append(probability)
        anything.append(there)
        first += size
    expected = by_hand(hidden, words)
    assert 0.0 < expected.max() < 1.0
    np.testing.assert_allclose(np.concatenate(found, axis=1), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(np.concatenate(anything, axis=1)[0], [False] + [True] * 10)


def test_what_does_not_count_is_not_remembered():
    hidden, words = text(3)
    counted = np.array([[True, True, False]] * BATCH)
    memory = compiled_remembered(hidden, words, counted, *empty_memory())
    np.testing.assert_array_equal(memory[2], [[False, True, True, False]] * BATCH)


def test_scores_of_a_thousand_stay_finite():
    hidden, words = text(6)
    counted = np.ones((BATCH, 6), bool)
    probability = np.asarray(probability_of(np.float32(100.0) * hidden, words, counted, *empty_memory())[0])
    assert np.isfinite(probability).all()
    assert probability.max() <= 1.0


def test_padding_within_a_batch_is_not_looked_at():
    hidden, words = text(6)
    counted = np.array([[True, True, False, True, True, True]] * BATCH)
    changed = hidden.copy()
    changed[:, 2] += 5.0
    found, other = (
        np.asarray(probability_of(given, words, counted, *empty_memory())[0]) for given in (hidden, changed)
    )
    np.testing.assert_array_equal(found[:, 3:], other[:, 3:])
