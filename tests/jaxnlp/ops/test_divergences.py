import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats

from jaxnlp.ops.divergences import symmetric_kl


def test_the_divergence_is_that_of_scipy_in_both_directions():
    z, y = np.random.default_rng(0).normal(size=(2, 3, 4, 7)).astype(np.float32) * 4.0
    p, q = (scipy.special.softmax(x.astype(np.float64), axis=-1) for x in (z, y))
    expected = scipy.stats.entropy(p, q, axis=-1) + scipy.stats.entropy(q, p, axis=-1)
    np.testing.assert_allclose(symmetric_kl(z, y), expected, rtol=1e-5)
    np.testing.assert_array_equal(symmetric_kl(z, z), np.zeros((3, 4)))


def test_logits_far_from_zero_and_in_bfloat16_give_finite_values_and_gradients():
    z, y = jnp.array([[1e4, 0.0, -1e4]]), jnp.array([[-1e4, 0.0, 1e4]])
    assert symmetric_kl(z, y).item() == 4e4
    assert jnp.isfinite(jax.grad(lambda x: symmetric_kl(x, y).sum())(z)).all()
    assert symmetric_kl(z.astype(jnp.bfloat16), y.astype(jnp.bfloat16)).dtype == jnp.float32


def test_other_shapes_and_types_are_refused():
    with pytest.raises(AssertionError, match="shape"):
        symmetric_kl(jnp.ones((2, 3)), jnp.ones((2, 4)))
    with pytest.raises(ValueError, match="p_logits"):
        symmetric_kl(jnp.ones((2, 3), int), jnp.ones((2, 3)))
