"""Which implementation of attention is taken, and what cuDNN is given and refused."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnlp.ops.attention import dot_product_attention
from tests.jaxnlp.ops.attention_helpers import BATCH, BY_AUTODIFF, BY_HAND, KEYS, QUERIES, random_inputs, random_mask


def test_without_a_gpu_auto_is_the_hand_derived_gradient():
    def program(implementation):
        inputs = random_inputs()
        return str(
            jax.make_jaxpr(functools.partial(dot_product_attention, causal=True, implementation=implementation))(
                *inputs
            )
        )

    assert program("auto") == program(BY_HAND) != program(BY_AUTODIFF)


def test_cudnn_is_refused_without_a_gpu():
    message = "implementation='cudnn' needs an Nvidia GPU, and the program is for the platform cpu; use 'auto' or 'vjp'"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        dot_product_attention(*random_inputs(), implementation="cudnn")


@pytest.fixture
def gpu(monkeypatch):
    """A machine that says it has a GPU, and whose fused attention writes down its calls and computes on the CPU."""
    calls, fused = [], jax.nn.dot_product_attention

    def recorded(*arguments, implementation, **keywords):
        calls.append(implementation)
        with jax.numpy_dtype_promotion("standard"):
            return fused(*arguments, **keywords, implementation="xla")

    monkeypatch.setattr("jaxnlp.ops.attention.cuda_capability", lambda: (8, 0))
    monkeypatch.setattr(jax.nn, "dot_product_attention", recorded)
    return calls


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize(
    ("dtype", "width", "dropout_rate", "reason"),
    [
        ("float32", 8, 0.0, "computes in bfloat16 or float16, got float32"),
        ("bfloat16", 12, 0.0, "takes head widths up to 128 that 8 divides, got 12"),
        ("bfloat16", 136, 0.0, "takes head widths up to 128 that 8 divides, got 136"),
        ("bfloat16", 8, 0.5, "has no dropout that a second run or a second device could repeat"),
    ],
)
def test_cudnn_is_refused_what_it_cannot_do(dtype, width, dropout_rate, reason):
    inputs = [jnp.asarray(x, dtype) for x in random_inputs(width=width)]
    message = f"implementation='cudnn' {reason}; use 'auto' or 'vjp'"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        dot_product_attention(*inputs, dropout_rate=dropout_rate, dropout_key=jax.random.key(0), implementation="cudnn")


@pytest.mark.usefixtures("gpu")
def test_cudnn_is_refused_a_bias():
    inputs = [jnp.asarray(x, jnp.bfloat16) for x in random_inputs(width=8)]
    with pytest.raises(ValueError, match=re.escape("implementation='cudnn' takes no bias here; use 'auto' or 'vjp'")):
        dot_product_attention(*inputs, bias=np.ones((1, 1, 1, KEYS), np.float32), implementation="cudnn")


@pytest.mark.usefixtures("gpu")
def test_cudnn_is_refused_on_a_gpu_that_is_too_old(monkeypatch):
    monkeypatch.setattr("jaxnlp.ops.attention.cuda_capability", lambda: (7, 5))
    inputs = [jnp.asarray(x, jnp.bfloat16) for x in random_inputs(width=8)]
    with pytest.raises(ValueError, match=re.escape("needs a GPU of compute capability 8.0, got 7.5")):
        dot_product_attention(*inputs, implementation="cudnn")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ["cudnn"]),
        ({"implementation": "cudnn"}, ["cudnn"]),
        ({"dropout_rate": 0.5}, ["cudnn"]),
        ({"dropout_rate": 0.5, "dropout_key": 0}, []),
        ({"masked": True}, []),
        ({"masked": True, "implementation": "cudnn"}, ["cudnn"]),
        ({"first_query": 3}, []),
        ({"first_query": 3, "implementation": "cudnn"}, ["cudnn"]),
        ({"first_query": 3, "causal": False}, ["cudnn"]),
        ({"bias": np.ones((1, 1, 1, KEYS), np.float32)}, []),
        ({"dtype": "float32"}, []),
        ({"implementation": "vjp"}, []),
        ({"implementation": "xla"}, []),
    ],
    ids=str,
)
def test_auto_takes_cudnn_where_it_can_be_had(gpu, changes, expected):
    settings = {"causal": True} | {name: x for name, x in changes.items() if name not in ("masked", "dtype")}
    if "dropout_key" in settings:
        settings["dropout_key"] = jax.random.key(settings["dropout_key"])
    if "masked" in changes:
        settings["attention_mask"] = random_mask()
    inputs = [jnp.asarray(x, changes.get("dtype", "bfloat16")) for x in random_inputs(width=8)]
    jax.eval_shape(functools.partial(dot_product_attention, **settings), *inputs)
    assert gpu == expected


@pytest.mark.sweep(1)
@pytest.mark.parametrize(
    ("mask_shape", "causal", "key_heads", "first_query"),
    [
        (None, True, 4, 0),
        (None, False, 2, 0),
        (None, True, 2, 2),
        ((BATCH, 4, QUERIES, KEYS), False, 2, 0),
        ((BATCH, 1, 1, KEYS), True, 2, 1),
        ((BATCH, 1, QUERIES, 1), True, 4, 0),
    ],
    ids=str,
)
def test_cudnn_gets_what_it_needs_to_give_the_same_values(gpu, mask_shape, causal, key_heads, first_query):
    inputs = [jnp.asarray(x, jnp.bfloat16) for x in random_inputs(width=8, heads=4, key_heads=key_heads)]
    mask = None if mask_shape is None else np.random.default_rng(1).random(mask_shape) < 0.5
    settings = {"attention_mask": mask, "causal": causal, "scale": 0.6, "first_query": first_query}
    found = jax.jit(functools.partial(dot_product_attention, **settings, implementation="cudnn"))(*inputs)
    exact = [x.astype(jnp.float32) for x in inputs]
    expected = jax.jit(functools.partial(dot_product_attention, **settings, implementation=BY_AUTODIFF))(*exact)
    assert gpu == ["cudnn"]
    assert found.dtype == jnp.bfloat16
    np.testing.assert_array_equal(np.any(expected == 0.0), mask is not None)
    np.testing.assert_array_equal(found == 0.0, expected == 0.0)
    np.testing.assert_allclose(np.float32(found), expected, atol=0.02)


@pytest.mark.parametrize("name", ["pallas", "", None])
def test_unknown_implementation_is_named(name):
    message = f"implementation must be auto, vjp, xla, cudnn or flash, got {name!r}"
    with pytest.raises(ValueError, match=re.escape(message)):
        dot_product_attention(*random_inputs(), implementation=name)
