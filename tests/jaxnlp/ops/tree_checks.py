"""Properties of the functions of `projective_trees` and of `spanning_trees`."""

import jax
import numpy as np
import pytest
from jax.test_util import check_grads

from tests.jaxnlp.ops.tree_helpers import LENGTHS, by_enumeration, every_tree, is_tree, random_scores

WEIGHTS = np.linspace(1.0, -0.5, len(LENGTHS))


def compiled(best, log_normalizer, marginals):
    """One program: the best trees, log Z, the gradient of a weighted sum of log Z, and the marginals."""

    def all_of(scores, lengths):
        weights = WEIGHTS.astype(scores.dtype)[: len(lengths)]
        total, gradient = jax.value_and_grad(lambda x: (weights * log_normalizer(x, lengths)).sum())(scores)
        return best(scores, lengths), log_normalizer(scores, lengths), total, gradient, marginals(scores, lengths)

    program = jax.jit(all_of)
    return best, log_normalizer, lambda *arguments: jax.device_get(program(*arguments))


class TreeChecks:
    """Tests of a pair of trees and functions, which a subclass names."""

    projective: bool
    functions: tuple

    def all_of(self, scores, lengths=LENGTHS):
        return self.functions[2](scores, lengths)

    def test_tree_normalizer_and_marginals_equal_enumeration_and_padding_has_none(self):
        with jax.enable_x64(True):
            for seed in range(4):
                scores = random_scores(seed, scale=1.0 + seed)
                heads, log_z, _, _, marginals = self.all_of(scores)
                for row, n in enumerate(LENGTHS):
                    assert not heads[row, n:].any()
                    assert not marginals[row, n:].any()
                    assert not marginals[row, :, n + 1 :].any()
                    if n == 0:
                        assert log_z[row] == 0.0
                        continue
                    best, total, shares = by_enumeration(scores[row], n, projective=self.projective)
                    assert heads[row, :n].tolist() == list(best)
                    np.testing.assert_allclose(log_z[row], total, rtol=1e-12)
                    np.testing.assert_allclose(marginals[row, :n, : n + 1], shares, atol=1e-12)
                    np.testing.assert_allclose(marginals[row, :n].sum(axis=1), 1.0, rtol=1e-12)

    def test_the_gradient_by_hand_is_the_marginals_and_equals_autodiff_and_finite_differences(self):
        log_normalizer = self.functions[1]
        with jax.enable_x64(True):
            scores = random_scores(7)
            _, _, _, gradient, marginals = self.all_of(scores)
            np.testing.assert_allclose(gradient, WEIGHTS[:, None, None] * marginals, atol=1e-12)
            trees = np.array(every_tree(5, projective=self.projective))
            summed = jax.grad(lambda x: jax.nn.logsumexp(x[np.arange(5)[None], trees].sum(axis=1)))
            np.testing.assert_allclose(gradient[0], summed(np.nan_to_num(scores[0])), atol=1e-12)
            # Rows of equal length have no NaN, which finite differences would pass on.
            full = np.nan_to_num(random_scores(8, lengths=np.array([5] * 6)))
            check_grads(jax.jit(lambda x: log_normalizer(x, np.array([5] * 6)).sum()), (full,), order=1, modes=["rev"])

    @pytest.mark.thorough
    def test_extreme_scores_in_float32_keep_the_best_tree_and_its_probability(self):
        lengths = np.array([5] * 6)
        scores = random_scores(3, scale=1e4, lengths=lengths, dtype=np.float32)
        heads, log_z, _, gradient, marginals = self.all_of(scores, lengths)
        for row in range(6):
            best, total, shares = by_enumeration(scores[row].astype(np.float64), 5, projective=self.projective)
            assert heads[row].tolist() == list(best)
            np.testing.assert_allclose(log_z[row], total, rtol=1e-6)
            np.testing.assert_allclose(marginals[row], shares, atol=0.02)  # scores of 1e4 have two decimals
        assert np.isfinite(gradient).all()

    @pytest.mark.thorough
    def test_equal_scores_give_a_tree(self):
        heads, _, _, _, marginals = self.all_of(np.zeros((6, 5, 6), np.float32))
        assert all(is_tree(row[:n].tolist()) for row, n in zip(heads, LENGTHS, strict=True) if n)
        np.testing.assert_allclose(marginals[0].sum(axis=1), 1.0, rtol=1e-5)
        np.testing.assert_allclose(marginals[0, :, 0].sum(), 1.0, rtol=1e-5)
