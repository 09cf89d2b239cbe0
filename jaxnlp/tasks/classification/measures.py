"""The base of measures for one kind of targets: loss, scores, and sections of the report.

Axes: N examples, C outputs.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from jaxnlp.ops.classification import ClassLosses
from jaxnlp.pages.content import Line
from jaxnlp.targets import Targets
from jaxnlp.tasks import Metric, MetricKind, Section
from jaxnlp.typing import Array, Batch, Metrics

MAX_CLASSES = 30
"""Maximum number of classes for an F1 of each class and a confusion matrix."""
MAX_CURVES = 10
"""Maximum number of classes with curves: the most frequent ones."""
MAX_POINTS = 200
"""Maximum number of points of a curve in the report."""


class Measures:
    """Loss, scores and sections for one kind of targets."""

    unit: ClassVar[str] = "nats"
    """Unit of the loss."""
    options: ClassVar[Sequence[str]] = ("label_smoothing", "focal_gamma", "class_weights")
    """The task's options for the loss."""
    error_title: ClassVar[str] = "Most confident errors"
    """Heading of the wrong predictions in the report."""

    def __init__(self, targets: Any):
        self.targets = targets

    def loss(self, outputs: Array, labels: Array, batch: Batch, **options: Any) -> tuple[ClassLosses, Metrics]:
        """The losses, and the metrics besides the loss, of outputs [B, C] and labels as `Targets.array` makes them.

        Options are those of `jaxnlp.ops.classification`: class_weights, label_smoothing and focal_gamma.
        """
        raise TypeError(f"{type(self).__name__} does not define loss()")

    def loss_kinds(self, of: str) -> dict[str, MetricKind]:
        """The metrics of `loss`, with their units. Args: of: the plural noun for examples."""
        return {"loss": MetricKind(of, self.unit, "lower")}

    def kinds(self, labels: np.ndarray, of: str) -> dict[str, MetricKind]:
        """The `scores` of examples with these labels [N, ...]; `of` is the plural noun for examples."""
        raise TypeError(f"{type(self).__name__} does not define kinds()")

    def scores(self, labels: np.ndarray, predicted: np.ndarray) -> dict[str, Metric]:
        """All scores of `kinds`, from labels [N, ...] and `Targets.predicted` [N, ...]."""
        raise TypeError(f"{type(self).__name__} does not define scores()")

    def ranking(self, scores: dict[str, float]) -> float:
        """One score from 0 to 1; that of several parts is the mean."""
        raise TypeError(f"{type(self).__name__} does not define ranking()")

    def sections(self, labels: np.ndarray, predicted: np.ndarray) -> list[Section]:
        """For the report; arguments as for `scores`: [N, ...]."""
        raise TypeError(f"{type(self).__name__} does not define sections()")

    def errors(self, labels: np.ndarray, predicted: np.ndarray, limit: int) -> list[int]:
        """Indices of wrong predictions, the worst first; arguments as for `scores`: [N, ...]."""
        raise TypeError(f"{type(self).__name__} does not define errors()")


def share_right(targets: Targets, labels: np.ndarray, predictions: np.ndarray, threshold: float | None = None) -> float:
    """The share of examples whose class, or all of whose classes, are right. Args: labels [N] or [N, C], predictions
    [N, C], threshold: of `Targets.decide`."""
    chosen = targets.array(targets.decide(predictions, threshold))
    return float((chosen == labels).reshape(len(labels), -1).all(axis=1).mean())


def areas(of: str) -> dict[str, MetricKind]:
    """The areas under curves, which need positive and negative examples."""
    return {"roc_auc": MetricKind(of, title="ROC AUC"), "average_precision": MetricKind(of)}


def line(name: str, x: np.ndarray, y: np.ndarray) -> Line:
    """A curve, x [N] and y [N], with at most 200 of its points."""
    chosen = np.unique(np.linspace(0, len(x) - 1, min(len(x), MAX_POINTS)).round().astype(int))
    return Line(name, tuple(x[chosen].round(4).tolist()), tuple(y[chosen].round(4).tolist()))
