import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats

from jaxnlp.ops import r_drop
from jaxnlp.ops.losses import cross_entropy
from jaxnlp.ops.r_drop import linear_r_drop, symmetric_kl


def test_the_divergence_is_that_of_scipy_in_both_directions():
    z, y = np.random.default_rng(0).normal(size=(2, 3, 4, 7)).astype(np.float32) * 4.0
    p, q = (scipy.special.softmax(x.astype(np.float64), axis=-1) for x in (z, y))
    expected = scipy.stats.entropy(p, q, axis=-1) + scipy.stats.entropy(q, p, axis=-1)
    np.testing.assert_allclose(symmetric_kl(z, y), expected, rtol=1e-5)
    np.testing.assert_array_equal(symmetric_kl(z, z), np.zeros((3, 4)))


@pytest.mark.sweep
@pytest.mark.parametrize("chunk", [1, 2, 100])
@pytest.mark.parametrize("bias", [True, False])
def test_values_and_gradients_are_those_of_all_logits_at_once(chunk, bias, monkeypatch):
    monkeypatch.setattr(r_drop, "chunk_length", lambda tokens, vocabulary: 2 * min(chunk, tokens // 2))
    rng = np.random.default_rng(1)
    x, w, b = (rng.normal(size=shape).astype(np.float32) for shape in ((5, 2, 3), (3, 7), (7,)))
    b = b if bias else None
    targets, mask = np.array([0, 6, 3, 1, -1]), np.array([1.0, 0.5, 2.0, 1.0, 0.0], np.float32)

    def plain(x, w, b):
        logits = x @ w + (jnp.zeros(1) if b is None else b)[None, None]
        each = [cross_entropy(logits[:, n], targets, mask, label_smoothing=0.1) for n in range(2)]
        divergence = symmetric_kl(logits[:, 0], logits[:, 1]) * mask
        return sum(one.objective for one in each) / 2.0 + 3.0 / 4.0 * divergence.sum()

    def chunked(x, w, b):
        return linear_r_drop(x, w, b, targets, mask, weight=3.0, label_smoothing=0.1).objective

    arguments = (0, 1, 2) if bias else (0, 1)
    expected = jax.jit(jax.value_and_grad(plain, argnums=arguments))(x, w, b)
    found = jax.jit(jax.value_and_grad(chunked, argnums=arguments))(x, w, b)
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=2e-5, atol=1e-5), found, expected)
    losses = jax.jit(lambda *parameters: linear_r_drop(*parameters, targets, mask, weight=3.0))(x, w, b)
    logits = scipy.special.log_softmax(np.float64(x @ w + (0.0 if b is None else b)), axis=-1)
    nll = -(mask[:4, None] * logits[np.arange(4), :, targets[:4]]).sum() / 2.0
    np.testing.assert_allclose((losses.nll, losses.count), (nll, mask.sum()), rtol=1e-5)


def test_shapes_that_do_not_fit_are_refused():
    ones = jnp.ones
    for x, targets in ((ones((5, 3)), ones(5, int)), (ones((5, 2, 3)), ones(4, int))):
        with pytest.raises(ValueError, match=r"x \[N, 2, D\]"):
            linear_r_drop(x, ones((3, 7)), None, targets, ones(len(targets)), weight=1.0)
