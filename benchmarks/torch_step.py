"""A PyTorch training step, in the three ways that the benchmarks time."""

from collections.abc import Callable, Mapping
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
      optimizer: None = AdamW.
    """
    model.train()
    optimizer = optimizer or torch.optim.AdamW(model.parameters(), lr=1e-3, fused=fused)
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


def torch_sides(prepare: Callable[..., Step]) -> Mapping[str, Callable[[], Step]]:
    """The rivals of a case, from a function with the keywords `fused`, `bfloat16` and `compiled`.

    `eager_f32` is the course assignments' own style of code; `fused` stands for PyTorch's own modules, kernels and
    AdamW, and `eager_bf16` is with them the best that PyTorch can do without compiling.
    """
    return {
        "eager_f32": lambda: prepare(fused=False, bfloat16=False, compiled=False),
        "eager_bf16": lambda: prepare(fused=True, bfloat16=True, compiled=False),
        "compile": lambda: prepare(fused=True, bfloat16=False, compiled=True),
    }
