"""Causal attention, 8 heads of width 32: forward, and forward with backward, at 128, 512 and 2,048 positions."""

import functools

import jax

from benchmarks.case import Case, Step
from jaxnlp.ops.attention import dot_product_attention
from jaxnlp.ops.matrix_products import operand_dtype

HEADS, HEAD_WIDTH, TOKENS = 8, 32, 8192
"""Number of tokens in every case, in shorter or longer sequences."""


def flop(positions: int, *, backward: bool) -> float:
    """Operations of the matrix products, counting all [T, T] scores."""
    return (6.0 if backward else 2.0) * 2 * TOKENS * positions * HEADS * HEAD_WIDTH


def ours(positions: int, *, backward: bool) -> Step:
    shape = (TOKENS // positions, positions, HEADS, HEAD_WIDTH)
    dtype = operand_dtype("auto") or "float32"
    q, k, v, dy = (jax.random.normal(jax.random.key(i), shape, dtype) for i in range(4))

    @jax.jit
    def run(q, k, v, dy):
        if not backward:
            return dot_product_attention(q, k, v, causal=True)
        y, pullback = jax.vjp(functools.partial(dot_product_attention, causal=True), q, k, v)
        return y, pullback(dy)

    return lambda: jax.block_until_ready(run(q, k, v, dy))


def theirs(positions: int, *, backward: bool, fused: bool, bfloat16: bool) -> Step:
    import torch
    import torch.nn.functional as F

    shape = (TOKENS // positions, HEADS, positions, HEAD_WIDTH)
    dtype = torch.bfloat16 if bfloat16 else torch.float32
    q, k, v = (torch.randn(shape, dtype=dtype, requires_grad=backward) for _ in range(3))
    dy = torch.randn(shape, dtype=dtype)
    past = torch.tril(torch.ones(positions, positions))

    def step() -> None:
        if fused:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = (q @ k.transpose(-2, -1)) / HEAD_WIDTH**0.5
            y = F.softmax(scores.masked_fill(past == 0, -1e10), dim=-1) @ v
        if backward:
            q.grad = k.grad = v.grad = None
            y.backward(dy)

    return step


def cases() -> list[Case]:
    return [
        Case(
            "attention",
            {
                "ours": functools.partial(ours, positions, backward=backward),
                "eager_f32": functools.partial(theirs, positions, backward=backward, fused=False, bfloat16=False),
                "eager_fused": functools.partial(theirs, positions, backward=backward, fused=True, bfloat16=False),
                "eager_bf16": functools.partial(theirs, positions, backward=backward, fused=True, bfloat16=True),
            },
            f"{'forward and backward' if backward else 'forward'}, {positions} positions",
            flop=flop(positions, backward=backward),
            turn_seconds=0.3,
        )
        for positions in (128, 512, 2048)
        for backward in (False, True)
    ]
