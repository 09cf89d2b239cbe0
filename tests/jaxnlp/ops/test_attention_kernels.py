"""Which implementation of attention is taken, and what cuDNN is given and refused."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnlp.ops.attention import dot_product_attention, packed_attention, unpacked
from jaxnlp.ops.devices import compile_for
from jaxnlp.ops.flash import flash_attention
from tests.jaxnlp.ops.attention_helpers import (
    BATCH,
    BY_AUTODIFF,
    BY_HAND,
    HEADS,
    KEYS,
    QUERIES,
    random_inputs,
    random_mask,
)


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

    def flash(*packed, **settings):
        calls.append("flash")
        return flash_attention(*packed, **settings, interpret=True)

    monkeypatch.setattr("jaxnlp.ops.attention_kernels.cuda_capability", lambda: (8, 0))
    monkeypatch.setattr(jax.nn, "dot_product_attention", recorded)
    monkeypatch.setattr("jaxnlp.ops.flash.flash_attention", flash)
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
    monkeypatch.setattr("jaxnlp.ops.attention_kernels.cuda_capability", lambda: (7, 5))
    inputs = [jnp.asarray(x, jnp.bfloat16) for x in random_inputs(width=8)]
    with pytest.raises(ValueError, match=re.escape("needs a GPU of compute capability 8.0, got 7.5")):
        dot_product_attention(*inputs, implementation="cudnn")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ["cudnn"]),
        ({"implementation": "cudnn"}, ["cudnn"]),
        ({"dropout_rate": 0.5}, ["cudnn"]),
        ({"dropout_rate": 0.5, "dropout_key": 0}, ["flash"]),
        ({"dropout_rate": 0.5, "dropout_key": 0, "width": 136}, []),
        ({"dropout_rate": 0.5, "dropout_key": 0, "dtype": "float64"}, []),
        ({"attention_mask": np.ones((BATCH, 1, 1, KEYS), bool)}, ["flash"]),
        ({"attention_mask": np.ones((1, 1, 1, 1), bool), "implementation": "flash"}, ["flash"]),
        ({"masked": True}, []),
        ({"masked": True, "implementation": "cudnn"}, ["cudnn"]),
        ({"first_query": 3}, ["flash"]),
        ({"first_query": np.arange(1)[0]}, ["cudnn"]),
        ({"first_query": jnp.zeros((), jnp.int32)}, []),
        ({"first_query": 3, "implementation": "cudnn"}, ["cudnn"]),
        ({"first_query": 3, "causal": False}, ["cudnn"]),
        ({"bias": np.ones((1, 1, 1, KEYS), np.float32)}, []),
        ({"dtype": "float32"}, ["flash"]),
        ({"implementation": "vjp"}, []),
        ({"implementation": "xla"}, []),
    ],
    ids=str,
)
def test_auto_takes_a_kernel_where_it_can_be_had(gpu, changes, expected):
    settings = {"causal": True} | {name: x for name, x in changes.items() if name not in ("masked", "dtype", "width")}
    if "dropout_key" in settings:
        settings["dropout_key"] = jax.random.key(settings["dropout_key"])
    if "masked" in changes:
        settings["attention_mask"] = random_mask()
    with jax.enable_x64(changes.get("dtype") == "float64"):
        inputs = [
            jnp.asarray(x, changes.get("dtype", "bfloat16")) for x in random_inputs(width=changes.get("width", 8))
        ]
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


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"bias": np.ones((1, 1, 1, KEYS), np.float32)}, "takes no bias"),
        ({"attention_mask": random_mask()}, "takes a mask of keys [B or 1, 1, 1, S], got"),
        ({"first_query": jnp.zeros((), jnp.int32)}, "needs a first_query that is a number"),
        ({"width": 136}, "takes head widths up to 128 here in bfloat16, got 136"),
        ({"width": 72, "dtype": "float32"}, "takes head widths up to 64 here in float32, got 72"),
        ({"width": 72, "capability": (8, 9)}, "takes head widths up to 64 here in bfloat16, got 72"),
        ({"keys": 0}, "needs at least one query and one key"),
    ],
    ids=str,
)
def test_flash_is_refused_what_it_cannot_do(changes, reason, monkeypatch):
    monkeypatch.setattr("jaxnlp.ops.attention_kernels.cuda_capability", lambda: changes.get("capability", (9, 0)))
    settings = {name: x for name, x in changes.items() if name in ("bias", "attention_mask", "first_query")}
    sizes = {name: x for name, x in changes.items() if name in ("width", "keys", "batch", "heads")}
    inputs = [jnp.asarray(x, changes.get("dtype", "bfloat16")) for x in random_inputs(**({"width": 8} | sizes))]
    with pytest.raises(ValueError, match=f"^implementation='flash' .*{re.escape(reason)}"):
        dot_product_attention(*inputs, **settings, causal=True, implementation="flash")


@pytest.mark.usefixtures("gpu")
def test_flash_is_refused_heads_that_devices_share_and_auto_takes_another(monkeypatch):
    monkeypatch.setattr("jaxnlp.ops.attention_kernels.cuda_capability", lambda: (9, 0))
    inputs = [jnp.asarray(x, "bfloat16") for x in random_inputs(width=8)]
    settings = {"dropout_rate": 0.5, "dropout_key": jax.random.key(0)}  # so that cuDNN cannot compute it
    mesh = jax.sharding.AbstractMesh((1, 2), ("data", "model"))
    with jax.sharding.use_abstract_mesh(mesh):
        with pytest.raises(ValueError, match="computes all heads, and the devices of the mesh's axis model share them"):
            dot_product_attention(*inputs, implementation="flash")
        program = jax.make_jaxpr(functools.partial(dot_product_attention, **settings))(*inputs)
    assert "pallas_call" not in str(program)


def test_flash_is_refused_on_a_cpu():
    with pytest.raises(ValueError, match=re.escape("implementation='flash' needs an Nvidia GPU or a TPU")):
        dot_product_attention(*random_inputs(), implementation="flash")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, None),
        ({"dtype": "float32", "width": 128, "dropout_rate": 0.5, "dropout_key": 0}, None),
        ({"attention_mask": np.ones((1, 1, 1, KEYS), bool), "first_query": 3}, None),
        ({"dtype": "float16"}, "computes in bfloat16, in float32"),
        ({"width": 136}, "takes head widths up to 128 here in bfloat16, got 136"),
        ({"bias": np.ones((1, 1, 1, KEYS), np.float32)}, "takes no bias"),
        ({"attention_mask": random_mask()}, "takes a mask of keys"),
        ({"first_query": jnp.zeros((), jnp.int32)}, "needs a first_query that is a number"),
    ],
    ids=str,
)
def test_on_tpus_auto_takes_the_kernels_where_they_can_compute_the_call(changes, reason):
    settings = {"causal": True} | {name: x for name, x in changes.items() if name not in ("dtype", "width")}
    if "dropout_key" in settings:
        settings["dropout_key"] = jax.random.key(settings["dropout_key"])
    inputs = [jnp.asarray(x, changes.get("dtype", "bfloat16")) for x in random_inputs(width=changes.get("width", 8))]

    def program(implementation):
        attend = functools.partial(dot_product_attention, implementation=implementation, **settings)
        return str(jax.make_jaxpr(attend)(*inputs))

    with compile_for("tpu"):
        assert ("pallas_call" in program("auto")) == (reason is None)
        if reason is not None:
            with pytest.raises(ValueError, match=f"^implementation='flash' .*{re.escape(reason)}"):
                program("flash")


@pytest.mark.sweep(1)
@pytest.mark.parametrize("packing", [1, 2])
def test_packed_arrays_give_what_separate_ones_do(gpu, packing):
    q, k, v = random_inputs(queries=KEYS, width=8)
    packed = [np.stack([q, k, v], axis=2)] if packing == 1 else [q, np.stack([k, v], axis=2)]
    for found, expected in zip(unpacked(*packed), (q, k, v), strict=True):
        np.testing.assert_array_equal(found, expected)
    attend = jax.jit(packed_attention, static_argnames=("causal", "implementation"))
    expected = dot_product_attention(q, k, v, causal=True, implementation=BY_HAND)
    np.testing.assert_allclose(attend(*packed, causal=True), expected, atol=1e-5)
    np.testing.assert_array_equal(
        attend(*packed, causal=True, implementation=BY_HAND),
        jax.jit(functools.partial(dot_product_attention, causal=True, implementation=BY_HAND))(q, k, v),
    )
    assert gpu == ["flash"]


def test_arrays_that_are_not_packed_are_named():
    q, k, _ = random_inputs()
    with pytest.raises(ValueError, match=r"expected qkv \[B, T, 3, H, K\], or q"):
        packed_attention(q, k)


def test_on_accelerators_no_array_of_all_queries_and_keys_waits_for_the_backward_pass():
    bias = np.random.default_rng(1).normal(size=(1, HEADS, KEYS, KEYS)).astype(np.float32)
    inputs = [*random_inputs(queries=KEYS), bias]
    settings = {"causal": True, "dropout_rate": 0.3, "dropout_key": jax.random.key(0)}

    def with_residuals(platform):
        def attend(q, k, v, bias):
            mask = np.arange(KEYS)[None, None, None] != 1
            return dot_product_attention(q, k, v, bias=bias, attention_mask=mask, **settings)

        with compile_for(platform):
            y, vjp = jax.jit(functools.partial(jax.vjp, attend))(*inputs)
            weights = [x for x in jax.tree.leaves(vjp) if x.shape == (BATCH, HEADS, KEYS, KEYS)]
            return (y, *jax.jit(lambda vjp, y: vjp(y))(vjp, y)), len(weights)

    (expected, kept), (found, on_gpu) = with_residuals("cpu"), with_residuals("gpu")
    assert (kept, on_gpu) == (1, 0)
    for ours, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, wanted, atol=1e-6)


@pytest.mark.parametrize("name", ["pallas", "", None])
def test_unknown_implementation_is_named(name):
    message = f"implementation must be auto, vjp, xla, cudnn or flash, got {name!r}"
    with pytest.raises(ValueError, match=re.escape(message)):
        dot_product_attention(*random_inputs(), implementation=name)
