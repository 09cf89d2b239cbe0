import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from jaxnlp.ops.crf import LARGEST_SPREAD, Chain, crf_log_likelihood, crf_log_normalizer, crf_marginals
from tests.jaxnlp.ops.crf_helpers import every_path, random_case, score

# Transitions further than 40 apart are summed over in log space, others by matrix products.
PRODUCTS, LOG_SPACE = 1.0, 30.0


@pytest.fixture(autouse=True)
def _float64():
    with jax.enable_x64(True):
        yield


def with_numpy(function):
    """The function as one program, whose results are arrays of NumPy."""
    compiled = jax.jit(function)
    return lambda *arguments: jax.device_get(compiled(*arguments))


@with_numpy
def all_of(scores, labels, lengths, chain):
    return (
        crf_log_likelihood(scores, labels, lengths, chain),
        *(f(scores, lengths, chain) for f in (crf_log_normalizer, crf_marginals)),
    )


@with_numpy
def with_gradient(scores, labels, lengths, chain):
    """The sum of the likelihoods, and its gradient."""
    return jax.value_and_grad(lambda s, c: crf_log_likelihood(s, labels, lengths, c).sum(), argnums=(0, 1))(
        scores, chain
    )


@with_numpy
def gradient_and_marginals(scores, lengths, chain):
    """The gradient of the sum of the normalizers, and the marginals."""
    gradient = jax.grad(lambda s, c: crf_log_normalizer(s, lengths, c).sum(), argnums=(0, 1))(scores, chain)
    return gradient, crf_marginals(scores, lengths, chain)


def changed(array, place, value):
    """The array with the value at the place."""
    array = array.copy()
    array[place] = value
    return array


