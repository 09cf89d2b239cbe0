"""A PyTorch training step, in the three ways that the benchmarks time."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from benchmarks.case import Step


def torch_step(
    model: nn.Module,
    loss_of: Callable[[nn.Module], torch.Tensor],
    *,
    clip_norm: float | None = 1.0,
    fused: bool = False,
    bfloat16: bool = False,
    compiled: bool = False,
    optimizer: torch.optim.Optimizer | None = None,
) -> Step:
    """Forward, backward, clipping, AdamW.

    Args:
      model: called by `loss_of`.
      loss_of: a batch's loss under the model it is given.
      clip_norm: longest gradient; None = no clipping.
      fused: whether that AdamW is the one in a single kernel, which course code does not ask for.
      bfloat16: under autocast.
      compiled: with torch.compile.
      optimizer: None = `torch_adamw`.
    """
    model.train()
    optimizer = optimizer or torch_adamw(model, learning_rate=1e-3, weight_decay=0.01, fused=fused)
    called: Any = torch.compile(model) if compiled else model

    def step() -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bfloat16):
            loss = loss_of(called)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        if clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
        optimizer.step()

    return step


def torch_adamw(
    model: nn.Module,
    *,
    learning_rate: float,
    weight_decay: float,
    betas: tuple[float, float] = (0.9, 0.999),
    fused: bool = False,
) -> torch.optim.AdamW:
    """AdamW that decays the matrices of layers alone, as `train.optimizer` does: no biases, norms or embeddings."""
    embeddings = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    decayed = [p for p in model.parameters() if p.dim() >= 2 and id(p) not in embeddings]
    others = [p for p in model.parameters() if p.dim() < 2 or id(p) in embeddings]
    groups = [{"params": decayed, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=learning_rate, betas=betas, fused=fused)
