"""JAX's compiler of kernels takes those for TPUs; their values are in test_flash.py."""

import jax
import jax.numpy as jnp
import pytest

from jaxnlp.ops.devices import compile_for
from jaxnlp.ops.flash import flash_attention
from tests.jaxnlp.ops.flash_helpers import kernel_names

CASES = {
    "packed, causal, several blocks": ([(2, 1300, 3, 2, 64)], jnp.bfloat16, False),
    "short, masked, groups": ([(2, 20, 4, 48), (2, 100, 2, 2, 48)], jnp.bfloat16, True),
    "float32, masked, several blocks": ([(2, 600, 3, 8, 16)], jnp.float32, True),
}


@pytest.mark.sweep(1)
@pytest.mark.parametrize("precision", [None, "highest"])
@pytest.mark.parametrize("case", CASES)
def test_kernels_are_lowered_for_a_tpu(case, precision):
    shapes, dtype, masked = CASES[case]

    def gradients(packed, key_mask, key):
        def attend(*packed):
            settings = {"key_mask": key_mask, "causal": not masked, "dropout_rate": 0.1, "dropout_key": key}
            return flash_attention(*packed, **settings).astype(jnp.float32).sum()

        return jax.grad(lambda packed: attend(*packed))(packed)

    arrays = [jax.ShapeDtypeStruct(shape, dtype) for shape in shapes]
    key_mask = jax.ShapeDtypeStruct(shapes[-1][:2], jnp.bool_) if masked else None
    with compile_for("tpu"), jax.default_matmul_precision(precision):
        traced = jax.jit(gradients).trace(arrays, key_mask, jax.random.key(0))
        text = traced.lower(lowering_platforms=("tpu",)).as_text()
    assert [text.count(f'kernel_name = "{name}"') for name in kernel_names(not masked)] == [1, 1, 1]
