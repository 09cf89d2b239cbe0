"""The probability threshold in a run's folder."""

import sys
from typing import Any

from jaxnlp.input_files.json_objects import parse_json
from jaxnlp.tasks import Trained

THRESHOLD_FILE = "threshold.json"
NO_THRESHOLD = "threshold applies only to two classes, or to any number of classes per example; remove it"


def kept_threshold(trained: Trained) -> float | None:
    """The threshold in a run's folder; None without one, or, with a note, if it was chosen for another step.

    Raises: ValueError naming the file, when it is not a threshold.
    """
    if trained.folder is None or not (trained.folder / THRESHOLD_FILE).is_file():
        return None
    file = trained.folder / THRESHOLD_FILE
    try:
        held: Any = parse_json(file.read_text(encoding="utf-8"))
        threshold, step = float(held["threshold"]), held["step"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{file} is not a file of the evaluator threshold: {error!r}; remove it") from error
    if step != trained.step:
        print(
            f"note: {file} is not used: it was chosen for step {step}, but the checkpoint is of step {trained.step}",
            file=sys.stderr,
        )
        return None
    return threshold
