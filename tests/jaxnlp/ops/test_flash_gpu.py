"""JAX's compiler of kernels takes those for GPUs; their values are in test_flash.py."""

import contextlib
import re

import jax
import jax.numpy as jnp
import pytest

from jaxnlp.ops.flash import flash_attention

KERNELS = ("flash_forward", "flash_backward_keys", "flash_backward_queries")


def an_h100():
    """A context in which JAX lowers kernels for a GPU that is not there; versions before 0.11 need none."""
    try:
        device = jax.sharding.AbstractDevice(device_kind="NVIDIA H100 80GB HBM3", num_cores=132, platform="gpu")
        return jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), (), abstract_device=device))
    except TypeError:
        return contextlib.nullcontext()


def lowered(gradients, *arguments):
    """The program for a GPU."""
    with an_h100():
        return jax.jit(gradients).trace(*arguments).lower(lowering_platforms=("cuda",)).as_text()


@pytest.mark.filterwarnings("ignore:The Pallas Triton backend is deprecated")
@pytest.mark.parametrize("packing", ["causal", "masked", "wide"])
def test_kernels_are_lowered_for_a_gpu(packing):
    def gradients(packed, key_mask, key):
        def attend(*packed):
            settings = {"key_mask": key_mask, "causal": packing != "masked", "dropout_rate": 0.1, "dropout_key": key}
            return flash_attention(*packed, **settings).astype(jnp.float32).sum()

        return jax.grad(lambda packed: attend(*packed))(packed)

    packed = {
        "causal": [(2, 70, 3, 2, 16)],
        "masked": [(2, 20, 4, 48), (2, 100, 2, 2, 48)],
        "wide": [(1, 300, 3, 2, 128)],
    }[packing]
    arrays = [jax.ShapeDtypeStruct(shape, jnp.bfloat16) for shape in packed]
    key_mask = None if packing != "masked" else jax.ShapeDtypeStruct((2, 100), jnp.bool_)
    text = lowered(gradients, arrays, key_mask, jax.random.key(0))
    assert [text.count(f'name = "{name}"') for name in KERNELS] == [1, 1, 1]
    # The queries' gradient is written into the array that has the others': without this, those would be lost.
    assert text.count("output_operand_aliases = [#stablehlo") == (packing != "masked")


@pytest.mark.filterwarnings("ignore:The Pallas Triton backend is deprecated")
def test_mapped_calls_may_have_more_rows_than_a_grid_of_a_gpu():
    def gradients(packed):
        return jax.grad(lambda packed: flash_attention(packed, causal=True).astype(jnp.float32).sum())(packed)

    text = lowered(jax.vmap(gradients), jax.ShapeDtypeStruct((700, 100, 16, 3, 2, 16), jnp.bfloat16))
    # A GPU's second and third index end at 65,535: JAX makes one index of all.
    assert re.findall(r"grid_([xyz]) = (\d+)", text) == [("x", "140000"), ("y", "1"), ("z", "1")] * 3
