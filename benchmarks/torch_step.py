"""A PyTorch training step, with the options of the benchmarks."""

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
      model: the model.
      loss_of: from the model, maybe compiled, to the loss of a batch.
      clip_norm: maximum norm of the gradient; None = no clipping.
      fused: whether AdamW is a single kernel, which course code does not use.
      bfloat16: whether the forward pass is under autocast.
      compiled: whether torch.compile compiles the model.
      optimizer: the optimizer; None = `torch_adamw`.
    """
    model.train()
    optimizer = optimizer or torch_adamw(model, learning_rate=1e-3, weight_decay=0.01, fused=fused)
    called: Any = torch.compile(model) if compiled else model

    def step() -> None:
        with torch.autocast(torch.get_default_device().type, dtype=torch.bfloat16, enabled=bfloat16):
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
    """AdamW with weight decay only of matrices, as in `train.optimizer`: not of biases, norms and embeddings."""
    embeddings = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    decayed = [p for p in model.parameters() if p.dim() >= 2 and id(p) not in embeddings]
    others = [p for p in model.parameters() if p.dim() < 2 or id(p) in embeddings]
    groups = [{"params": decayed, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=learning_rate, betas=betas, fused=fused)
