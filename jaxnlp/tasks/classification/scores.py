"""Scores of predicted probabilities: scikit-learn's scores, the expected calibration error, and the report's blocks.

Axes: N examples, C classes.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from jaxnlp.pages.blocks import Line, Lines, Table
from jaxnlp.tasks import Block, Metric, MetricKind

MAX_CLASSES = 30
"""Maximum number of classes for an F1 of each class and a confusion matrix."""
MAX_CURVES = 10
"""Maximum number of classes with curves: the most frequent ones."""
MAX_POINTS = 200
"""Maximum number of points of a curve in the report."""
BINS = 15
"""Number of intervals of confidence, of equal width."""


def kinds(classes: Sequence[str], labels: np.ndarray, of: str = "examples") -> dict[str, MetricKind]:
    """What `scores` measures of examples with these labels [N]; areas under curves need examples of every class,
    and F1 of a class examples of it.

    `of` is the plural noun for examples.
    """
    found = {"balanced_accuracy": MetricKind(of), "macro_f1": MetricKind(of, title="macro F1")}
    found["calibration_error"] = MetricKind(of, "points", "lower")
    if len(np.unique(labels)) == len(classes):
        found |= areas(of)
    if len(classes) <= MAX_CLASSES:
        found |= {f"{name}/f1": MetricKind(of, title=f"{name} F1") for name in (classes[n] for n in np.unique(labels))}
    return found


def areas(of: str) -> dict[str, MetricKind]:
    """The areas under the curves, which need examples of every class."""
    return {"roc_auc": MetricKind(of, title="ROC AUC"), "average_precision": MetricKind(of)}


def scores(classes: Sequence[str], labels: np.ndarray, probabilities: np.ndarray) -> dict[str, Metric]:
    """All scores of `kinds`, from labels [N] and probabilities [N, C].

    With two classes, areas are those of the second one; with more, means over one class against the rest. The
    calibration error is in points, from 0 to 100.
    """
    # Here: it takes longer to import than JAX, and every command would wait for it.
    from sklearn.metrics import average_precision_score, f1_score, recall_score, roc_auc_score

    chosen, ids = probabilities.argmax(axis=1), np.arange(len(classes))
    f1 = f1_score(labels, chosen, labels=ids, average=None, zero_division=0.0)
    present = np.unique(labels)
    counted = np.union1d(present, chosen)  # a class without examples counts if it is predicted
    values = {
        # Balanced accuracy, without scikit-learn's warning about a predicted class without examples.
        "balanced_accuracy": float(recall_score(labels, chosen, labels=present, average="macro")),
        "macro_f1": float(np.mean(f1[counted])),
        "calibration_error": 100.0 * calibration_error(labels, probabilities),
    }
    if len(present) == len(classes):
        onehot = labels[:, None] == ids[None]
        if len(classes) == 2:
            onehot, columns = onehot[:, 1], probabilities[:, 1]
        else:
            columns = probabilities
        values["roc_auc"] = float(roc_auc_score(onehot, columns))
        values["average_precision"] = float(average_precision_score(onehot, columns))
    if len(classes) <= MAX_CLASSES:
        values |= {f"{classes[label]}/f1": float(f1[label]) for label in present}
    return {name: Metric(value, len(labels)) for name, value in values.items()}


def _binned(labels: np.ndarray, probabilities: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each interval of confidence: number of examples, sum of confidences, number of right predictions [BINS]."""
    confidence = probabilities.max(axis=1)
    right = probabilities.argmax(axis=1) == labels
    place = np.minimum((confidence * BINS).astype(int), BINS - 1)
    return tuple(np.bincount(place, weights, minlength=BINS) for weights in (None, confidence, right))  # type: ignore


def calibration_error(labels: np.ndarray, probabilities: np.ndarray) -> float:
    """The mean distance between confidence and accuracy over intervals of confidence, weighted by number of examples.

    Args:
      labels: [N] int.
      probabilities: [N, C].

    Source: Guo et al. 2017, eq. 3, with 15 intervals.
    """
    _, confidence, right = _binned(labels, probabilities)
    return float(np.abs(right - confidence).sum() / len(labels))


