"""Divergences of distributions."""

import chex
import jax

from jaxnlp.ops.checks import expect_float
from jaxnlp.ops.matrix_products import accumulator


def symmetric_kl(p_logits: jax.Array, q_logits: jax.Array) -> jax.Array:
    """KL(p || q) + KL(q || p) in nats, of p = softmax(p_logits) and q = softmax(q_logits).

    The normalisers cancel: sum_v (p_v - q_v) (log p_v - log q_v) = sum_v (p_v - q_v) (z_v - y_v), with the logits z
    and y.

    Args: p_logits, q_logits: [..., V] float.

    Returns: [...], in float32 at least.
    """
    expect_float(p_logits=p_logits, q_logits=q_logits)
    chex.assert_equal_shape([p_logits, q_logits])
    p, q = (x.astype(accumulator(x.dtype)) for x in (p_logits, q_logits))
    return ((jax.nn.softmax(p, axis=-1) - jax.nn.softmax(q, axis=-1)) * (p - q)).sum(axis=-1)
