"""The kernels in Pallas's interpreter, against attention by autodiff on the same arrays."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnlp.ops.attention import dot_product_attention, unpacked
from jaxnlp.ops.devices import compile_for
from jaxnlp.ops.flash import flash_attention

FIRST_ROW = 4


@functools.partial(jax.jit, static_argnames=("causal", "first_query", "scale", "dropout_rate"))
def with_gradients(packed, upstream, **settings):
    """The values, and the gradients of the packed arrays."""
    y, vjp = jax.vjp(lambda *packed: flash_attention(*packed, interpret=True, **settings), *packed)
    return y, vjp(upstream)


@functools.partial(jax.jit, static_argnames=("causal", "first_query", "scale", "dropout_rate"))
def by_autodiff(packed, upstream, *, key_mask=None, **settings):
    mask = None if key_mask is None else key_mask[:, None, None]

    def attend(*packed):
        return dot_product_attention(*unpacked(*packed), attention_mask=mask, implementation="xla", **settings)

    y, vjp = jax.vjp(attend, *packed)
    return y, vjp(upstream)


def random_arrays(*shapes, dtype=np.float32):
    generator = np.random.default_rng(0)
    return [generator.normal(size=shape).astype(dtype) for shape in shapes]


def random_key_mask(rows, keys):
    """The first example sees nothing, and the last keys of the others are padding."""
    mask = np.random.default_rng(1).random((rows, keys)) < 0.7
    mask[0], mask[1, keys // 2 :] = False, False
    return mask


CASES = {
    "packed, causal, several blocks": (((2, 150, 3, 1, 16),), {"causal": True, "dropout_rate": 0.3}),
    "packed, all seen, padded by a whole block of keys": (((2, 96, 3, 1, 16),), {"dropout_rate": 0.3}),
    "packed, masked, narrow": (((3, 40, 3, 2, 4),), {"masked": True, "dropout_rate": 0.3}),
    "groups, causal from a later query": (
        ((2, 9, 4, 20), (2, 41, 2, 2, 20)),
        {"causal": True, "first_query": 30, "dropout_rate": 0.1},
    ),
    "groups, masked and causal": (((2, 70, 4, 16), (2, 70, 2, 2, 16)), {"causal": True, "masked": True}),
    "three arrays, masked, several blocks": (
        ((2, 24, 2, 16), (2, 100, 2, 16), (2, 100, 2, 16)),
        {"masked": True, "dropout_rate": 0.3, "scale": 0.3},
    ),
    "more queries than keys, causal": (((1, 70, 1, 16), (1, 40, 1, 16), (1, 40, 1, 16)), {"causal": True}),
    "packed, several heads in a block, longer than a block": (
        ((2, 530, 3, 2, 64),),
        {"causal": True, "masked": True, "dropout_rate": 0.1},
    ),
    "groups, longer than a block": (
        ((1, 600, 4, 16), (1, 700, 2, 2, 16)),
        {"causal": True, "first_query": 100, "dropout_rate": 0.1},
    ),
}


QUICK = "packed, masked, narrow"
"""The case of `make test`."""


@pytest.mark.parametrize("platform", ["gpu", "tpu"])
@pytest.mark.parametrize("case", [x if x == QUICK else pytest.param(x, marks=pytest.mark.thorough) for x in CASES])
def test_values_and_gradients_equal_those_of_autodiff(case, platform):
    shapes, settings = CASES[case]
    settings = dict(settings)
    packed = random_arrays(*shapes)
    rows, keys = packed[-1].shape[:2]
    settings["key_mask"] = random_key_mask(rows, keys) if settings.pop("masked", False) else None
    if "dropout_rate" in settings:
        settings |= {"dropout_key": jax.random.key(3), "first_row": FIRST_ROW}
    upstream = random_arrays(unpacked(*packed)[0].shape)[0]
    with compile_for(platform):
        found = with_gradients(packed, upstream, **settings)
    expected = by_autodiff(packed, upstream, **settings)
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
    if settings["key_mask"] is not None:  # a row that sees nothing: zero, and no gradient
        for x in jax.tree.leaves(found):
            np.testing.assert_array_equal(x[0], 0.0)
            assert np.abs(x[1]).max() > 0.0


@pytest.mark.sweep(1)
@pytest.mark.parametrize(("platform", "dtype"), [("gpu", "bfloat16"), ("gpu", "float16"), ("tpu", "bfloat16")])
def test_short_types_stay_near_float32(platform, dtype):
    packed, upstream = random_arrays((2, 40, 3, 2, 16), (2, 40, 2, 16), dtype=jnp.dtype(dtype))
    settings = {"causal": True, "dropout_rate": 0.1, "dropout_key": jax.random.key(0)}
    with compile_for(platform):
        found = with_gradients([packed], upstream, **settings)
    exact = by_autodiff([packed.astype(np.float32)], upstream.astype(np.float32), **settings)
    for ours, expected in zip(jax.tree.leaves(found), jax.tree.leaves(exact), strict=True):
        assert ours.dtype == dtype
        difference = np.asarray(ours, np.float32) - np.asarray(expected)
        assert 0.0 < np.linalg.norm(difference) < 6e-3 * np.linalg.norm(expected)


def test_a_dropout_mask_whose_indices_would_repeat_is_refused():
    x = jax.ShapeDtypeStruct((1, 2**15, 3, 4, 16), jnp.bfloat16)
    call = functools.partial(flash_attention, dropout_rate=0.1, dropout_key=jax.random.key(0))
    with pytest.raises(ValueError, match=r"fewer than 2\^32 elements"):
        jax.eval_shape(call, x)
