import numpy as np
import pytest
from sklearn.metrics import f1_score

from jaxnlp.targets import SeveralClasses
from jaxnlp.tasks.classification.several_classes import SeveralClassesMeasures, f1_of_classes, macro_f1

CLASSES = ("a", "b", "c")
MEASURES = SeveralClassesMeasures(SeveralClasses(CLASSES))
GENERATOR = np.random.default_rng(0)
LABELS = (GENERATOR.random((12, 3)) < 0.4).astype(np.float32)
FOUND = GENERATOR.random((12, 3))


def test_every_declared_score_is_measured():
    measured = MEASURES.scores(LABELS, FOUND)
    assert measured.keys() == MEASURES.kinds(LABELS, "texts").keys()
    chosen = FOUND >= 0.5
    assert measured["accuracy"].value == pytest.approx((chosen == LABELS).all(axis=1).mean())
    assert measured["micro_f1"].value == pytest.approx(f1_score(LABELS.ravel(), chosen.ravel()))
    assert measured["macro_f1"].value == pytest.approx(np.mean([measured[f"{name}/f1"].value for name in CLASSES]))
    assert MEASURES.scores(LABELS, LABELS)["accuracy"].value == 1.0


def test_a_class_without_examples_counts_in_macro_f1_only_if_it_is_predicted():
    labels = LABELS * [1, 1, 0]
    measured = MEASURES.scores(labels, FOUND)
    f1 = [measured[f"{name}/f1"].value for name in "ab"]
    assert "c/f1" not in measured
    assert measured["macro_f1"].value == pytest.approx(sum(f1) / 3)
    assert MEASURES.scores(labels, FOUND * [1, 1, 0])["macro_f1"].value == pytest.approx(sum(f1) / 2)
    assert MEASURES.scores(labels, labels)["macro_f1"].value == 1.0
    assert MEASURES.scores(0 * labels, 0 * labels)["macro_f1"].value == 0.0


def test_f1_is_scikit_learns_and_that_of_a_single_class_is_not_of_its_absence():
    chosen = FOUND >= 0.5
    np.testing.assert_allclose(f1_of_classes(LABELS, chosen), f1_score(LABELS, chosen, average=None))
    (only,) = f1_of_classes(LABELS[:, :1], chosen[:, :1])
    assert macro_f1(LABELS * [1, 0, 0], chosen * [1, 0, 0]) == pytest.approx(only)
    assert only == pytest.approx(f1_score(LABELS[:, 0], chosen[:, 0]))
    measured = SeveralClassesMeasures(SeveralClasses(("a",))).scores(LABELS[:, :1], FOUND[:, :1])
    assert {measured[name].value for name in ("micro_f1", "macro_f1", "a/f1")} == {only}


def test_a_class_without_examples_is_left_out_of_areas():
    labels = LABELS * [1, 1, 0]
    assert MEASURES.scores(labels, FOUND).keys() == MEASURES.kinds(labels, "texts").keys()
    none = np.zeros_like(LABELS)
    assert "roc_auc" not in MEASURES.kinds(none, "texts")
    assert MEASURES.scores(none, FOUND).keys() == MEASURES.kinds(none, "texts").keys()


def test_the_report_counts_each_class():
    table = MEASURES.sections(LABELS, LABELS)[0].content
    assert {row[0]: row[1] for row in table.rows} == dict(zip(CLASSES, LABELS.sum(axis=0).astype(int), strict=True))
    assert all(row[1] == row[2] and row[3] == row[4] == 0 for row in table.rows)


def test_the_surest_errors_come_first():
    labels = np.array([[1, 0], [0, 0], [1, 1]], np.float32)
    found = np.array([[0.9, 0.1], [0.2, 0.7], [0.05, 0.9]])
    assert MEASURES.errors(labels, found, 5) == [2, 1]
    assert MEASURES.errors(labels, found, 1) == [2]
