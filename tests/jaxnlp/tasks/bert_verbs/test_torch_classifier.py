import dataclasses
import importlib.util
import re
import runpy
import subprocess
import sys
from typing import get_args

import numpy as np
import pytest
import torch
import transformers
from sentence_transformers import SentenceTransformer
from transformers import dynamic_module_utils

from jaxnlp.models.text_vectors import Pooling
from jaxnlp.targets import Number, OneClass, SeveralClasses
from jaxnlp.tasks.bert_verbs.commands import Export
from jaxnlp.tasks.bert_verbs.torch_classifier import torch_classifier
from tests.jaxnlp.tasks.conftest import ENCODER

TEXTS = ["the cats sat on the mat .", "a big dog", "fish " * 60]


def loaded(folder):
    """The program of an exported folder as a module."""
    spec = importlib.util.spec_from_file_location("classify", folder / "classify.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


POOLINGS = ["weightedmean", "lasttoken", "max", "mean_sqrt_len_tokens", "mean", "cls"]


@pytest.fixture(autouse=True)
def modules(tmp_path, monkeypatch):
    """Transformers copies programs to a folder of this test."""
    monkeypatch.setattr(dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "transformers_modules"]:
        del sys.modules[name]


def test_each_pooling_without_a_class_of_transformers_has_a_program():
    assert {*POOLINGS} == {*get_args(Pooling)} - {"pooler"}


@pytest.mark.thorough
@pytest.mark.parametrize("pooling", POOLINGS)
def test_the_program_gives_the_models_probabilities(make_classifier, tmp_path, pooling):
    trained = make_classifier(pooling=pooling)
    Export(tmp_path / "out")(trained)
    module = loaded(tmp_path / "out")
    assert list(trained.processor.targets.names) == module.NAMES
    expected = [list(found.probabilities.values()) for found in trained.predict(TEXTS)]
    np.testing.assert_allclose(module.classify(TEXTS).numpy(), expected, atol=1e-5)
    assert np.ptp(expected, axis=0).max() > 1e-2


def assert_refused(folder):
    """Transformers does not read a folder into a class that would add a random head."""
    for auto in (
        transformers.AutoModelForSequenceClassification,
        transformers.AutoModelForTokenClassification,
        transformers.AutoModelForMultipleChoice,
        transformers.BertForSequenceClassification,
    ):
        with pytest.raises(RuntimeError, match="mismatch"):
            auto.from_pretrained(folder)
    for task in ("text-classification", "token-classification"):
        with pytest.raises(ValueError, match="Could not load model"):
            transformers.pipeline(task, str(folder))


@pytest.mark.sweep(1)
@pytest.mark.parametrize("texts", [1, 2])
def test_transformers_runs_the_program_or_refuses_the_folder(make_classifier, tmp_path, texts, caplog):
    trained, folder = make_classifier(pooling="mean", texts=texts), tmp_path / "out"
    Export(folder)(trained)
    assert_refused(folder)
    caplog.clear()
    rows = [("the cats sat", "a dog"), ("a big dog", "the mat ate a fish"), ("a big dog " * 40, "the mat")]
    given = [dict(zip(("text", "text_pair"), row[:texts], strict=False)) for row in rows]
    run = transformers.pipeline("text-classification", str(folder), truncation=True, trust_remote_code=True)
    expected = trained.predict(*map(list, list(zip(*rows, strict=True))[:texts]))
    for found, one in zip(run(given, top_k=None), expected, strict=True):
        assert {row["label"]: row["score"] for row in found} == pytest.approx(one.probabilities, abs=1e-5)
        assert found[0]["label"] == one.label
    assert "not supported" not in caplog.text
    model, report = transformers.AutoModelForSequenceClassification.from_pretrained(
        folder, trust_remote_code=True, output_loading_info=True
    )
    assert not any(report.values())
    inputs = transformers.AutoTokenizer.from_pretrained(folder)(*rows[0][:texts], return_tensors="pt")
    with torch.no_grad():
        shares = model(**inputs).logits.softmax(dim=-1)[0].tolist()
    assert shares == pytest.approx(list(expected[0].probabilities.values()), abs=1e-5)


def test_a_program_for_an_encoder_without_a_pooler_reads_all_weights(make_classifier, tmp_path):
    encoder = dataclasses.replace(ENCODER, use_pooler=False)
    Export(tmp_path / "out")(make_classifier(pooling="cls", encoder=encoder))
    model = loaded(tmp_path / "out").BertForSequenceClassification
    assert not any(model.from_pretrained(tmp_path / "out", output_loading_info=True)[1].values())


@pytest.mark.parametrize("fields", [{"texts": 2, "pairs": "apart"}, None], ids=["apart", "parts"])
def test_transformers_adds_no_random_head_to_heads_that_it_does_not_have(
    make_classifier, make_trained, tmp_path, fields
):
    trained = make_trained() if fields is None else make_classifier(pooling="mean", **fields)
    Export(tmp_path / "out")(trained)
    assert_refused(tmp_path / "out")
    with pytest.raises(RuntimeError, match="mismatch"):
        transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "out", trust_remote_code=True)


