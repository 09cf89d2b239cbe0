"""The log-likelihood of a linear-chain CRF with all gradients: 32 sentences of 128 words, 20 labels; pytorch-crf."""

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.case import Case, Step, torch_implementations
from jaxnlp.ops.crf import Chain, crf_log_likelihood

BATCH, LENGTH, LABELS = 32, 128, 20


def batch() -> tuple[np.ndarray, np.ndarray]:
    """Scores [B, T, C] and labels [B, T]."""
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(BATCH, LENGTH, LABELS)).astype(np.float32)
    return scores, rng.integers(0, LABELS, (BATCH, LENGTH))


def ours() -> Step:
    scores, labels = map(jnp.asarray, batch())
    lengths = jnp.full(BATCH, LENGTH)
    chain = Chain(jnp.zeros((LABELS, LABELS)), jnp.zeros(LABELS), jnp.zeros(LABELS))

    def loss(scores: jax.Array, chain: Chain) -> jax.Array:
        return -crf_log_likelihood(scores, labels, lengths, chain).mean()

    run = jax.jit(jax.value_and_grad(loss, argnums=(0, 1)))
    return lambda: jax.block_until_ready(run(scores, chain))


def theirs(*, fused: bool, bfloat16: bool, compiled: bool) -> Step:
    import torch
    from torchcrf import CRF

    del fused, bfloat16  # the package has one implementation, in float32
    scores, labels = map(torch.from_numpy, batch())
    scores.requires_grad_(True)
    mask = torch.ones(BATCH, LENGTH, dtype=torch.bool)
    crf = CRF(LABELS, batch_first=True)

    def loss_of(scores: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = -crf(scores, labels, mask=mask, reduction="mean")
        return found

    called = torch.compile(loss_of) if compiled else loss_of

    def step() -> None:
        scores.grad = None
        crf.zero_grad()
        called(scores).backward()

    return step


def cases() -> list[Case]:
    opponent = torch_implementations(theirs)["eager_f32"]  # torch.compile would unroll 128 positions
    return [Case("crf", {"ours": ours, "eager_f32": opponent}, tokens=BATCH * LENGTH)]