@pytest.mark.sweep(1)
@pytest.mark.parametrize(("length", "classes", "scale"), [(1, 3, PRODUCTS), (5, 4, PRODUCTS), (4, 3, LOG_SPACE)])
def test_likelihood_and_marginals_equal_sums_over_all_paths(length, classes, scale):
    scores, labels, lengths, chain = random_case(2, length, classes, seed=length, scale=scale)
    found, normalizers, marginals = all_of(scores, labels, lengths, chain)
    for row, n in enumerate(lengths):
        paths, values = every_path(scores[row, :n], chain)
        log_z = np.logaddexp.reduce(values)
        mine = score(labels[row, :n], scores[row], chain)
        np.testing.assert_allclose(found[row], mine - log_z, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(normalizers[row], log_z, rtol=1e-12)
        share = np.exp(values - log_z)
        for t in range(length):
            expected = [share[[path[t] == c for path in paths]].sum() if t < n else 0.0 for c in range(classes)]
            np.testing.assert_allclose(marginals[row, t], expected, atol=1e-12)


def by_autodiff(scores, labels, lengths, chain):
    """The log-likelihood, with the gradient that JAX derives."""
    here = (jnp.arange(scores.shape[1])[None] < lengths[:, None]).astype(scores.dtype)
    emitted = jnp.take_along_axis(scores, labels[:, :, None], axis=-1)[..., 0]
    moved = chain.transitions[labels[:, :-1], labels[:, 1:]] * here[:, 1:]
    last = jnp.take_along_axis(labels, lengths[:, None] - 1, axis=1)[:, 0]
    gold = (emitted * here).sum(1) + moved.sum(1) + chain.start[labels[:, 0]] + chain.end[last]
    alpha = scores[:, 0] + chain.start[None]
    for t in range(1, scores.shape[1]):
        new = jax.nn.logsumexp(alpha[:, :, None] + chain.transitions[None], axis=1) + scores[:, t]
        alpha = jnp.where(here[:, t, None] > 0, new, alpha)
    return gold - jax.nn.logsumexp(alpha + chain.end[None], axis=-1)


@pytest.mark.sweep(1)
@pytest.mark.parametrize(("length", "scale"), [(1, PRODUCTS), (6, PRODUCTS), (6, LOG_SPACE)])
def test_hand_derived_gradient_equals_autodiff(length, scale):
    scores, labels, lengths, chain = random_case(3, length, 4, seed=7, scale=scale)
    weights = np.array([1.0, -2.0, 0.5])

    def weighted(function):
        return lambda scores, chain: (weights * function(scores, labels, lengths, chain)).sum()

    ours, theirs = jax.device_get(
        [
            jax.jit(jax.value_and_grad(weighted(f), argnums=(0, 1)))(scores, chain)
            for f in (crf_log_likelihood, by_autodiff)
        ]
    )
    chex.assert_trees_all_close(ours, theirs, rtol=1e-10, atol=1e-10)
    assert np.abs(ours[1][0]).max() > 1e-2


def test_gradient_equals_finite_differences():
    scores, labels, lengths, chain = random_case(2, 4, 3, seed=3)
    check_grads(
        jax.jit(lambda s, t: crf_log_likelihood(s, labels, lengths, Chain(t, *chain[1:])).sum()),
        (scores, chain.transitions),
        order=1,
        modes=["rev"],
    )


@pytest.mark.thorough
def test_gradient_of_the_normalizer_is_the_marginals():
    scores, _, lengths, chain = random_case(2, 4, 3, seed=5)
    (gradient, _), marginals = gradient_and_marginals(scores, lengths, chain)
    np.testing.assert_allclose(gradient, marginals, atol=1e-12)


@pytest.mark.thorough
def test_padding_changes_nothing_even_if_it_is_nan():
    scores, labels, _, chain = random_case(2, 4, 3, seed=2)
    lengths = np.array([2, 2])
    short_value, (dscores, dchain) = with_gradient(scores[:, :2], labels[:, :2], lengths, chain)
    here = np.s_[:, 2:]
    dirty = changed(scores, here, np.nan)
    value, gradient = with_gradient(dirty, changed(labels, here, 0), lengths, chain)
    chex.assert_trees_all_close((value, gradient[1]), (short_value, dchain), atol=1e-12)
    np.testing.assert_allclose(gradient[0][:, :2], dscores, atol=1e-12)
    np.testing.assert_array_equal(gradient[0][here], 0.0)
    _, _, marginals = all_of(dirty, labels, lengths, chain)
    np.testing.assert_allclose(marginals.sum(-1), [[1.0, 1.0, 0.0, 0.0]] * 2, atol=1e-12)


@pytest.mark.thorough
def test_a_sequence_of_length_0_has_likelihood_1_and_no_gradient():
    scores, labels, _, chain = random_case(2, 4, 3)
    lengths = np.array([0, 4])
    value, (dscores, dchain) = with_gradient(scores[:1], labels[:1], lengths[:1], chain)
    assert value == 0.0
    chex.assert_trees_all_equal((dscores, dchain), jax.tree.map(np.zeros_like, (dscores, dchain)))
    both, normalizers, marginals = all_of(scores, labels, lengths, chain)
    assert both[0] == normalizers[0] == 0.0
    assert both[1] < 0.0
    np.testing.assert_array_equal(marginals[0], 0.0)


@pytest.mark.thorough
@pytest.mark.parametrize("what", ["scores", "both"])
def test_scores_of_ten_thousand_keep_float32_values_and_gradients(what):
    scores, labels, lengths, chain = random_case(3, 40, 5, seed=9)
    scores = scores * 1e4
    chain = Chain(chain.transitions * (1e4 if what == "both" else 1.0), *chain[1:])

    def found(dtype):
        scores_, chain_ = jax.tree.map(lambda x: x.astype(dtype), (scores, chain))
        return *with_gradient(scores_, labels, lengths, chain_), all_of(scores_, labels, lengths, chain_)[2]

    ours, exact = found(np.float32), found(np.float64)
    chex.assert_tree_all_finite(ours)
    np.testing.assert_allclose(ours[0], exact[0], rtol=1e-6)
    chex.assert_trees_all_close(ours[1:], jax.tree.map(lambda x: x.astype(np.float32), exact[1:]), atol=0.02)
    np.testing.assert_allclose(ours[2].sum(-1), np.arange(40)[None] < lengths[:, None], atol=1e-5)


@pytest.mark.thorough
def test_both_kinds_of_sums_agree_at_the_border_between_them():
    scores, labels, lengths, chain = random_case(3, 40, 5, seed=1, dtype=np.float32)
    spread = chain.transitions.max() - chain.transitions.min()

    def found(factor):
        moved = Chain(chain.transitions * np.float32(factor * LARGEST_SPREAD / spread), *chain[1:])
        return with_gradient(scores, labels, lengths, moved)

    chex.assert_trees_all_close(found(0.9999), found(1.0001), rtol=1e-3, atol=1e-3)


@pytest.mark.thorough
def test_minus_infinity_forbids_a_transition():
    scores, labels, lengths, chain = random_case(2, 4, 3, seed=4)
    labels = np.array([[0, 1, 2, 1], [0, 1, 2, 0]])
    forbidding = Chain(changed(chain.transitions, (0, 2), -np.inf), changed(chain.start, 1, -np.inf), chain.end)
    values, gradient = with_gradient(scores, labels, lengths, forbidding)
    chex.assert_tree_all_finite((values, gradient))
    assert gradient[1].transitions[0, 2] == 0.0
    _, normalizers, marginals = all_of(scores, labels, lengths, forbidding)
    assert marginals[0, 0, 1] == 0.0
    paths, all_scores = every_path(scores[0, : int(lengths[0])], forbidding)
    assert len(paths) > np.isfinite(all_scores).sum() > 0
    np.testing.assert_allclose(normalizers[0], np.logaddexp.reduce(all_scores))
    assert all_of(scores, changed(labels, (0, 1), 2), lengths, forbidding)[0][0] == -np.inf


def test_a_label_that_nothing_may_follow_leaves_gradients_at_padding_finite():
    scores, _, _, chain = random_case(2, 4, 3, seed=6)
    labels, lengths = np.array([[0, 2, 0, 0], [0, 1, 1, 2]]), np.array([2, 4])
    last = np.array([-np.inf, -np.inf, 0.0])  # only label 2 ends a sequence
    ending = Chain(changed(chain.transitions, 2, -np.inf), chain.start, last)
    value, gradient = with_gradient(scores, labels, lengths, ending)
    chex.assert_tree_all_finite((value, gradient))
    rows = [
        with_gradient(scores[i : i + 1, :n], labels[i : i + 1, :n], lengths[i : i + 1], ending)
        for i, n in ((0, 2), (1, 4))
    ]
    np.testing.assert_allclose(
        gradient[1].transitions, rows[0][1][1].transitions + rows[1][1][1].transitions, atol=1e-12
    )
    (of_normalizer, _), marginals = gradient_and_marginals(scores, lengths, ending)
    np.testing.assert_allclose(of_normalizer, marginals, atol=1e-12)


def test_a_label_that_follows_no_label_leaves_gradients_finite():
    scores, labels, lengths, chain = random_case(2, 4, 3, seed=7)
    labels = np.minimum(labels, 1)
    closed = Chain(changed(chain.transitions, np.s_[:, 2], -np.inf), chain.start, chain.end)  # label 2 is only first
    chex.assert_tree_all_finite(with_gradient(scores, labels, lengths, closed))
    of_normalizer, marginals = gradient_and_marginals(scores, lengths, closed)
    np.testing.assert_allclose(of_normalizer[0], marginals, atol=1e-12)
    chex.assert_tree_all_finite(of_normalizer[1])


def test_shapes_that_do_not_fit_are_named():
    scores, labels, lengths, chain = random_case(2, 4, 3)
    with pytest.raises(ValueError, match=r"lengths \[B\] int.*got scores \(2, 4, 3\), lengths \(3,\)"):
        crf_marginals(scores, np.array([1, 2, 3]), chain)
    with pytest.raises(ValueError, match=r"labels \[B, T\], got scores \(2, 4, 3\), labels \(2, 3\)"):
        crf_log_likelihood(scores, labels[:, :3], lengths, chain)
    with pytest.raises(ValueError, match="T at least 1"):
        crf_log_normalizer(scores[:, :0], lengths, chain)
    with pytest.raises(ValueError, match="expected float arrays, got scores int"):
        crf_marginals(scores.astype(int), lengths, chain)
