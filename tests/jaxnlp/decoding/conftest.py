"""A small recurrent language model, whose cache has no length and no end."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnlp.decoding.generation import Decoder
from jaxnlp.typing import Params


class Recurrent(NamedTuple):
    """h = tanh(E[token] + h W), logits = h O. Its cache: two states [B, K], the second a copy, and a scalar, 7."""

    size: int
    params: Params
    decoder: Decoder
    forward: Callable[[np.ndarray], np.ndarray]
    """tokens [B, T] -> logits [B, T, V], by a loop in NumPy."""


def _read(params, tokens, cache, count):
    def step(cache, number):
        h, copy, scalar = cache
        new = jnp.tanh(params["E"][tokens[:, number]] + copy @ params["W"])
        h, copy = (jnp.where(number < count, new, old) for old in (h, copy))
        return (h, copy, scalar), new @ params["O"]

    cache, logits = jax.lax.scan(step, cache, jnp.arange(tokens.shape[1]))
    return logits.swapaxes(0, 1), cache


@pytest.fixture(scope="session")
def recurrent() -> Recurrent:
    """Five tokens, of which it repeats none for long."""
    size, width = 5, 6
    generator = np.random.default_rng(2)
    shapes = {"E": (size, width), "W": (width, width), "O": (width, size)}
    params = {name: generator.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}

    def empty_cache(batch):
        return jnp.zeros((batch, width)), jnp.zeros((batch, width)), jnp.float32(7.0)

    def forward(tokens):
        h, logits = np.zeros((len(tokens), width)), []
        for column in tokens.T:
            h = np.tanh(params["E"][column] + h @ params["W"])
            logits.append(h @ params["O"])
        return np.stack(logits, axis=1)

    return Recurrent(size, params, Decoder(lambda params: params, _read, empty_cache, None), forward)
