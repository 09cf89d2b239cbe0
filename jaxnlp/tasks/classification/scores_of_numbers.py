"""Scores of predicted numbers: errors and correlations, and the report's blocks. Axis: N examples.

The functions are those of `scores`. Numbers do not have classes.
"""

from collections.abc import Sequence

import numpy as np

from jaxnlp.pages.blocks import Line, Lines
from jaxnlp.tasks import Block, Metric, MetricKind

BINS = 20
"""Number of parts of the scale for which the report has the mean prediction."""


def kinds(classes: Sequence[str], labels: np.ndarray, of: str = "examples") -> dict[str, MetricKind]:
    """What `scores` measures of labels [N]."""
    del classes, labels
    errors = {name: MetricKind(of, "label", "lower") for name in ("mean_absolute_error", "root_mean_squared_error")}
    return errors | {name: MetricKind(of, title=f"{name.capitalize()} correlation") for name in ("pearson", "spearman")}


def scores(classes: Sequence[str], labels: np.ndarray, predicted: np.ndarray) -> dict[str, Metric]:
    """Errors in the unit of the labels, and correlations, of [N] and [N]; a constant correlates with nothing: 0."""
    from scipy.stats import pearsonr, spearmanr  # here: it takes as long to import as JAX

    del classes
    varied = len(labels) > 1 and np.ptp(labels) > 0.0 and np.ptp(predicted) > 0.0
    values = {
        "mean_absolute_error": float(np.abs(predicted - labels).mean()),
        "root_mean_squared_error": float(np.sqrt(np.square(predicted - labels).mean())),
        "pearson": float(pearsonr(predicted, labels)[0]) if varied else 0.0,
        "spearman": float(spearmanr(predicted, labels)[0]) if varied else 0.0,
    }
    return {name: Metric(value, len(labels)) for name, value in values.items()}


def blocks(classes: Sequence[str], labels: np.ndarray, predicted: np.ndarray) -> list[Block]:
    """For the report: the mean prediction along the scale of the labels; both are [N]."""
    del classes
    edges = np.linspace(labels.min(), labels.max(), BINS + 1)
    place = np.clip(np.digitize(labels, edges) - 1, 0, BINS - 1)
    filled = [bin for bin in range(BINS) if (place == bin).any()]
    means = [(float(labels[place == bin].mean()), float(predicted[place == bin].mean())) for bin in filled]
    x, y = zip(*means, strict=True)
    ends = (float(labels.min()), float(labels.max()))
    lines = (Line("mean prediction", x, y), Line("perfect", ends, ends))
    return [Block("Predictions", Lines(lines, "label", "prediction"))]


def errors(labels: np.ndarray, predicted: np.ndarray, limit: int) -> list[int]:
    """The numbers of the examples whose predictions [N] are farthest from their labels [N]."""
    return np.argsort(-np.abs(predicted - labels), kind="stable")[:limit].tolist()
