import json

import numpy as np
import pytest

from jaxnlp.__main__ import main
from jaxnlp.runs import load_run
from jaxnlp.targets import Classes
from jaxnlp.tasks.classification.evaluators import decided
from jaxnlp.tasks.classification.threshold import FILE, kept_threshold
from train.evaluate import main as evaluate


def test_the_threshold_is_kept_with_the_run_and_used_by_predictions(text_run, tmp_path, capsys):
    run = text_run("class")
    assert evaluate([str(run), "threshold"]) == 0
    shown = capsys.readouterr().out
    held = json.loads((run / FILE).read_text())
    assert f"{held['threshold']:.2f}" in shown
    assert held["split"] == "validation"
    assert held["macro_f1"] > 0.9
    trained = load_run(run)
    assert kept_threshold(trained) == held["threshold"]
    try:
        (run / FILE).write_text(json.dumps(held | {"threshold": 0.9999}))
        assert main(["predict", str(run), "the run"]) == 0
        assert capsys.readouterr().out.startswith("arts\t")
        assert main(["predict", str(run), "the run", "--threshold", "0.01"]) == 0
        assert capsys.readouterr().out.startswith("sport\t")
        (run / FILE).write_text(json.dumps(held | {"step": 3}))
        assert kept_threshold(trained) is None
        assert "was chosen for step 3, and the checkpoint is of step 60" in capsys.readouterr().err
        (run / FILE).write_text("[]")
        with pytest.raises(ValueError, match=r"threshold.json is not what the evaluator threshold wrote"):
            kept_threshold(trained)
    finally:
        (run / FILE).unlink()
    assert kept_threshold(trained) is None


def test_a_threshold_is_for_two_classes_or_several(run, text_run, capsys):
    for folder in (run, text_run("number")):
        assert evaluate([str(folder), "threshold"]) != 0
        assert "a threshold is for two classes, or for any number of classes an example" in capsys.readouterr().err
    assert evaluate([str(text_run("classes")), "threshold"]) == 0
    (text_run("classes") / FILE).unlink()


def test_decisions_follow_the_threshold():
    two, several = Classes(("a", "b")), Classes(("a", "b"), several=True)
    found = np.array([[0.7, 0.3], [0.2, 0.8]])
    assert decided(two, found) == [0, 1]
    assert decided(two, found, 0.25) == [1, 1]
    assert decided(several, found) == [(0,), (1,)]
    assert decided(several, found, 0.25) == [(0, 1), (1,)]
