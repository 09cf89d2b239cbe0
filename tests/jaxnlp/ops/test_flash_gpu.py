"""The calls of the kernels for GPUs; their values are in test_flash.py."""

import re

import jax
import jax.numpy as jnp
import pytest

from jaxnlp.ops.flash import flash_attention
from tests.jaxnlp.ops.flash_helpers import lowered


@pytest.mark.filterwarnings("ignore:The Pallas Triton backend is deprecated")
def test_mapped_calls_may_have_more_rows_than_a_grid_of_a_gpu():
    def gradients(packed):
        return jax.grad(lambda packed: flash_attention(packed, causal=True).astype(jnp.float32).sum())(packed)

    text = lowered(jax.vmap(gradients), jax.ShapeDtypeStruct((700, 100, 16, 3, 2, 16), jnp.bfloat16))
    # A GPU's second and third index end at 65,535: JAX makes one index of all.
    assert re.findall(r"grid_([xyz]) = (\d+)", text) == [("x", "140000"), ("y", "1"), ("z", "1")] * 3
