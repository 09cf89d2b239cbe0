"""What a benchmark case is: the same work, done by several sides."""

import dataclasses
from collections.abc import Callable, Mapping

Step = Callable[[], object]
"""Does the work once. What JAX has only begun, as a training loop leaves it, is returned, to be waited for."""


@dataclasses.dataclass(frozen=True)
class Case:
    """One row a rival. All cases of a module have the same sides.

    Attributes:
      name: of the module that holds it.
      variant: which of the module's cases it is; "" where there is one.
      sides: functions that prepare a side and return its step; "ours" is one of them, the others are PyTorch's. Each
        side runs in a process of its own.
      tokens: that one step trains on or generates; None where there are none.
      flop: floating-point operations in the matrix products of one step; None where they are not what counts.
      turns: of each side, or fewer where they take very long; a disturbance of the machine meets all sides of one round
        alike.
      turn_seconds: about how long a turn takes; at least one step.
      steps_a_turn: steps in a turn; None = as many as turn_seconds allows.
    """

    name: str
    sides: Mapping[str, Callable[[], Step]]
    variant: str = ""
    tokens: int | None = None
    flop: float | None = None
    turns: int = 9
    turn_seconds: float = 1.0
    steps_a_turn: int | None = None


OURS = "ours"


def torch_sides(prepare: Callable[..., Step]) -> Mapping[str, Callable[[], Step]]:
    """The rivals of a case, from a function with the keywords `fused`, `bfloat16` and `compiled`.

    `eager_f32` is the course assignments' own style of code; `fused` stands for PyTorch's own modules, kernels and
    AdamW. `eager_bf16` is with them the best that PyTorch can do without compiling, and `eager_fused` the best on a CPU
    without bfloat16 instructions.
    """
    return {
        "eager_f32": lambda: prepare(fused=False, bfloat16=False, compiled=False),
        "eager_fused": lambda: prepare(fused=True, bfloat16=False, compiled=False),
        "eager_bf16": lambda: prepare(fused=True, bfloat16=True, compiled=False),
        "compile": lambda: prepare(fused=True, bfloat16=False, compiled=True),
    }