@pytest.mark.thorough
def test_sentence_transformers_computes_the_vectors_of_an_exported_classifier(make_classifier, tmp_path):
    trained = make_classifier(pooling="weightedmean")
    Export(tmp_path / "out")(trained)
    found = SentenceTransformer(str(tmp_path / "out"), device="cpu").encode(TEXTS, show_progress_bar=False)
    np.testing.assert_allclose(found, trained.embed(TEXTS), atol=1e-5)


def test_the_program_gives_the_probability_of_each_of_several_classes(make_classifier, tmp_path):
    trained = make_classifier(pooling="mean", targets=SeveralClasses(("a", "b", "c")))
    Export(tmp_path / "out")(trained)
    expected = [list(found.probabilities.values()) for found in trained.predict(TEXTS)]
    np.testing.assert_allclose(loaded(tmp_path / "out").classify(TEXTS).numpy(), expected, atol=1e-5)
    run = transformers.pipeline("text-classification", str(tmp_path / "out"), trust_remote_code=True)
    found = {row["label"]: row["score"] for row in run("a big dog", top_k=None)}
    assert found == pytest.approx(trained.predict("a big dog").probabilities, abs=1e-5)


@pytest.mark.thorough
def test_the_program_gives_numbers_on_the_scale_of_the_labels(make_classifier, tmp_path):
    trained = make_classifier(pooling="cls", targets=Number(-2.0, 7.0))
    Export(tmp_path / "out")(trained)
    expected = [[found.label] for found in trained.predict(TEXTS)]
    np.testing.assert_allclose(loaded(tmp_path / "out").classify(TEXTS).numpy(), expected, atol=1e-4)
    run = transformers.pipeline("text-classification", str(tmp_path / "out"), trust_remote_code=True)
    assert run("a big dog") == [{"label": "number", "score": pytest.approx(expected[1][0], abs=1e-4)}]
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


def test_the_program_takes_as_many_texts_as_the_model_reads(make_classifier, tmp_path, monkeypatch):
    for texts, wrong in ((1, ([],)), (2, ([], ["a"], ["a", "b", "c"]))):
        folder = tmp_path / str(texts)
        Export(folder)(make_classifier(texts=texts, pooling="mean"))
        with pytest.raises(TypeError, match="positional argument"):  # a text without its pair, a pair of one text
            loaded(folder).classify(*[["the cat"]] * (3 - texts))
        for words in wrong:
            monkeypatch.setattr(sys, "argv", ["classify.py", *words])
            with pytest.raises(SystemExit, match=r"usage: python classify\.py "):
                runpy.run_path(str(folder / "classify.py"), run_name="__main__")


@pytest.mark.parametrize(
    ("targets", "expected"), [(SeveralClasses(("a", "b")), r"(a|b|a, b|)"), (Number(0.0, 9.0), r"[\d.]+")]
)
def test_the_program_prints_several_classes_and_numbers(
    make_classifier, tmp_path, monkeypatch, capsys, targets, expected
):
    Export(tmp_path / "out")(make_classifier(pooling="mean", targets=targets))
    capsys.readouterr()
    program = str(tmp_path / "out" / "classify.py")
    monkeypatch.setattr(sys, "argv", [program, "the cat", " "])
    runpy.run_path(program, run_name="__main__")  # a process would import PyTorch again, which takes seconds
    assert re.fullmatch(expected + r"\tthe cat\n\t \n", capsys.readouterr().out)


@pytest.mark.thorough
def test_the_program_runs_by_itself(make_classifier, tmp_path):
    trained = make_classifier(pooling="mean", targets=OneClass(("it's", 'a "b" {c}', "d")))
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
