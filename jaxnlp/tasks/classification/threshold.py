"""Choosing the probability threshold of a class on validation data."""

import dataclasses
import json
from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from jaxnlp.pages.content import Line, Lines
from jaxnlp.targets import Targets
from jaxnlp.tasks import Evaluation, Evaluator, Metric, MetricKind, Scoring, Section
from jaxnlp.tasks.classification.evaluators import outputs_of
from jaxnlp.tasks.classification.kept_threshold import THRESHOLD_FILE
from jaxnlp.tasks.classification.measures import share_right
from jaxnlp.tasks.classification.several_classes import macro_f1

CANDIDATES = 200
"""Maximum number of thresholds to try."""


@dataclasses.dataclass(frozen=True)
class ChooseThreshold(Evaluator):
    """Chooses the lowest probability of a predicted class by the highest macro-F1, and saves it in the run's folder.

    With two classes, it is the probability of the second one; several classes share it. `jaxnlp predict` and `jaxnlp
    attention` then use it. Scores on the same data are a little too high.
    """

    default_split: ClassVar[str] = "validation"

    @property
    def metrics(self) -> Mapping[str, MetricKind]:
        return {
            "threshold": MetricKind("examples", "probability"),
            "threshold_macro_f1": MetricKind("examples", title="threshold macro F1"),
            "threshold_accuracy": MetricKind("examples"),
        }

    def __call__(self, scoring: Scoring) -> Evaluation:
        """Raises: ValueError for one class of more than two, for numbers, and for examples without labels."""
        trained, examples = scoring.trained, scoring.split.examples
        if "" not in trained.processor.by_part:
            raise ValueError("a threshold is chosen for data without parts, but this run has parts")
        targets: Targets = trained.processor.targets
        if not targets.has_threshold:
            raise ValueError("a threshold applies only to two classes, or to any number of classes per example")
        if not scoring.split.scored:
            raise ValueError("choosing a threshold needs examples with labels, but these do not have labels")
        outputs = scoring.once(outputs_of, trained.model, "")
        predictions = targets.predicted(scoring.outputs(outputs))
        labels = targets.values([example.label for example in examples])
        tried = candidate_thresholds(predictions if labels.ndim == 2 else predictions[:, 1])
        f1 = [_macro_f1(targets, labels, predictions, threshold) for threshold in tried]
        best = min((threshold for threshold, score in zip(tried, f1, strict=True) if score == max(f1)), key=_from_half)
        kept = {"threshold": best, "step": trained.step, "split": scoring.split_name, "macro_f1": max(f1)}
        count = len(labels)
        curve = Line("macro-F1", tuple(tried), tuple(f1))
        return Evaluation(
            {
                "threshold": Metric(best, count),
                "threshold_macro_f1": Metric(max(f1), count),
                "threshold_accuracy": Metric(share_right(targets, labels, predictions, best), count),
            },
            sections=[Section("Threshold", Lines((curve,), "threshold", "macro-F1"))],
            run_files={THRESHOLD_FILE: json.dumps(kept, indent=2) + "\n"},
        )


def candidate_thresholds(probabilities: np.ndarray) -> list[float]:
    """The thresholds to try, ascending: midpoints between neighbouring probabilities, [N] or [N, C], or an evenly
    spaced sample of many. 0.5 if all probabilities are equal."""
    values = np.unique(probabilities)
    middles = (values[:-1] + values[1:]) / 2.0
    if len(middles) > CANDIDATES:
        middles = middles[np.linspace(0, len(middles) - 1, CANDIDATES).astype(int)]
    return middles.tolist() or [0.5]


def _from_half(threshold: float) -> float:
    return abs(threshold - 0.5)


def _macro_f1(targets: Targets, labels: np.ndarray, predictions: np.ndarray, threshold: float) -> float:
    from sklearn.metrics import f1_score  # here: it takes longer to import than JAX

    chosen = targets.array(targets.decide(predictions, threshold))
    if labels.ndim > 1:
        return macro_f1(labels, chosen)
    return float(f1_score(labels, chosen, average="macro", zero_division=0.0))
