import dataclasses
import json
import math

import chex
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

import jaxnlp
from jaxnlp.__main__ import main
from jaxnlp.runs import load_run
from jaxnlp.targets import Number
from jaxnlp.tasks.classification.predict import Prediction

TEXTS = ["the paint cat sat", "the run sat cat"]


@pytest.mark.thorough
def test_texts_have_the_class_and_the_probabilities_of_the_command(text_run, capsys, caplog):
    trained = load_run(text_run("class"))
    found = trained.predict(TEXTS)
    assert not caplog.messages
    assert trained.predict([TEXTS[1], "cat " * 999])[0].label == "sport"
    assert "1 of 2 texts was truncated to " in caplog.text
    assert [one.label for one in found] == ["arts", "sport"]
    assert main(["predict", str(text_run("class")), "--json", *TEXTS]) == 0
    for one, line in zip(found, capsys.readouterr().out.splitlines(), strict=True):
        assert one.probability == one.probabilities[one.label]
        assert one.probabilities == pytest.approx(json.loads(line)["probabilities"], abs=1e-6)
    assert trained.predict(TEXTS[0]).label == "arts"


@pytest.mark.thorough
def test_any_number_of_classes_and_numbers(text_run):
    several = load_run(text_run("classes")).predict(TEXTS)
    assert [one.label for one in several] == [("arts",), ("sport",)]
    (low,) = load_run(text_run("classes")).predict(["the cat"], threshold=0.01)
    assert set(low.label) <= set(low.probabilities)
    assert low.probability == min(low.probabilities[name] for name in low.label)
    with pytest.raises(ValueError, match=r"threshold must be a number in \(0, 1\), got 0.0"):
        load_run(text_run("classes")).predict(["the cat"], threshold=0.0)
    number = load_run(text_run("number")).predict(TEXTS[0])
    assert number.label == pytest.approx(1.5, abs=0.7)
    assert math.isnan(number.probability)
    assert number.probabilities == {}


def test_pairs_are_two_lists_or_two_texts_or_a_list_of_pairs(make_classifier):
    trained = make_classifier(texts=2, targets=Number(0.0, 2.0))
    both = trained.predict(["the cat", "fish"], ["a dog", "the mat"])
    assert trained.predict([("the cat", "a dog"), ("fish", "the mat")]) == both
    with pytest.raises(ValueError, match="replace missing values"):
        trained.predict([("the cat", "a dog"), ("fish", None)])
    assert trained.predict("fish", "the mat").label == pytest.approx(both[1].label, abs=1e-5)
    with pytest.raises(ValueError, match="expected a second text for each text; got 2 texts and 1 second texts"):
        trained.predict(["a", "b"], ["c"])
    assert [one.label is None for one in trained.predict(["a", "b"], ["c", ""])] == [False, True]


def test_images_are_files_or_arrays(run, digit):
    trained = load_run(run)
    image = np.asarray(Image.open(digit))
    found = trained.predict([digit, image[..., None]])
    assert isinstance(found[0], Prediction)
    assert found[0] == found[1] == trained.predict(image)
    assert found[0] == trained.predict(Image.open(digit)) == trained.predict(image / np.float32(255))
    assert [found[0]] * 2 == trained.predict([Image.fromarray(257 * image.astype(np.uint16)), jnp.asarray(image)])
    with pytest.raises(ValueError, match=r"the image has 9 x 9 pixels, but the model reads 8 x 8(.|\n)*the index 1"):
        trained.predict([image, np.zeros((9, 9))])
    with pytest.raises(FileNotFoundError, match=r"none.png does not exist"):
        trained.predict("none.png")
    with pytest.raises(ValueError, match="this model reads images, not pairs of texts"):
        trained.predict([digit], ["a text"])


def test_a_blank_text_keeps_its_place_and_no_inputs_have_no_predictions(text_run, tmp_path, capsys):
    run = text_run("class")
    trained = load_run(run)
    assert [one.label for one in trained.predict([TEXTS[0], "", " ", TEXTS[1]])] == ["arts", None, None, "sport"]
    assert (trained.predict("").label, trained.predict([])) == (None, [])
    (tmp_path / "texts.txt").write_text(f"\n{TEXTS[0]}\n \n")
    assert main(["predict", str(run), "--file", str(tmp_path / "texts.txt")]) == 0
    out, err = capsys.readouterr()
    assert [line.split("\t")[0] for line in out.splitlines()] == ["", "arts", ""]
    assert {line.count("\t") for line in out.splitlines()} == {2}
    assert f"note: 2 of 3 texts are blank and have no answer; the first is {tmp_path / 'texts.txt'}, line 1\n" in err
    assert main(["predict", str(run), "--json", ""]) == 0
    assert json.loads(capsys.readouterr().out) == {"text": "", "class": None, "probabilities": None}


def test_what_is_no_input_of_the_model_is_refused(text_run):
    trained = load_run(text_run("class"))
    for inputs, message in (
        (["a", 3], "expected texts, got int at index 1"),
        (3, "expected one input, or a list of them, got int"),
    ):
        with pytest.raises(ValueError, match=message):
            trained.predict(inputs)
    with pytest.raises(ValueError, match="resize applies only to images"):
        trained.predict("a", resize=True)


@pytest.mark.thorough
def test_a_trained_run_predicts_the_same_after_its_export(text_run, tmp_path, capsys):
    run = jaxnlp.load_run(text_run("class"))
    assert run.model.config.pooling == "mean"
    assert main(["export", str(text_run("class")), str(tmp_path / "bert")]) == 0
    again = jaxnlp.load_pretrained(tmp_path / "bert")
    exact = dataclasses.replace(run.model.config, compute=run.model.config.compute.exact)
    assert (again.task, again.processor, again.model.config) == (run.task, run.processor, exact)
    chex.assert_trees_all_equal(again.params, run.params)
    assert again.predict(TEXTS) == run.predict(TEXTS)
    capsys.readouterr()
    assert main(["predict", str(text_run("class")), *TEXTS]) == 0
    expected = capsys.readouterr().out
    assert main(["predict", str(tmp_path / "bert"), *TEXTS]) == 0
    assert capsys.readouterr().out == expected


@pytest.mark.parametrize("missing", [None, float("nan")])
def test_a_missing_text_is_named_by_its_index_in_the_list_that_was_given(text_run, missing):
    trained = load_run(text_run("class"))
    with pytest.raises(ValueError, match=r"expected texts, got .* at index 1500; replace missing values"):
        trained.predict([*["cat"] * 1500, missing])
