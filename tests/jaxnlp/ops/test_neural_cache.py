import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnlp.ops.neural_cache import cache_probability, remembered

BATCH, WINDOW, WIDTH, WORDS = 2, 4, 3, 5
THETA = 0.7


def text(positions, seed=0):
    generator = np.random.default_rng(seed)
    hidden = generator.normal(size=(BATCH, positions, WIDTH)).astype(np.float32)
    return hidden, generator.integers(0, WORDS, (BATCH, positions)).astype(np.int32)


def empty_memory():
    return (
        jnp.zeros((BATCH, WINDOW, WIDTH)),
        jnp.zeros((BATCH, WINDOW), jnp.int32),
        jnp.zeros((BATCH, WINDOW), bool),
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
    memory = (jnp.zeros((BATCH, 0, WIDTH)), jnp.zeros((BATCH, 0), jnp.int32), jnp.zeros((BATCH, 0), bool))
    found = remembered(hidden, words, np.ones(words.shape, bool), *memory)
    assert [part.shape[1] for part in found] == [0, 0, 0]


@pytest.mark.sweep(2)
@pytest.mark.parametrize("sizes", [(11,), (3, 8), (1,) * 11, (5, 1, 5)])
def test_probability_of_a_text_read_in_parts_is_the_papers(sizes):
    hidden, words = text(11)
    memory, found, anything = empty_memory(), [], []
    first = 0
    for size in sizes:
        here = slice(first, first + size)
        probability, there = jax.jit(lambda *a: cache_probability(*a, theta=THETA))(
            hidden[:, here], words[:, here], jnp.ones((BATCH, size), bool), *memory
        )
        memory = remembered(hidden[:, here], words[:, here], jnp.ones((BATCH, size), bool), *memory)
        found.append(probability)
        anything.append(there)
        first += size
    expected = by_hand(hidden, words)
    assert 0.0 < expected.max() < 1.0
    np.testing.assert_allclose(np.concatenate(found, axis=1), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(np.concatenate(anything, axis=1)[0], [False] + [True] * 10)


def test_what_does_not_count_is_not_remembered():
    hidden, words = text(3)
    counted = jnp.array([[True, True, False]] * BATCH)
    memory = remembered(hidden, words, counted, *empty_memory())
    np.testing.assert_array_equal(memory[2], [[False, True, True, False]] * BATCH)


def test_scores_of_a_thousand_stay_finite():
    hidden, words = text(6)
    counted = jnp.ones((BATCH, 6), bool)
    probability, _ = cache_probability(100.0 * hidden, words, counted, *empty_memory(), theta=THETA)
    assert jnp.isfinite(probability).all()
    assert float(probability.max()) <= 1.0


def test_padding_within_a_batch_is_not_looked_at():
    hidden, words = text(6)
    counted = jnp.array([[True, True, False, True, True, True]] * BATCH)
    found, _ = cache_probability(hidden, words, counted, *empty_memory(), theta=THETA)
    changed = hidden.copy()
    changed[:, 2] += 5.0
    other, _ = cache_probability(changed, words, counted, *empty_memory(), theta=THETA)
    np.testing.assert_array_equal(found[:, 3:], other[:, 3:])
