"""Output layer and cross-entropy with all gradients: 320 tokens, width 128, vocabulary 33,280."""

import functools

import jax
import jax.numpy as jnp

from benchmarks.case import Case, Step, torch_implementations
from jaxnlp.ops.losses import linear_cross_entropy
from jaxnlp.ops.matrix_products import operand_dtype

TOKENS, WIDTH, VOCABULARY = 320, 128, 33_280


def ours() -> Step:
    x = jax.random.normal(jax.random.key(0), (TOKENS, WIDTH))
    w = 0.05 * jax.random.normal(jax.random.key(1), (WIDTH, VOCABULARY))
    b = jnp.zeros(VOCABULARY)
    targets = jax.random.randint(jax.random.key(2), (TOKENS,), 0, VOCABULARY)

    @functools.partial(jax.value_and_grad, argnums=(0, 1, 2))
    def loss(x, w, b):
        found = linear_cross_entropy(x, w, b, targets, matmul_dtype=operand_dtype("auto"))
        return found.objective / found.count

    run = jax.jit(loss)
    return lambda: jax.block_until_ready(run(x, w, b))


def theirs(*, fused: bool, bfloat16: bool, compiled: bool) -> Step:
    import torch
    import torch.nn.functional as F

    del fused  # PyTorch has one implementation
    x = torch.randn(TOKENS, WIDTH, requires_grad=True)
    dense = torch.nn.Linear(WIDTH, VOCABULARY)
    targets = torch.randint(0, VOCABULARY, (TOKENS,))

    def loss_of(x):
        return F.cross_entropy(dense(x), targets)

    called = torch.compile(loss_of) if compiled else loss_of

    def step() -> None:
        x.grad = dense.weight.grad = dense.bias.grad = None
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bfloat16):
            loss = called(x)
        loss.backward()

    return step


def cases() -> list[Case]:
    opponents = {side: prepare for side, prepare in torch_implementations(theirs).items() if side != "eager_fused"}
    return [Case("cross_entropy", {"ours": ours, **opponents}, flop=6.0 * TOKENS * WIDTH * VOCABULARY)]
