"""What tests of attention and its positions share."""

import functools

import jax
import numpy as np

BATCH, POSITIONS, WIDTH, HEADS = 2, 6, 8, 2
X = np.random.default_rng(0).normal(size=(BATCH, POSITIONS, WIDTH)).astype(np.float32)


def random_params(*, use_bias=True):
    """Weights and biases of ordinary size, none of them zero."""
    generator = np.random.default_rng(1)
    params = {}
    for name, columns in (("qkv", (3, HEADS, WIDTH // HEADS)), ("out", (WIDTH,))):
        params[name] = {"kernel": 0.5 * generator.normal(size=(WIDTH, *columns))}
        if use_bias:
            params[name]["bias"] = generator.normal(size=columns)
    return jax.tree.map(np.float32, params)


@functools.partial(jax.jit, static_argnums=0, static_argnames="deterministic")
def apply(module, params, x, *, deterministic=True, dropout_key=None, **cache):
    rngs = None if dropout_key is None else {"dropout": dropout_key}
    return module.apply({"params": params}, x, deterministic=deterministic, rngs=rngs, **cache)


@functools.partial(jax.jit, static_argnums=0)
def apply_with_weights(module, params, *arrays):
    """The output, and the weights that the module shows."""
    (y, _), found = module.apply({"params": params}, *arrays, deterministic=True, mutable=["intermediates"])
    return y, *found["intermediates"]["weights"]


def grouped_params():
    """Of 2 query heads that share one key head; and the same function with the key head repeated."""
    qkv = random_params()["qkv"]
    q = {name: value[..., 0, :, :] for name, value in qkv.items()}
    kv = {name: value[..., 1:, :1, :] for name, value in qkv.items()}
    repeated = {
        name: np.concatenate([q[name][..., None, :, :], np.repeat(kv[name], HEADS, axis=-2)], axis=-3) for name in qkv
    }
    out = random_params()["out"]
    return {"q": q, "kv": kv, "out": out}, {"qkv": repeated, "out": out}
