"""Labels from probabilities, and the threshold in a run's folder."""

import json
import sys
from typing import Any

import jax
import numpy as np

from jaxnlp.targets import Scale, Targets
from jaxnlp.tasks import Trained

THRESHOLD_FILE = "threshold.json"
NO_THRESHOLD = "--threshold applies only to two classes, or to any number of classes per example; remove it"


def on_host(targets: Targets, predicted: jax.Array | np.ndarray) -> np.ndarray:
    """Predictions in float64: probabilities [N, C], or numbers on the scale of the labels [N]."""
    found = np.asarray(predicted, np.float64)
    return targets.unscaled(found) if isinstance(targets, Scale) else found


def decided(targets: Targets, predicted: np.ndarray, threshold: float | None = None) -> list[Any]:
    """The predicted labels.

    Args:
      targets: classes or a scale.
      predicted: probabilities [N, C], or numbers [N].
      threshold: lowest probability of a predicted class, or of the second of two classes; None = 0.5 for any number of
        classes, and the most probable class for one class.
    """
    if isinstance(targets, Scale):
        return [float(value) for value in predicted]
    if targets.several:
        return [tuple(np.flatnonzero(row >= (threshold or 0.5)).tolist()) for row in predicted]
    if threshold is not None and targets.has_threshold:
        return [int(row[1] >= threshold) for row in predicted]
    return predicted.argmax(axis=1).tolist()


def kept_threshold(trained: Trained) -> float | None:
    """The threshold in a run's folder. None = none was chosen, or, with a note, it was chosen for another step.

    Raises: ValueError naming the file, when it is not a threshold.
    """
    if trained.folder is None or not (trained.folder / THRESHOLD_FILE).is_file():
        return None
    place = trained.folder / THRESHOLD_FILE
    try:
        held: Any = json.loads(place.read_text(encoding="utf-8"))
        threshold, step = float(held["threshold"]), held["step"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{place} is not a file of the evaluator threshold: {error!r}; remove it") from error
    if step != trained.step:
        print(
            f"note: {place} is not used: it was chosen for step {step}, but the checkpoint is of step {trained.step}",
            file=sys.stderr,
        )
        return None
    return threshold
