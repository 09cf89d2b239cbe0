"""One class of an example: cross-entropy, scikit-learn's scores, calibration, and the report's sections.

Axes: N examples, C classes.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from jaxnlp.ops.classification import ClassLosses, class_cross_entropy
from jaxnlp.pages.content import Line, Lines, Table
from jaxnlp.targets import OneClass
from jaxnlp.tasks import Metric, MetricKind, Section
from jaxnlp.tasks.classification.measures import MAX_CLASSES, MAX_CURVES, Measures, areas, line
from jaxnlp.typing import Array, Batch, Metrics

BINS = 15
"""Number of intervals of confidence, of equal width."""


class OneClassMeasures(Measures):
    """Measures of exactly one class: labels are ids [N], predictions are probabilities [N, C]."""

    targets: OneClass
    options = (*Measures.options, "balanced")

    def loss(self, outputs: Array, labels: Array, batch: Batch, **options: Any) -> tuple[ClassLosses, Metrics]:
        loss_mask = batch["loss_mask"]
        losses = class_cross_entropy(outputs, _shares(labels, batch, outputs.shape[1]), loss_mask, **options)
        right = ((outputs.argmax(axis=1) == labels) & loss_mask).sum().astype(losses.nll.dtype)
        return losses, {"accuracy": (right, losses.count)}

    def loss_kinds(self, of: str) -> dict[str, MetricKind]:
        return super().loss_kinds(of) | {"accuracy": MetricKind(of)}

    def kinds(self, labels: np.ndarray, of: str) -> dict[str, MetricKind]:
        """Areas under curves need examples of every class; F1 of a class needs examples of this class. Labels [N]."""
        names = self.targets.names
        kinds = {"balanced_accuracy": MetricKind(of), "macro_f1": MetricKind(of, title="macro F1")}
        kinds["calibration_error"] = MetricKind(of, "points", "lower")
        if len(np.unique(labels)) == len(names):
            kinds |= areas(of)
        if len(names) <= MAX_CLASSES:
            kinds |= {
                f"{name}/f1": MetricKind(of, title=f"{name} F1") for name in (names[n] for n in np.unique(labels))
            }
        return kinds

    def ranking(self, scores: dict[str, float]) -> float:
        return scores["accuracy"]

    def scores(self, labels: np.ndarray, predicted: np.ndarray) -> dict[str, Metric]:
        """All scores of `kinds`, from labels [N] and predicted [N, C].

        With two classes, areas are those of the second one; with more, means over one class against the rest. The
        calibration error is in points, from 0 to 100.
        """
        # Here: it takes longer to import than JAX, and every command would wait for it.
        from sklearn.metrics import average_precision_score, f1_score, recall_score, roc_auc_score

        classes = self.targets.names
        chosen, ids = predicted.argmax(axis=1), np.arange(len(classes))
        f1 = f1_score(labels, chosen, labels=ids, average=None, zero_division=0.0)
        present = np.unique(labels)
        counted = np.union1d(present, chosen)  # a class without examples counts if it is predicted
        values = {
            # Balanced accuracy, without scikit-learn's warning about a predicted class without examples.
            "balanced_accuracy": float(recall_score(labels, chosen, labels=present, average="macro")),
            "macro_f1": float(np.mean(f1[counted])),
            "calibration_error": 100.0 * calibration_error(labels, predicted),
        }
        if len(present) == len(classes):
            onehot = labels[:, None] == ids[None]
            if len(classes) == 2:
                onehot, columns = onehot[:, 1], predicted[:, 1]
            else:
                columns = predicted
            values["roc_auc"] = float(roc_auc_score(onehot, columns))
            values["average_precision"] = float(average_precision_score(onehot, columns))
        if len(classes) <= MAX_CLASSES:
            values |= {f"{classes[label]}/f1": float(f1[label]) for label in present}
        return {name: Metric(value, len(labels)) for name, value in values.items()}

    def sections(self, labels: np.ndarray, predicted: np.ndarray) -> list[Section]:
        """Confusion matrix, curves of each class against the rest, and calibration; [N] and [N, C]."""
        from sklearn.metrics import confusion_matrix, precision_recall_curve, roc_curve

        sections, classes = list[Section](), self.targets.names
        if len(classes) <= MAX_CLASSES:
            matrix = confusion_matrix(labels, predicted.argmax(axis=1), labels=np.arange(len(classes)))
            rows = tuple((name, *row) for name, row in zip(classes, matrix.tolist(), strict=True))
            note = "Rows are the classes of the examples, columns the predicted ones."
            sections.append(Section("Confusion matrix", Table(("class", *classes), rows, note=note)))
        counts = np.bincount(labels, minlength=len(classes))
        drawn = [1] if len(classes) == 2 else sorted(np.argsort(-counts, kind="stable")[:MAX_CURVES].tolist())
        drawn = [label for label in drawn if 0 < counts[label] < len(labels)]
        if drawn:
            curves: Mapping[str, list[Line]] = {"roc": [], "pr": []}
            for label in drawn:
                false, true, _ = roc_curve(labels == label, predicted[:, label])
                curves["roc"].append(line(classes[label], false, true))
                precision, recall, _ = precision_recall_curve(labels == label, predicted[:, label])
                curves["pr"].append(line(classes[label], recall[::-1], precision[::-1]))
            sections += [
                Section("ROC curves", Lines(tuple(curves["roc"]), "false positive rate", "true positive rate")),
                Section("Precision and recall", Lines(tuple(curves["pr"]), "recall", "precision")),
            ]
        if len(classes) == 2 and drawn:
            sections.append(Section("Distribution of the scores", _distributions(classes, labels, predicted[:, 1])))
        count, confidence, right = _binned(labels, predicted)
        filled = count > 0
        reliability = line("accuracy", confidence[filled] / count[filled], right[filled] / count[filled])
        sections.append(
            Section(
                "Reliability",
                Lines(
                    (reliability, Line("perfect", (0.0, 1.0), (0.0, 1.0))),
                    "confidence",
                    "share of right predictions",
                    "Below the straight line the model is overconfident, above it underconfident.",
                ),
            )
        )
        return sections

    def errors(self, labels: np.ndarray, predicted: np.ndarray, limit: int) -> list[int]:
        """The most confident first, of [N] and [N, C]."""
        wrong = np.flatnonzero(predicted.argmax(axis=1) != labels)
        return wrong[np.argsort(-predicted[wrong].max(axis=1), kind="stable")][:limit].tolist()


def _shares(labels: Array, batch: Batch, classes: int) -> Array:
    """The labels [B], or for mixed inputs the shares of both labels [B, C]."""
    if "other_labels" not in batch:
        return labels
    share = batch["share"][:, None]
    first, other = (jax.nn.one_hot(ids, classes) for ids in (labels, batch["other_labels"]))
    return share * first + (1.0 - share) * other


def _binned(labels: np.ndarray, probabilities: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each interval of confidence: number of examples, sum of confidences, number of right predictions [BINS]."""
    confidence = probabilities.max(axis=1)
    right = probabilities.argmax(axis=1) == labels
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
    return tuple(np.bincount(bins, weights, minlength=BINS) for weights in (None, confidence, right))  # type: ignore


def calibration_error(labels: np.ndarray, probabilities: np.ndarray) -> float:
    """The mean distance between confidence and accuracy over intervals of confidence, weighted by number of examples.

    Args: labels [N] int, probabilities [N, C].

    Source: Guo et al. 2017, eq. 3, with 15 intervals.
    """
    _, confidence, right = _binned(labels, probabilities)
    return float(np.abs(right - confidence).sum() / len(labels))


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
