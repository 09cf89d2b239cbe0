"""The progress of a run, and what its evaluations so far decide: early stopping, and when averaging starts."""

import dataclasses
import math
from collections.abc import Sequence

from train.config import TrainConfig
from train.step import TrainState


@dataclasses.dataclass
class Progress:
    """The progress of a run.

    Attributes:
      state: of the last step.
      step: number of steps done.
      train_seconds: before this start.
      losses: the validation loss of each evaluation so far.
      scores: the score of the same evaluations, higher is better.
    """

    state: TrainState
    step: int = 0
    train_seconds: float = 0.0
    losses: Sequence[float] = ()
    scores: Sequence[float] = ()

    def ended(self, config: TrainConfig) -> bool:
        """Whether the run has done its last step, or stops early."""
        return self.step >= config.total_steps or stops_early(self.scores, config.stop_after)


def stops_early(scores: Sequence[float], stop_after: int | None) -> bool:
    """Whether a run ends before its last step.

    Args:
      scores: the score of each evaluation so far, higher is better; NaN is no improvement.
      stop_after: number of evaluations without a better score after which it ends; None = it does not.
    """
    return stop_after is not None and evaluations_since_best(scores) >= stop_after


def evaluations_since_best(scores: Sequence[float]) -> int:
    """Number of evaluations after the first one with the highest score; all of them if every score is NaN."""
    best, since = float("-inf"), 0
    for score in scores:
        if score > best:
            best, since = score, 0
        else:
            since += 1
    return since


def reason_to_stop(metric: str, scores: Sequence[float]) -> str:
    """Why a run has stopped early, such as `the validation loss has not improved in 3 evaluations`."""
    since = evaluations_since_best(scores)
    return f"the validation {metric} has not improved in {since} evaluation{'' if since == 1 else 's'}"


def has_stalled(losses: Sequence[float], patience: int) -> bool:
    """Whether the latest validation loss exceeds the lowest one of more than `patience` evaluations before it.

    Losses that are not finite are ignored.

    Source: Merity et al. 2018, algorithm 1.
    """
    finite = [loss for loss in losses if math.isfinite(loss)]
    if not losses or not math.isfinite(losses[-1]):
        return False
    older = finite[: max(0, len(finite) - 1 - patience)]
    return len(older) > 0 and finite[-1] > min(older)
