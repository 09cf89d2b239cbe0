import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnlp.nn.embedding import Embed

TOKENS = np.array([[1, 0, 3], [1, 1, 2]])


@pytest.mark.parametrize("dtype", [None, "bfloat16"])
def test_parameters_and_rows_are_those_of_flax(dtype):
    ours, theirs = (kind(4, 8, dtype) for kind in (Embed, nn.Embed))
    variables = ours.init(jax.random.key(0), TOKENS)
    jax.tree.map(np.testing.assert_array_equal, variables, theirs.init(jax.random.key(0), TOKENS))
    rows, expected = (layer.apply(variables, TOKENS) for layer in (ours, theirs))
    assert rows.dtype == expected.dtype == (dtype or np.float32)
    np.testing.assert_array_equal(rows, expected)


def test_the_gradient_of_short_rows_is_summed_in_float32():
    layer = Embed(4, 8, jnp.bfloat16)
    tokens = np.zeros(1000, np.int32)
    variables = layer.init(jax.random.key(0), tokens)
    gradient = jax.grad(lambda variables: layer.apply(variables, tokens).astype(jnp.float32).sum())(variables)
    np.testing.assert_array_equal(gradient["params"]["embedding"][:, 0], [1000.0, 0.0, 0.0, 0.0])
