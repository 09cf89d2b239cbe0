"""Dropout of [64, 8, 127, 127] attention weights, forward and backward."""

import jax

from benchmarks.case import Case, Step
from jaxnlp.ops.dropout_masks import dropout

SHAPE = (64, 8, 127, 127)
RATE = 0.1


def ours() -> Step:
    x, dy = (jax.random.normal(jax.random.key(i), SHAPE) for i in range(2))
    key = jax.random.key(2)

    @jax.jit
    def run(x, dy, key):
        y, pullback = jax.vjp(lambda x: dropout(x, RATE, key), x)
        return y, pullback(dy)

    return lambda: jax.block_until_ready(run(x, dy, key))


def theirs() -> Step:
    import torch
    import torch.nn.functional as F

    x = torch.randn(SHAPE, requires_grad=True)
    dy = torch.randn(SHAPE)

    def step() -> None:
        x.grad = None
        F.dropout(x, RATE).backward(dy)

    return step


def cases() -> list[Case]:
    return [Case("dropout", {"ours": ours, "eager_f32": theirs})]
