"""A number for an example: the squared error, errors and correlations, and the report's section. Axis: N examples."""

from typing import Any

import numpy as np

from jaxnlp.ops.classification import ClassLosses, squared_error
from jaxnlp.pages.content import Line, Lines
from jaxnlp.targets import Number
from jaxnlp.tasks import Metric, MetricKind, Section
from jaxnlp.tasks.classification.measures import Measures
from jaxnlp.typing import Array, Batch, Metrics

BINS = 20
"""Number of intervals of the scale for the report's mean predictions."""


class NumberMeasures(Measures):
    """Measures of a number: labels and predictions are on the scale of the labels [N]."""

    targets: Number
    unit = "squared error"
    options = ()
    error_title = "Largest errors"

    def loss(self, outputs: Array, labels: Array, batch: Batch, **options: Any) -> tuple[ClassLosses, Metrics]:
        del options
        return squared_error(outputs, labels, batch["loss_mask"]), {}

    def kinds(self, labels: np.ndarray, of: str) -> dict[str, MetricKind]:
        errors = {name: MetricKind(of, "label", "lower") for name in ("mean_absolute_error", "root_mean_squared_error")}
        correlations = {
            name: MetricKind(of, title=f"{name.capitalize()} correlation") for name in ("pearson", "spearman")
        }
        return errors | correlations

    def ranking(self, scores: dict[str, float]) -> float:
        return (1.0 + scores["pearson"]) / 2.0

    def scores(self, labels: np.ndarray, predicted: np.ndarray) -> dict[str, Metric]:
        """Errors in the unit of the labels, and correlations, of [N] and [N]; the correlation with a constant is 0."""
        from scipy.stats import pearsonr, spearmanr  # here: it takes as long to import as JAX

        varied = len(labels) > 1 and np.ptp(labels) > 0.0 and np.ptp(predicted) > 0.0
        values = {
            "mean_absolute_error": float(np.abs(predicted - labels).mean()),
            "root_mean_squared_error": float(np.sqrt(np.square(predicted - labels).mean())),
            "pearson": float(pearsonr(predicted, labels)[0]) if varied else 0.0,
            "spearman": float(spearmanr(predicted, labels)[0]) if varied else 0.0,
        }
        return {name: Metric(value, len(labels)) for name, value in values.items()}

    def sections(self, labels: np.ndarray, predicted: np.ndarray) -> list[Section]:
        """The mean prediction along the scale of the labels; [N] both."""
        edges = np.linspace(labels.min(), labels.max(), BINS + 1)
        bins = np.clip(np.digitize(labels, edges) - 1, 0, BINS - 1)
        filled = [bin for bin in range(BINS) if (bins == bin).any()]
        means = [(float(labels[bins == bin].mean()), float(predicted[bins == bin].mean())) for bin in filled]
        x, y = zip(*means, strict=True)
        ends = (float(labels.min()), float(labels.max()))
        lines = (Line("mean prediction", x, y), Line("perfect", ends, ends))
        return [Section("Predictions", Lines(lines, "label", "prediction"))]

    def errors(self, labels: np.ndarray, predicted: np.ndarray, limit: int) -> list[int]:
        """The examples whose predictions are farthest from their labels; [N] both."""
        return np.argsort(-np.abs(predicted - labels), kind="stable")[:limit].tolist()
