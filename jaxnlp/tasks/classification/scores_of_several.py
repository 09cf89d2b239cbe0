"""Scores of the probabilities of any number of classes per example: scikit-learn's scores, and the report's blocks.

Axes: N examples, C classes.
"""

from collections.abc import Sequence

import numpy as np

from jaxnlp.pages.blocks import Lines, Table
from jaxnlp.tasks import Block, Metric, MetricKind
from jaxnlp.tasks.classification.scores import MAX_CLASSES, MAX_CURVES, areas, line


def kinds(classes: Sequence[str], labels: np.ndarray, of: str = "examples") -> dict[str, MetricKind]:
    """The metrics of `scores` for examples with these labels [N, C], 0 or 1."""
    titles = {"accuracy": "accuracy", "micro_f1": "micro F1", "macro_f1": "macro F1"}
    found = {name: MetricKind(of, title=title) for name, title in titles.items()}
    if _with_both(labels).any():
        found |= areas(of)
    if len(classes) <= MAX_CLASSES:
        found |= {f"{name}/f1": MetricKind(of, title=f"{name} F1") for name in classes}
    return found


def _with_both(labels: np.ndarray) -> np.ndarray:
    """Which classes have both positive and negative examples [C]."""
    return (labels.min(axis=0) == 0) & (labels.max(axis=0) == 1)


def scores(
    classes: Sequence[str], labels: np.ndarray, probabilities: np.ndarray, threshold: float = 0.5
) -> dict[str, Metric]:
    """All scores of `kinds`. The accuracy is the share of examples whose classes are all right.

    Args:
      classes: their names.
      labels: [N, C], 0 or 1.
      probabilities: [N, C], of each class.
      threshold: lowest probability of a predicted class.

    Areas under curves are means over the classes with both positive and negative examples.
    """
    # Here: it takes longer to import than JAX, and every command would wait for it.
    from sklearn.metrics import average_precision_score, f1_score, roc_auc_score

    chosen = probabilities >= threshold
    f1 = f1_score(labels, chosen, average=None, zero_division=0.0)
    values = {
        "accuracy": float((chosen == labels).all(axis=1).mean()),
        "micro_f1": float(f1_score(labels, chosen, average="micro", zero_division=0.0)),
        "macro_f1": float(np.mean(f1)),
    }
    both = _with_both(labels)
    if both.any():
        values["roc_auc"] = float(roc_auc_score(labels[:, both], probabilities[:, both], average="macro"))
        values["average_precision"] = float(average_precision_score(labels[:, both], probabilities[:, both]))
    if len(classes) <= MAX_CLASSES:
        values |= {f"{name}/f1": float(value) for name, value in zip(classes, np.ravel(f1), strict=True)}
    return {name: Metric(value, len(labels)) for name, value in values.items()}


def blocks(classes: Sequence[str], labels: np.ndarray, probabilities: np.ndarray) -> list[Block]:
    """For the report: how often each class is right, missed and wrongly predicted, and precision against recall.

    Args:
      classes: their names, C of them.
      labels: [N, C], 1 for the classes of an example.
      probabilities: [N, C].
    """
    from sklearn.metrics import precision_recall_curve

    chosen = probabilities >= 0.5
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
    found = [Block("Classes", Table(header, rows, folded=len(rows) > MAX_CLASSES))]
    curves = []
    for c in [c for c in order if _with_both(labels)[c]][:MAX_CURVES]:
        precision, recall, _ = precision_recall_curve(labels[:, c], probabilities[:, c])
        curves.append(line(classes[c], recall[::-1], precision[::-1]))
    if curves:
        found.append(Block("Precision and recall", Lines(tuple(curves), "recall", "precision")))
    return found


def errors(labels: np.ndarray, probabilities: np.ndarray, limit: int) -> list[int]:
    """The numbers of the examples with a wrong class, the most confident first; both arrays are [N, C]."""
    wrong = np.where(labels == 1, 1.0 - probabilities, probabilities).max(axis=1)
    return [int(n) for n in np.argsort(-wrong, kind="stable")[:limit] if wrong[n] >= 0.5]
