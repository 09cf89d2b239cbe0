"""Early stopping, without JAX for the report."""

from collections.abc import Sequence


def stops_early(scores: Sequence[float], stop_after: int | None) -> bool:
    """Whether a run ends before its last step.

    Args:
      scores: the score of each evaluation so far, higher is better; NaN is no improvement.
      stop_after: number of evaluations without a better score that ends it; None = no early stop.
    """
    return stop_after is not None and evaluations_since_best(scores) >= stop_after


def evaluations_since_best(scores: Sequence[float]) -> int:
    """Number of evaluations after the first one with the highest score; all if every score is NaN."""
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