def blocks(classes: Sequence[str], labels: np.ndarray, probabilities: np.ndarray) -> list[Block]:
    """For the report: confusions, curves of each class against the rest, and whether confidence can be trusted.

    Args:
      classes: their names, C of them.
      labels: [N] int.
      probabilities: [N, C].
    """
    from sklearn.metrics import confusion_matrix, precision_recall_curve, roc_curve

    found = []
    if len(classes) <= MAX_CLASSES:
        matrix = confusion_matrix(labels, probabilities.argmax(axis=1), labels=np.arange(len(classes)))
        rows = tuple((name, *row) for name, row in zip(classes, matrix.tolist(), strict=True))
        note = "Rows are the classes of the examples, columns the predicted ones."
        found.append(Block("Confusion matrix", Table(("class", *classes), rows, note=note)))
    counts = np.bincount(labels, minlength=len(classes))
    drawn = [1] if len(classes) == 2 else sorted(np.argsort(-counts, kind="stable")[:MAX_CURVES].tolist())
    drawn = [label for label in drawn if 0 < counts[label] < len(labels)]
    if drawn:
        curves: Mapping[str, list[Line]] = {"roc": [], "pr": []}
        for label in drawn:
            false, true, _ = roc_curve(labels == label, probabilities[:, label])
            curves["roc"].append(line(classes[label], false, true))
            precision, recall, _ = precision_recall_curve(labels == label, probabilities[:, label])
            curves["pr"].append(line(classes[label], recall[::-1], precision[::-1]))
        found += [
            Block("ROC curves", Lines(tuple(curves["roc"]), "false positive rate", "true positive rate")),
            Block("Precision and recall", Lines(tuple(curves["pr"]), "recall", "precision")),
        ]
    if len(classes) == 2 and drawn:
        found.append(Block("Distribution of the scores", _distributions(classes, labels, probabilities[:, 1])))
    count, confidence, right = _binned(labels, probabilities)
    filled = count > 0
    reliability = line("accuracy", confidence[filled] / count[filled], right[filled] / count[filled])
    found.append(
        Block(
            "Reliability",
            Lines(
                (reliability, Line("perfect", (0.0, 1.0), (0.0, 1.0))),
                "confidence",
                "share of right predictions",
                "Below the straight line the model is overconfident, above it underconfident.",
            ),
        )
    )
    return found


def _distributions(classes: Sequence[str], labels: np.ndarray, scores: np.ndarray) -> Lines:
    """For two classes: the distribution of the second one's probability over the examples of each class."""
    edges = np.linspace(0.0, 1.0, BINS + 1)
    middles = (edges[:-1] + edges[1:]) / 2.0
    shares = [np.histogram(scores[labels == label], edges)[0] / (labels == label).sum() for label in (0, 1)]
    return Lines(
        tuple(line(name, middles, share) for name, share in zip(classes, shares, strict=True)),
        f"probability of {classes[1]}",
        "share of the class's examples",
        "If the curves are equal, the model does not distinguish the classes. If both are on one side of 0.5, it "
        "predicts only one class.",
    )


def line(name: str, x: np.ndarray, y: np.ndarray) -> Line:
    """A curve, x [N] and y [N], with at most 200 of its points."""
    chosen = np.unique(np.linspace(0, len(x) - 1, min(len(x), MAX_POINTS)).round().astype(int))
    return Line(name, tuple(x[chosen].round(4).tolist()), tuple(y[chosen].round(4).tolist()))


def errors(labels: np.ndarray, probabilities: np.ndarray, limit: int) -> list[int]:
    """The numbers of the examples with wrong predictions, the most confident first; arguments as for `blocks`."""
    wrong = np.flatnonzero(probabilities.argmax(axis=1) != labels)
    return wrong[np.argsort(-probabilities[wrong].max(axis=1), kind="stable")][:limit].tolist()
