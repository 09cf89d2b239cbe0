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
      turns: of each side; a disturbance of the machine meets all sides of one round alike.
      turn_seconds: about how long a turn takes; at least one step.
      steps_a_turn: steps in a turn; None = as many as turn_seconds allows.
    """

    name: str
    sides: Mapping[str, Callable[[], Step]]
    variant: str = ""
    tokens: int | None = None
    flop: float | None = None
    turns: int = 5
    turn_seconds: float = 1.0
    steps_a_turn: int | None = None


OURS = "ours"
