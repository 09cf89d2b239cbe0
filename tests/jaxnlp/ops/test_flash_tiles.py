"""The dropout and the precision of a tile, in the kernels of each platform."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnlp.ops.devices import compile_for
from jaxnlp.ops.dropout_masks import keep_mask
from jaxnlp.ops.flash import flash_attention


@pytest.mark.sweep(1)
@pytest.mark.parametrize("platform", ["gpu", "tpu"])
@pytest.mark.parametrize(("queries", "keys"), [(24, 16), (70, 100)])
def test_dropout_keeps_exactly_the_pairs_of_the_mask(queries, keys, platform):
    # All weights are equal, and the values are one-hot: the result shows which keys each query has kept.
    rows, heads = 2, 3
    q, k = np.zeros((rows, queries, heads, 128), np.float32), np.zeros((rows, keys, heads, 128), np.float32)
    v = np.broadcast_to(np.eye(keys, 128, dtype=np.float32)[None, :, None], k.shape)
    dropped = {"dropout_rate": 0.3, "dropout_key": jax.random.key(5), "first_row": 4}
    with compile_for(platform):
        y = jax.jit(functools.partial(flash_attention, interpret=True, **dropped))(q, k, v)
    kept = keep_mask(dropped["dropout_key"], (rows, heads, queries, keys), 0.3, first_row=4)
    np.testing.assert_array_equal(np.asarray(y)[..., :keys] > 0.0, np.moveaxis(kept, 1, 2))


@pytest.mark.parametrize("platform", ["gpu", "tpu"])
def test_the_gradient_has_the_precision_of_the_values(platform):
    """It was traced after the context, so that its products were in TF32."""

    def values(packed):
        with jax.default_matmul_precision("highest"):
            return flash_attention(packed, causal=True).sum()

    for function, products in ((values, 2), (jax.grad(values), 2 + 4 + 3)):
        with compile_for(platform):
            jaxpr = str(jax.make_jaxpr(function)(jnp.zeros((2, 16, 3, 2, 16))))
        assert jaxpr.count("dot_general[") == jaxpr.count("precision=(Precision.HIGHEST") == products


@pytest.mark.parametrize("platform", ["gpu", "tpu"])
def test_products_of_bfloat16_have_no_precision_which_the_compiler_for_tpus_refuses(platform):
    with jax.default_matmul_precision("highest"), compile_for(platform):
        jaxpr = str(jax.make_jaxpr(lambda packed: flash_attention(packed))(jnp.zeros((2, 16, 3, 2, 16), jnp.bfloat16)))
    assert jaxpr.count("dot_general[") == 2
    assert "HIGHEST" not in jaxpr
