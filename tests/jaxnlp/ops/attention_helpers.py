"""What tests of `dot_product_attention` share."""

import functools

import jax
import numpy as np

from jaxnlp.ops.attention import QUERY_BLOCK, attention_weights, dot_product_attention

BATCH, QUERIES, KEYS, HEADS, WIDTH = 3, 5, 7, 2, 4
BY_HAND, BY_AUTODIFF = IMPLEMENTATIONS = ("vjp", "xla")
SEVERAL_BLOCKS = 2 * QUERY_BLOCK + 5

STATIC = ("causal", "scale", "dropout_rate", "implementation")
compiled_attend = jax.jit(dot_product_attention, static_argnames=STATIC)
compiled_weights = jax.jit(attention_weights, static_argnames=("causal", "scale"))


@functools.partial(jax.jit, static_argnames=STATIC)
def values_and_gradients(q, k, v, upstream, **settings):
    y, vjp = jax.vjp(lambda q, k, v: dot_product_attention(q, k, v, **settings), q, k, v)
    return y, vjp(upstream)


def random_inputs(
    *, queries=QUERIES, keys=KEYS, batch=BATCH, heads=HEADS, key_heads=None, width=WIDTH, dtype=np.float32
):
    generator = np.random.default_rng(0)
    key_shape = (batch, keys, key_heads or heads, width)
    return [generator.normal(size=shape).astype(dtype) for shape in ((batch, queries, heads, width), *2 * [key_shape])]


def random_upstream(like):
    return np.random.default_rng(2).normal(size=like.shape).astype(like.dtype)


def random_mask(shape=(BATCH, HEADS, QUERIES, KEYS)):
    mask = np.random.default_rng(1).random(shape) < 0.6
    mask[..., 0] = True  # every query sees something
    return mask
