import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnlp.ops.answer_spans import best_spans

ROWS, LENGTH, LONGEST, BEST = 3, 9, 4, 6


def example():
    draw = np.random.default_rng(0)
    scores = draw.normal(size=(ROWS, LENGTH, 2)).astype(np.float32) * 3
    mask = draw.random((ROWS, LENGTH, 2)) < 0.7
    mask[:, 0] = True
    mask[2, 1:] = False  # a text without tokens
    return scores, mask


def by_brute_force(scores, mask):
    """All spans of a text with their log-probabilities, the best first; and the log-probability of no answer."""
    exps = np.where(mask, np.exp(scores.astype(np.float64)), 0.0)
    log_probs = np.log(exps / exps.sum(axis=0), where=mask, out=np.full(mask.shape, -np.inf))
    spans = [
        (log_probs[i, 0] + log_probs[j, 1], (i, j))
        for i, j in itertools.product(range(1, LENGTH), repeat=2)
        if i <= j < i + LONGEST and mask[i, 0] and mask[j, 1]
    ]
    return sorted(spans, reverse=True), log_probs[0].sum()


def test_the_spans_are_those_of_an_exhaustive_search():
    scores, mask = example()
    found = jax.jit(best_spans, static_argnames=("max_tokens", "k"))(scores, mask, max_tokens=LONGEST, k=BEST)
    for row in range(ROWS):
        spans, no_answer = by_brute_force(scores[row], mask[row])
        count = min(BEST, len(spans))
        np.testing.assert_allclose(found.log_probs[row, :count], [value for value, _ in spans[:count]], rtol=1e-5)
        assert found.spans[row, :count].tolist() == [list(place) for _, place in spans[:count]]
        assert (found.log_probs[row, count:] == -jnp.inf).all()
        np.testing.assert_allclose(found.no_answer[row], no_answer, rtol=1e-5)


@pytest.mark.thorough
def test_more_spans_may_be_asked_for_than_there_are():
    found = best_spans(jnp.zeros((1, 3, 2)), jnp.ones((1, 3, 2), bool), max_tokens=2, k=20)
    assert found.spans.shape == (1, 20, 2)
    assert jnp.isfinite(found.log_probs).sum() == 3  # (1, 1), (1, 2), (2, 2)


@pytest.mark.thorough
def test_scores_of_padding_change_nothing():
    scores, mask = example()
    more = np.full((ROWS, 5, 2), 1e9, np.float32)
    padded = np.concatenate([scores, more], axis=1), np.pad(mask, [(0, 0), (0, 5), (0, 0)])
    for a, b in zip(
        best_spans(scores, mask, max_tokens=LONGEST, k=3), best_spans(*padded, max_tokens=LONGEST, k=3), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=1e-6)


@pytest.mark.parametrize(
    ("scores", "mask"),
    [(jnp.zeros((2, 3, 2)), jnp.ones((2, 3), bool)), (jnp.zeros((2, 3)), jnp.ones((2, 3), bool))],
    ids=["mask of one side", "scores of one side"],
)
def test_other_shapes_are_refused(scores, mask):
    with pytest.raises(ValueError, match="scores \\[B, T, 2\\]"):
        best_spans(scores, mask, max_tokens=2, k=2)


@pytest.mark.thorough
@pytest.mark.parametrize("max_tokens", [2, 30])
def test_a_program_for_texts_of_any_length_finds_the_same_spans(max_tokens):
    size = jax.export.symbolic_shape("B, T", constraints=["T <= 384"])
    shapes = [jax.ShapeDtypeStruct((*size, 2), dtype) for dtype in (jnp.float32, bool)]
    find = jax.jit(lambda *inputs: best_spans(*inputs, max_tokens=max_tokens, k=20))
    program = jax.export.export(find)(*shapes)
    scores = np.random.default_rng(1).normal(size=(2, 120, 2)).astype(np.float32)
    for length in (1, 9, 120):  # fewer entries than spans, and more than are read in one block
        inputs = scores[:, :length], np.ones((2, length, 2), bool)
        for found, expected in zip(program.call(*inputs), find(*inputs), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-6)
