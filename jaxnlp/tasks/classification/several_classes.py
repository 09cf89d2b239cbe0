"""Any number of classes of an example: binary cross-entropy, scikit-learn's scores, and the report's sections.

Axes: N examples, C classes.
"""

from typing import Any

import numpy as np

from jaxnlp.ops.classification import ClassLosses, several_cross_entropy
from jaxnlp.pages.content import Lines, Table
from jaxnlp.targets import SeveralClasses
from jaxnlp.tasks import Metric, MetricKind, Section
from jaxnlp.tasks.classification.measures import MAX_CLASSES, MAX_CURVES, Measures, areas, line
from jaxnlp.typing import Array, Batch, Metrics


class SeveralClassesMeasures(Measures):
    """Measures of any number of classes: labels are 0 or 1 [N, C], predictions are probabilities [N, C]."""

    targets: SeveralClasses

    def loss(self, outputs: Array, labels: Array, batch: Batch, **options: Any) -> tuple[ClassLosses, Metrics]:
        return several_cross_entropy(outputs, labels, batch["loss_mask"], **options), {}

    def kinds(self, labels: np.ndarray, of: str) -> dict[str, MetricKind]:
        """F1 needs a class with examples, areas under curves one with positive and negative ones; labels [N, C]."""
        titles = {"accuracy": "accuracy", "micro_f1": "micro F1", "macro_f1": "macro F1"}
        kinds = {name: MetricKind(of, title=title) for name, title in titles.items()}
        if _with_both(labels).any():
            kinds |= areas(of)
        if len(self.targets.names) <= MAX_CLASSES:
            present = [self.targets.names[index] for index in np.flatnonzero(labels.any(axis=0))]
            kinds |= {f"{name}/f1": MetricKind(of, title=f"{name} F1") for name in present}
        return kinds

    def ranking(self, scores: dict[str, float]) -> float:
        return scores["micro_f1"]

    def scores(self, labels: np.ndarray, predicted: np.ndarray) -> dict[str, Metric]:
        """All scores of `kinds`, of [N, C] and [N, C]; the accuracy is the share of examples with all classes right.

        A class is predicted from a probability of 0.5. Macro-F1 is over the classes that have examples, or are
        predicted. Areas under curves are means over the classes with both positive and negative examples.
        """
        # Here: it takes longer to import than JAX, and every command would wait for it.
        from sklearn.metrics import average_precision_score, roc_auc_score

        chosen, classes = predicted >= 0.5, self.targets.names
        f1 = f1_of_classes(labels, chosen)
        values = {
            "accuracy": float((chosen == labels).all(axis=1).mean()),
            "micro_f1": float(f1_of_classes(labels.reshape(-1, 1), chosen.reshape(-1, 1))[0]),
            "macro_f1": macro_f1(labels, chosen),
        }
        both = _with_both(labels)
        if both.any():
            values["roc_auc"] = float(roc_auc_score(labels[:, both], predicted[:, both], average="macro"))
            values["average_precision"] = float(average_precision_score(labels[:, both], predicted[:, both]))
        if len(classes) <= MAX_CLASSES:
            present = np.flatnonzero(labels.any(axis=0))
            values |= {f"{classes[index]}/f1": float(f1[index]) for index in present}
        return {name: Metric(value, len(labels)) for name, value in values.items()}

    def sections(self, labels: np.ndarray, predicted: np.ndarray) -> list[Section]:
        """True positives, misses and false positives of each class, and precision against recall; [N, C] both."""
        from sklearn.metrics import precision_recall_curve

        chosen, classes = predicted >= 0.5, self.targets.names
        counts = labels.sum(axis=0).astype(int)
        order = np.argsort(-counts, kind="stable")
        rows = tuple(
            (
                classes[c],
                int(counts[c]),
                int((chosen[:, c] & (labels[:, c] == 1)).sum()),
                int((~chosen[:, c] & (labels[:, c] == 1)).sum()),
                int((chosen[:, c] & (labels[:, c] == 0)).sum()),
            )
            for c in order
        )
        header = ("class", "examples", "found", "missed", "wrongly predicted")
        sections = [Section("Classes", Table(header, rows, folded=len(rows) > MAX_CLASSES))]
        curves = []
        for c in [c for c in order if _with_both(labels)[c]][:MAX_CURVES]:
            precision, recall, _ = precision_recall_curve(labels[:, c], predicted[:, c])
            curves.append(line(classes[c], recall[::-1], precision[::-1]))
        if curves:
            sections.append(Section("Precision and recall", Lines(tuple(curves), "recall", "precision")))
        return sections

    def errors(self, labels: np.ndarray, predicted: np.ndarray, limit: int) -> list[int]:
        """The examples with a wrong class, the most confident first; [N, C] both."""
        wrong = np.where(labels == 1, 1.0 - predicted, predicted).max(axis=1)
        return [int(n) for n in np.argsort(-wrong, kind="stable")[:limit] if wrong[n] >= 0.5]


def macro_f1(labels: np.ndarray, chosen: np.ndarray) -> float:
    """The mean F1 of the classes that have examples, or are chosen; 0 without any. Args: 0 or 1 [N, C]."""
    counted = labels.any(axis=0) | chosen.any(axis=0)
    return float(np.mean(f1_of_classes(labels, chosen)[counted])) if counted.any() else 0.0


def f1_of_classes(labels: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """The F1 of each class [C]; 0 without examples. Args: 0 or 1 [N, C].

    scikit-learn would read a single column as two classes, 0 and 1.
    """
    both, all_ = (labels * chosen).sum(axis=0), labels.sum(axis=0) + chosen.sum(axis=0)
    return 2.0 * both / np.maximum(all_, 1.0)


def _with_both(labels: np.ndarray) -> np.ndarray:
    """Whether classes have both positive and negative examples [C]."""
    return (labels.min(axis=0) == 0) & (labels.max(axis=0) == 1)
