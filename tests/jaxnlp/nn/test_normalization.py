import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnlp.nn.compute import Compute
from jaxnlp.nn.normalization import LayerNorm, RMSNorm

pytestmark = pytest.mark.sweep

WIDTH = 6


def random_params(*, use_bias=True):
    scale, bias = np.random.default_rng(0).normal(size=(2, WIDTH)).astype(np.float32)
    return {"scale": scale} | ({"bias": bias} if use_bias else {})


def values_and_gradients(module, params, x, upstream):
    @jax.jit
    def run(params, x, upstream):
        y, vjp = jax.vjp(lambda params, x: module.apply({"params": params}, x), params, x)
        return y, vjp(upstream)

    return run(params, x, upstream)


@pytest.mark.parametrize("use_bias", [True, False])
@pytest.mark.parametrize("leading", [(4,), (2, 5)])
def test_values_and_gradients_equal_those_of_flax(use_bias, leading):
    x, upstream = np.random.default_rng(1).normal(size=(2, *leading, WIDTH)).astype(np.float32)
    params = random_params(use_bias=use_bias)
    found = values_and_gradients(LayerNorm(1e-3, use_bias=use_bias), params, x, upstream)
    expected = values_and_gradients(nn.LayerNorm(1e-3, use_bias=use_bias), params, x, upstream)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), found, expected)


@pytest.mark.thorough
def test_root_mean_squares_equal_those_of_flax():
    x, upstream = np.random.default_rng(1).normal(size=(2, 4, WIDTH)).astype(np.float32)
    params = random_params(use_bias=False)
    found, expected = (values_and_gradients(kind(epsilon=1e-3), params, x, upstream) for kind in (RMSNorm, nn.RMSNorm))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), found, expected)
    assert RMSNorm().init(jax.random.key(0), x)["params"]["scale"].tolist() == [1.0] * WIDTH


@pytest.mark.parametrize("use_bias", [True, False])
def test_initial_parameters_are_those_of_flax(use_bias):
    x = jnp.zeros((2, WIDTH))
    found, expected = (kind(use_bias=use_bias).init(jax.random.key(0), x) for kind in (LayerNorm, nn.LayerNorm))
    jax.tree.map(np.testing.assert_array_equal, found, expected)


@pytest.mark.parametrize("kind", [LayerNorm, RMSNorm])
def test_bfloat16_gives_bfloat16_with_float32_parameters_and_statistics(kind):
    # Around 300, bfloat16 is two apart: means and variances of such values need more digits than it has.
    x = jnp.asarray(300.0 + 8.0 * np.random.default_rng(1).normal(size=(4, WIDTH)), jnp.bfloat16)
    module = kind(compute=Compute(dtype="bfloat16"))
    params = module.init(jax.random.key(0), x)["params"]
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {jnp.dtype("float32")}
    y = module.apply({"params": params}, x)
    assert y.dtype == jnp.bfloat16
    exact = kind().apply({"params": params}, x.astype(jnp.float32))
    np.testing.assert_allclose(y.astype(np.float32), exact, rtol=0.01, atol=0.01)
