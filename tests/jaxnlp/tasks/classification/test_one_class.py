import warnings

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, balanced_accuracy_score

from jaxnlp.targets import OneClass
from jaxnlp.tasks.classification.one_class import OneClassMeasures, calibration_error

CLASSES = ("cat", "dog", "eel")
LABELS = np.array([0, 0, 0, 1, 1, 2, 2, 2, 2, 0])
GENERATOR = np.random.default_rng(0)


def measures(*names):
    return OneClassMeasures(OneClass(names or CLASSES))


def predictions(classes=3, rows=10):
    return GENERATOR.dirichlet(np.ones(classes), rows)


def f1(labels, chosen, label):
    right = np.sum((labels == label) & (chosen == label))
    return 2 * right / (np.sum(labels == label) + np.sum(chosen == label))


def test_scores_are_their_definitions():
    found = predictions()
    chosen = found.argmax(axis=1)
    measured = measures().scores(LABELS, found)
    each = [f1(LABELS, chosen, label) for label in range(3)]
    assert {name: metric.value for name, metric in measured.items() if name.endswith("/f1")} == pytest.approx(
        dict(zip(("cat/f1", "dog/f1", "eel/f1"), each, strict=True))
    )
    assert measured["macro_f1"].value == pytest.approx(np.mean(each))
    assert measured["balanced_accuracy"].value == pytest.approx(balanced_accuracy_score(LABELS, chosen))
    areas = []
    for label in range(3):
        ours, others = found[label == LABELS, label], found[label != LABELS, label]
        areas.append(np.mean(ours[:, None] > others[None]))
    assert measured["roc_auc"].value == pytest.approx(np.mean(areas))
    assert all(metric.count == len(LABELS) for metric in measured.values())


def test_what_is_declared_is_measured_whichever_classes_occur():
    for labels in (LABELS, np.minimum(LABELS, 1), np.zeros(10, int)):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert measures().scores(labels, predictions()).keys() == measures().kinds(labels, "texts").keys()
    assert "eel/f1" in measures().kinds(LABELS, "texts")
    assert "eel/f1" not in measures().kinds(np.minimum(LABELS, 1), "texts")  # 0 would say that the model fails
    two = measures("cat", "dog").scores(np.minimum(LABELS, 1), predictions(2))
    assert "roc_auc" in two
    names = tuple(map(str, range(31)))
    assert not any("/" in name for name in measures(*names).kinds(np.arange(31), "texts"))


def test_of_two_classes_areas_are_those_of_the_second():
    labels, second = np.array([0, 0, 1, 1]), np.array([0.1, 0.6, 0.4, 0.9])
    measured = measures("no", "yes").scores(labels, np.stack([1 - second, second], axis=1))
    assert measured["roc_auc"].value == pytest.approx(3 / 4)
    assert measured["average_precision"].value == pytest.approx((1 + 2 / 3) / 2)


def test_the_calibration_error_is_zero_for_honest_confidence_and_its_distance_otherwise():
    sure = np.tile([0.8, 0.2], (10, 1))
    assert calibration_error(np.array([0] * 8 + [1] * 2), sure) == pytest.approx(0.0, abs=1e-9)
    assert calibration_error(np.array([0] * 5 + [1] * 5), sure) == pytest.approx(0.3)
    mixed = np.array([[0.95, 0.05]] * 4 + [[0.55, 0.45]] * 4)
    labels = np.array([0, 0, 0, 1, 0, 0, 0, 0])
    assert calibration_error(labels, mixed) == pytest.approx((4 * 0.2 + 4 * 0.45) / 8)
    assert calibration_error(np.array([0]), np.array([[1.0, 0.0]])) == 0.0


def test_the_surest_errors_come_first():
    found = np.array([[0.9, 0.1], [0.3, 0.7], [0.2, 0.8], [0.6, 0.4]])
    assert measures("no", "yes").errors(np.array([1, 0, 1, 1]), found, 2) == [0, 1]
    assert measures("no", "yes").errors(np.array([0, 1, 1, 0]), found, 2) == []


def test_sections_show_confusions_and_curves():
    found = predictions()
    made = {section.name: section.content for section in measures().sections(LABELS, found)}
    assert list(made) == ["Confusion matrix", "ROC curves", "Precision and recall", "Reliability"]
    rows = made["Confusion matrix"].rows
    assert [row[0] for row in rows] == list(CLASSES)
    assert sum(row[1 + place] for place, row in enumerate(rows)) == round(
        len(LABELS) * accuracy_score(LABELS, found.argmax(axis=1))
    )
    roc = made["ROC curves"].lines
    assert [line.name for line in roc] == list(CLASSES)
    assert all((line.x[0], line.y[0], line.x[-1], line.y[-1]) == (0, 0, 1, 1) for line in roc)
    many = measures(*map(str, range(40))).sections(GENERATOR.permutation(40).repeat(20), predictions(40, 800))
    assert many[0].name == "ROC curves"
    assert len(many[0].content.lines) == 10
    assert max(len(line.x) for line in many[0].content.lines) <= 200
    assert [section.name for section in measures().sections(np.zeros(10, int), found)] == [
        "Confusion matrix",
        "Reliability",
    ]


def test_of_two_classes_the_distribution_of_the_scores_is_shown():
    labels, second = np.array([0, 0, 0, 0, 1, 1]), np.array([0.01, 0.02, 0.3, 0.3, 0.3, 0.99])
    made = {
        section.name: section.content
        for section in measures("no", "yes").sections(labels, np.stack([1 - second, second], axis=1))
    }
    shown = made["Distribution of the scores"]
    assert shown.x_label == "probability of yes"
    no, yes = shown.lines
    assert (no.name, no.y[0], no.y[4], sum(no.y)) == ("no", 0.5, 0.5, 1.0)
    assert (yes.name, yes.y[4], yes.y[-1], sum(yes.y)) == ("yes", 0.5, 0.5, 1.0)
    assert no.x[0] == pytest.approx(1 / 30, abs=1e-4)
