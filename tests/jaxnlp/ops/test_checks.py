import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnlp.ops.checks import expect, expect_float, expect_tokens

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


@pytest.mark.parametrize("strange", [-1, 7])
def test_tokens_outside_the_vocabulary_are_named_with_their_place(strange):
    tokens = np.zeros((3, 4), np.int32)
    expect_tokens(tokens + 6, 7, "the text")
    expect_tokens(jnp.asarray(tokens[:0]), 7, "the text")
    tokens[2, 1] = strange
    with pytest.raises(ValueError, match=f"tokens are 0 to 6, but the text has {strange} in row 2, position 1"):
        expect_tokens(tokens, 7, "the text")
    jax.jit(lambda tokens: expect_tokens(tokens, 7, "the text"))(tokens)


@pytest.mark.parametrize(
    ("tokens", "got"),
    [
        (np.zeros(4, np.int32), "int32 [4]"),
        (np.zeros((2, 3, 4), np.int32), "int32 [2, 3, 4]"),
        (np.zeros((3, 4), np.float32), "float32 [3, 4]"),
    ],
)
def test_tokens_of_other_shapes_and_types_are_named_under_jit_too(tokens, got):
    message = f"expected the text as tokens [B, T] of int, got {got}"
    for check in (expect_tokens, jax.jit(expect_tokens, static_argnums=(1, 2))):
        with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
            check(tokens, 7, "the text")
