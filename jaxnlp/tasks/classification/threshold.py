"""The probability from which a class is predicted: chosen on validation data, and kept in the run's folder."""

import dataclasses
import json
import sys
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from sklearn.metrics import f1_score

from jaxnlp.blocks import Line, Lines
from jaxnlp.files import write_file
from jaxnlp.targets import Classes, Scale, Targets
from jaxnlp.tasks import Block, Evaluation, Evaluator, Metric, MetricKind, Scoring, Trained
from jaxnlp.tasks.classification.evaluators import decided, label_array, on_host, predictions_of

FILE = "threshold.json"
CANDIDATES = 99
"""Thresholds that are tried: hundredths."""


@dataclasses.dataclass(frozen=True)
class ChooseThreshold(Evaluator):
    """Chooses the probability from which a class is predicted, by the highest macro-F1; keeps it in the folder.

    Of two classes, it is the probability of the second one; of any number of classes, that of each. `jaxnlp predict`
    then uses it. The scores are a little better than on other data, since they are of the data it is chosen on.
    """

    default_split: ClassVar[str] = "validation"

    @property
    def metrics(self) -> Mapping[str, MetricKind]:
        return {
            "threshold": MetricKind("examples", "probability"),
            "threshold_macro_f1": MetricKind("examples"),
            "threshold_accuracy": MetricKind("examples"),
        }

    def __call__(self, scoring: Scoring) -> Evaluation:
        """Raises: ValueError for more than two classes of which an example has one, for numbers, and without labels."""
        trained, examples = scoring.trained, scoring.split.examples
        targets: Targets = trained.processor.targets
        if isinstance(targets, Scale) or not targets.has_threshold:
            raise ValueError("a threshold is for two classes, or for any number of classes an example")
        if not scoring.split.scored:
            raise ValueError("a threshold is chosen on examples with labels, and these have none")
        predict = scoring.once("predictions", lambda: predictions_of(trained.model, targets))
        found, labels = on_host(targets, scoring.outputs(predict)), label_array(targets, examples)
        tried = np.arange(1, CANDIDATES + 1) / (CANDIDATES + 1)
        f1 = [_macro_f1(targets, labels, found, threshold) for threshold in tried]
        best = float(tried[int(np.argmax(f1))])
        chosen = targets.array(decided(targets, found, best))
        right = (chosen == labels).reshape(len(labels), -1).all(axis=1).mean()
        if trained.folder is not None:
            kept = {"threshold": best, "step": trained.step, "split": scoring.split_name, "macro_f1": max(f1)}
            write_file(trained.folder / FILE, (json.dumps(kept, indent=2) + "\n").encode())
        count = len(labels)
        curve = Line("macro-F1", tuple(tried.tolist()), tuple(f1))
        return Evaluation(
            {
                "threshold": Metric(best, count),
                "threshold_macro_f1": Metric(max(f1), count),
                "threshold_accuracy": Metric(float(right), count),
            },
            blocks=[Block("Threshold", Lines((curve,), "threshold", "macro-F1"))],
        )


def _macro_f1(targets: Classes, labels: np.ndarray, found: np.ndarray, threshold: float) -> float:
    chosen = targets.array(decided(targets, found, threshold))
    ids = None if targets.several else np.arange(len(targets.names))
    return float(f1_score(labels, chosen, labels=ids, average="macro", zero_division=0.0))


def kept_threshold(trained: Trained) -> float | None:
    """The threshold in a run's folder; None = none was chosen, or for another step, which is said.

    Raises: ValueError naming the file, when it is something else.
    """
    if trained.folder is None or not (trained.folder / FILE).is_file():
        return None
    place = trained.folder / FILE
    try:
        held: Any = json.loads(place.read_text(encoding="utf-8"))
        threshold, step = float(held["threshold"]), held["step"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{place} is not what the evaluator threshold wrote: {error!r}; remove it") from error
    if step != trained.step:
        print(
            f"note: {place} was chosen for step {step}, and the checkpoint is of step {trained.step}; it is not used",
            file=sys.stderr,
        )
        return None
    return threshold
