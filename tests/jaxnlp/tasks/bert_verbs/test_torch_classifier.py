import importlib.util
import re
import runpy
import subprocess
import sys

import numpy as np
import pytest

from jaxnlp.targets import Classes, Scale
from jaxnlp.tasks.bert_verbs.commands import Export
from jaxnlp.tasks.bert_verbs.torch_classifier import torch_classifier

TEXTS = ["the cats sat on the mat .", "a big dog", "fish " * 60]


def loaded(folder):
    """The program of an exported folder as a module."""
    spec = importlib.util.spec_from_file_location("classify", folder / "classify.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.sweep(1)
@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_the_program_gives_the_models_probabilities(make_classifier, tmp_path, pooling):
    trained = make_classifier(pooling=pooling)
    Export(tmp_path / "out")(trained)
    module = loaded(tmp_path / "out")
    assert list(trained.processor.targets.names) == module.NAMES
    expected = [list(found.probabilities.values()) for found in trained.predict(TEXTS)]
    np.testing.assert_allclose(module.classify(TEXTS).numpy(), expected, atol=1e-5)


def test_the_program_gives_the_probability_of_each_of_several_classes(make_classifier, tmp_path):
    trained = make_classifier(pooling="mean", targets=Classes(("a", "b", "c"), several=True))
    Export(tmp_path / "out")(trained)
    expected = [list(found.probabilities.values()) for found in trained.predict(TEXTS)]
    np.testing.assert_allclose(loaded(tmp_path / "out").classify(TEXTS).numpy(), expected, atol=1e-5)


def test_the_program_gives_numbers_on_the_scale_of_the_labels(make_classifier, tmp_path):
    trained = make_classifier(pooling="cls", targets=Scale(-2.0, 7.0))
    Export(tmp_path / "out")(trained)
    expected = [[found.label] for found in trained.predict(TEXTS)]
    np.testing.assert_allclose(loaded(tmp_path / "out").classify(TEXTS).numpy(), expected, atol=1e-4)
    assert np.ptp(expected) > 1e-3


def test_pairs_that_are_read_together(make_classifier, tmp_path, monkeypatch, capsys):
    trained = make_classifier(texts=2, pooling="mean")
    Export(tmp_path / "out")(trained)
    capsys.readouterr()
    monkeypatch.setattr(sys, "argv", ["classify.py", "the cat", "a dog", "fish", "the mat"])
    runpy.run_path(str(tmp_path / "out" / "classify.py"), run_name="__main__")
    two = zip(
        trained.predict(["the cat", "fish"], ["a dog", "the mat"]), ["the cat\ta dog", "fish\tthe mat"], strict=True
    )
    assert capsys.readouterr().out.splitlines() == [
        f"{one.label}\t{one.probability:.2f}\t{shown}" for one, shown in two
    ]
    expected = list(trained.predict("the cat", "a dog").probabilities.values())
    np.testing.assert_allclose(
        loaded(tmp_path / "out").classify(["the cat"], ["a dog"]).numpy()[0], expected, atol=1e-5
    )


@pytest.mark.parametrize(
    ("targets", "expected"), [(Classes(("a", "b"), several=True), r"(a|b|a, b|)"), (Scale(0.0, 9.0), r"[\d.]+")]
)
def test_the_program_prints_several_classes_and_numbers(
    make_classifier, tmp_path, monkeypatch, capsys, targets, expected
):
    Export(tmp_path / "out")(make_classifier(pooling="mean", targets=targets))
    capsys.readouterr()
    program = str(tmp_path / "out" / "classify.py")
    monkeypatch.setattr(sys, "argv", [program, "the cat"])
    runpy.run_path(program, run_name="__main__")  # a process would import PyTorch again, which takes seconds
    assert re.fullmatch(expected + r"\tthe cat\n", capsys.readouterr().out)


@pytest.mark.thorough
def test_the_program_runs_by_itself(make_classifier, tmp_path):
    trained = make_classifier(pooling="mean", targets=Classes(("it's", 'a "b" {c}', "d")))
    Export(tmp_path / "out")(trained)
    command = [sys.executable, str(tmp_path / "out" / "classify.py"), "the cat", "a dog"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    texts = ["the cat", "a dog"]
    found = zip(texts, trained.predict(texts), strict=True)
    assert shown == [f"{one.label}\t{one.probability:.2f}\t{text}" for text, one in found]


def test_other_models_have_no_program(make_trained, make_classifier):
    for trained in (
        make_trained(),
        make_classifier(pooling="pooler"),
        make_classifier(texts=2, pairs="apart"),
    ):
        assert torch_classifier(trained, 40) is None
