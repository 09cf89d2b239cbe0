"""JAX's compiler of kernels takes those for GPUs; their values are in test_flash.py."""

import jax
import jax.numpy as jnp
import pytest

from jaxnlp.ops.flash import flash_attention
from tests.jaxnlp.ops.flash_helpers import kernel_names, lowered


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
    assert [text.count(f'name = "{name}"') for name in kernel_names(packing != "masked")] == [1, 1, 1]
    # The queries' gradient is written into the array that has the others': without this, those would be lost.
    assert text.count("output_operand_aliases = [#stablehlo") == (packing != "masked")
