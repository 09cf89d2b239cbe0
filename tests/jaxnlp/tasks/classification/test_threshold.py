import csv
import errno
import json
import types

import numpy as np
import pytest
import scipy.special

from jaxnlp.__main__ import main
from jaxnlp.runs import load_run
from jaxnlp.targets import OneClass, SeveralClasses
from jaxnlp.tasks.classification.kept_threshold import THRESHOLD_FILE as FILE
from jaxnlp.tasks.classification.kept_threshold import kept_threshold
from jaxnlp.tasks.classification.threshold import CANDIDATES, ChooseThreshold, candidate_thresholds
from train.evaluate import main as evaluate


def test_the_threshold_is_kept_with_the_run_and_used_by_predictions(text_run, tmp_path, monkeypatch, capsys):
    run = text_run("class")
    assert evaluate([str(run), "threshold"]) == 0
    shown = capsys.readouterr().out
    held = json.loads((run / FILE).read_text())
    assert f"{held['threshold']:.4f}" in shown
    assert held["split"] == "validation"
    assert held["macro_f1"] > 0.9
    assert kept_threshold(load_run(run)) == held["threshold"]
    with monkeypatch.context() as patched:

        def refused(path, text):
            raise OSError(errno.EROFS, "Read-only file system", str(path))

        patched.setattr("train.evaluate.run_folder.write_text", refused)
        with pytest.raises(OSError, match="Read-only file system"):
            evaluate([str(run), "threshold"])
        assert f"{held['threshold']:.4f}" in capsys.readouterr().out  # the scores are not lost
    try:
        (run / FILE).write_text(json.dumps(held | {"threshold": 0.9999}))
        assert main(["predict", str(run), "the run"]) == 0
        assert capsys.readouterr().out.startswith("arts\t")
        assert evaluate([str(run), "--threshold", "0.9999", "--predictions", str(tmp_path / "predictions.csv")]) == 0
        with (tmp_path / "predictions.csv").open() as file:
            assert {row["predicted"] for row in csv.DictReader(file)} == {"arts"}
        capsys.readouterr()
        assert main(["predict", str(run), "the run", "--threshold", "0.01"]) == 0
        assert capsys.readouterr().out.startswith("sport\t")
        assert main(["export", str(run), str(tmp_path / "exported"), "--format", "jax"]) == 0
        assert "the run's threshold 0.9999 is not part of it" in capsys.readouterr().out
    finally:
        (run / FILE).unlink()
    assert kept_threshold(load_run(run)) is None


@pytest.mark.thorough
def test_a_threshold_is_for_two_classes_or_several(run, text_run, capsys):
    for folder in (run, text_run("number")):
        assert main(["evaluate", str(folder), "threshold"]) != 0
        assert "a threshold applies only to two classes, or to any number of classes" in capsys.readouterr().err
    assert evaluate([str(text_run("classes")), "threshold"]) == 0
    (text_run("classes") / FILE).unlink()


class Given:
    """A scoring whose model gives these probabilities, or their logits."""

    split_name = "validation"

    def __init__(self, targets, found, labels):
        self.trained = types.SimpleNamespace(
            processor=types.SimpleNamespace(targets=targets, by_part={"": None}),
            model=types.SimpleNamespace(config=None),
            step=3,
        )
        self.split = types.SimpleNamespace(examples=[types.SimpleNamespace(label=x) for x in labels], scored=True)
        self.outputs = lambda function: np.log(found) if isinstance(targets, OneClass) else scipy.special.logit(found)

    def once(self, make, *arguments):
        return make(*arguments)


def chosen(targets, found, labels):
    found = ChooseThreshold()(Given(targets, np.array(found), labels)).metrics
    return found["threshold"].value, found["threshold_macro_f1"].value


@pytest.mark.parametrize(
    ("probabilities", "labels", "expected"),
    [
        ([0.1, 0.2, 0.8, 0.9], [0, 0, 1, 1], 0.5),  # the middle of the gap
        ([0.491, 0.4912, 0.4916, 0.492], [0, 0, 1, 1], 0.4914),
        ([0.001, 0.002, 0.004, 0.008], [0, 0, 0, 1], 0.006),  # a rare class
    ],
)
def test_classes_that_can_be_separated_are(probabilities, labels, expected):
    found = [[1.0 - p, p] for p in probabilities]
    assert chosen(OneClass(("a", "b")), found, labels) == pytest.approx((expected, 1.0))


def test_the_best_of_several_thresholds_is_taken_and_of_equal_ones_that_nearest_to_half():
    found = [[0.8, 0.2], [0.6, 0.4], [0.4, 0.6], [0.3, 0.7]]
    assert chosen(OneClass(("a", "b")), found, [1, 0, 1, 1])[0] == pytest.approx(0.5)
    several = SeveralClasses(("a", "b"))
    assert chosen(several, [[0.5, 0.5]] * 3, [(0,), (1,), ()])[0] == 0.5


def test_many_probabilities_are_tried_at_so_many_places():
    tried = candidate_thresholds(np.random.default_rng(0).uniform(size=5000))
    assert len(tried) == CANDIDATES
    assert tried == sorted(tried)
