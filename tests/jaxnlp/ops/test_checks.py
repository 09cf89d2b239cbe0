import re

import jax.numpy as jnp
import numpy as np
import pytest

from jaxnlp.ops.checks import expect, expect_float

X = np.zeros((2, 3), np.float32)


def test_what_fits_passes():
    expect(True, "x [N, D]", x=X)
    expect_float(x=X, half=X.astype(jnp.bfloat16), wide=X.astype(np.float64), none=None)


def test_what_does_not_fit_is_named_with_its_shapes():
    message = "expected x [N, D] and w [D, F], got x (2, 3), w (2,)"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        expect(False, "x [N, D] and w [D, F]", x=X, w=np.zeros(2), b=None)


@pytest.mark.parametrize("dtype", ["int32", "bool", "uint8", "complex64"])
def test_numbers_that_are_not_floating_are_named(dtype):
    message = f"expected float arrays, got x float32, w {dtype}"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        expect_float(x=X, w=X.astype(dtype), b=None)
