"""Benchmark cases: the same step in several implementations."""

import dataclasses
import os
from collections.abc import Callable, Mapping

import numpy as np

Step = Callable[[], object]
"""Computes one step. JAX computes asynchronously, so the result is returned, to wait for it."""


@dataclasses.dataclass(frozen=True)
class Case:
    """A case, with one row per opponent. All cases of a module have the same implementations.

    Attributes:
      name: of the module.
      variant: name of the case in its module; "" if there is only one.
      implementations: functions that prepare an implementation and return its step: "ours", and those of PyTorch. Each
        implementation runs in its own process.
      tokens: number of tokens in one step; None = not counted.
      flop: floating-point operations in the matrix products of one step; None = not counted.
      turns: number of turns of each implementation, or fewer if they take very long. Implementations alternate, so that
        noise affects all of them.
      turn_seconds: approximate time of a turn, which has at least one step.
      steps_a_turn: steps in a turn; None = as many as turn_seconds allows.
    """

    name: str
    implementations: Mapping[str, Callable[[], Step]]
    variant: str = ""
    tokens: int | None = None
    flop: float | None = None
    turns: int = 9
    turn_seconds: float = 1.0
    steps_a_turn: int | None = None


OURS = "ours"
DEVICE = "JAXNLP_BENCHMARK_DEVICE"
"""The environment variable with the device of all implementations: cpu or gpu."""


def on_gpu() -> bool:
    """Whether the implementations run on a GPU."""
    return os.environ.get(DEVICE) == "gpu"


def random_tokens(vocabulary_size: int, batch: int, positions: int) -> dict[str, np.ndarray]:
    """A batch [B, T] of a language model. Its tokens do not change the time of a step."""
    tokens = np.random.default_rng(0).integers(0, vocabulary_size, (batch, positions + 1)).astype(np.int32)
    return {"tokens": tokens[:, :-1], "targets": tokens[:, 1:], "loss_mask": np.ones((batch, positions), bool)}


def torch_implementations(prepare: Callable[..., Step]) -> Mapping[str, Callable[[], Step]]:
    """The opponents of a case, from a function with the keywords `fused`, `bfloat16` and `compiled`.

    `eager_f32` has the style of course assignments. `fused` means PyTorch's own modules, kernels and AdamW. With them
    `eager_bf16` is the fastest PyTorch without compiling, or `eager_fused` on a CPU without bfloat16 instructions. On a
    GPU there is one opponent, `compile_bf16`: all of this at once, as its best users have it.
    """
    if on_gpu():
        return {"compile_bf16": lambda: prepare(fused=True, bfloat16=True, compiled=True)}
    return {
        "eager_f32": lambda: prepare(fused=False, bfloat16=False, compiled=False),
        "eager_fused": lambda: prepare(fused=True, bfloat16=False, compiled=False),
        "eager_bf16": lambda: prepare(fused=True, bfloat16=True, compiled=False),
        "compile": lambda: prepare(fused=True, bfloat16=False, compiled=True),
    }
