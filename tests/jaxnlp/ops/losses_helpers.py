"""What tests of losses share."""

import jax
import numpy as np

from jaxnlp.ops.losses import linear_cross_entropy

GENERATOR = np.random.default_rng(0)
LOGITS = (3.0 * GENERATOR.normal(size=(4, 6, 11))).astype(np.float32)
TARGETS = GENERATOR.integers(0, 11, size=(4, 6)).astype(np.int32)
MASK = GENERATOR.random((4, 6)) < 0.6

# Tokens [N, D] with the matrix [D, V] and bias [V] that turn them into logits.
TOKENS = GENERATOR.normal(size=(12, 5))
MATRIX = GENERATOR.normal(size=(5, 11))
BIAS = GENERATOR.normal(size=11)
TOKEN_TARGETS = GENERATOR.integers(0, 11, size=12).astype(np.int32)
TOKEN_WEIGHTS = GENERATOR.random(12) * (GENERATOR.random(12) < 0.7)

STATIC = ("label_smoothing", "z_loss", "chunk", "matmul_dtype")
compiled_linear_loss = jax.jit(linear_cross_entropy, static_argnames=STATIC)


def narrow(*arrays):
    return [None if a is None else a.astype(np.float32) for a in arrays]
