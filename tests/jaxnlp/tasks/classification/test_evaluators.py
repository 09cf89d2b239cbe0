import csv
import io
import json
import types

import jax
import numpy as np
import pytest
import scipy.special

from data.images import Images
from jaxnlp.__main__ import main as jaxnlp_main
from jaxnlp.corpus import SourceRows, Split
from jaxnlp.images.processor import ImageProcessor
from jaxnlp.runs import load_run
from jaxnlp.targets import OneClass
from jaxnlp.tasks.classification.evaluators import LIT, Validation, _error_sections, _rollout_section, predictions_table
from jaxnlp.text.classifier_processor import LabelledText, TextClassifierProcessor, one_part
from jaxnlp.text.wordpiece import SPECIAL, WordPieceVocabulary
from train import evaluate


def test_digits_are_learned_and_every_metric_is_measured(run):
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    (row,) = [row for row in rows if row["split"] == "validation"]
    assert row["accuracy"] > 0.6
    assert 0.0 <= row["calibration_error"] <= 100.0
    assert {"3/f1", "macro_f1", "balanced_accuracy", "roc_auc", "average_precision"} <= row.keys()
    sections = [json.loads(line)["name"] for line in (run / "sections.jsonl").read_text().splitlines()]
    assert sections == [
        *("Confusion matrix", "ROC curves", "Precision and recall", "Reliability"),
        *("Most confident errors", "Most confident errors: images", "Attention of predictions"),
    ]


@pytest.mark.thorough
def test_predictions_are_in_the_order_of_the_examples(run):
    found = evaluate.score(run, Validation(), evaluate.Options()).evaluation
    table = list(csv.DictReader(io.StringIO(found.predictions["predictions.csv"])))
    assert len(table) == found.metrics["accuracy"].count == 359
    assert list(table[0])[:3] == ["image", "label", "predicted"]
    right = np.mean([row["label"] == row["predicted"] for row in table])
    assert found.metrics["accuracy"].value == pytest.approx(right)
    trained, examples = load_run(run), Images(validation_fraction=0.2).load(0).split("validation").examples
    logits = jax.jit(trained.model.apply)(
        {"params": trained.params}, np.stack([example.image for example in examples[:5]])
    )
    shares = scipy.special.softmax(logits, axis=-1)
    for row, expected in zip(table[:5], shares, strict=True):
        np.testing.assert_allclose([float(row[f"probability of {digit}"]) for digit in range(10)], expected, atol=1e-5)


def test_images_of_all_classes_are_lit_where_they_are_in_the_order_of_their_classes():
    seen = []

    def rollout(params, images):
        seen.extend(images[:, 0, 0, 0].tolist())
        return np.full((len(images), 2, 2), 0.25)

    examples = [types.SimpleNamespace(image=np.full((4, 4, 1), 60 * (number // 10), np.uint8)) for number in range(40)]
    scoring = types.SimpleNamespace(
        trained=types.SimpleNamespace(model=types.SimpleNamespace(attention_rollout=rollout)),
        split=types.SimpleNamespace(examples=examples),
        once=lambda make, *arguments: rollout,
        whole_params=dict,
    )
    assert _rollout_section(scoring).name == "Attention of predictions"
    assert len(seen) == LIT
    assert set(seen) == {0, 60, 120, 180}
    scoring.split.examples = examples[:3]
    _rollout_section(scoring)
    assert len(seen) == LIT + 3


@pytest.mark.thorough
@pytest.mark.parametrize("labelled", [True, False])
def test_predictions_of_a_table_have_all_its_rows_and_columns(text_run, tmp_path, labelled):
    """An id that is not read, a row without a text, and a column whose name is taken."""
    rows = [["7", "the painting, cat", "x"], ["8", " ", "y"], ["9", "the match sat", ""], ["10", "the cat", "z"]]
    labels = ["arts", "sport", "sport", "arts"]
    header = ["id", "text", "predicted"]
    table = [[*row, label] if labelled else row for row, label in zip(rows, labels, strict=True)]
    with (tmp_path / "mine.csv").open("w", newline="") as file:
        csv.writer(file).writerows([[*header, "label"] if labelled else header, *table])
    files = ["--file", str(tmp_path / "mine.csv"), "--predictions", str(tmp_path / "out.csv")]
    assert jaxnlp_main(["evaluate", str(text_run("class")), *files]) == 0
    with (tmp_path / "out.csv").open(newline="") as file:
        names, *found = csv.reader(file)
    width = len(table[0])
    assert names == [
        *([*header, "label"] if labelled else header),
        *("predicted 2", "probability of arts", "probability of sport"),
    ]
    assert [row[:width] for row in found] == table
    assert found[1][width:] == ["", "", ""]
    for row in (found[0], *found[2:]):
        values = list(map(float, row[width + 1 :]))
        assert sum(values) == pytest.approx(1.0, abs=1e-5)
        assert row[width] == ["arts", "sport"][int(np.argmax(values))]


@pytest.mark.sweep(1)
@pytest.mark.parametrize("encoding", ["utf-8", "cp1252"])
def test_rows_without_a_label_are_predicted_but_not_scored(text_run, tmp_path, capsys, encoding):
    table = 'text;label\nthe painting, cat;arts\n"the match\n\u201csat\u201d";\nthe cat;sport\n ;\nthe sea;\n'
    (tmp_path / "mine.csv").write_bytes(table.encode(encoding))
    run, file = str(text_run("class")), str(tmp_path / "mine.csv")
    options = ["--file", file, "--data.delimiter=;", f"--data.encoding={encoding}"]
    assert jaxnlp_main(["evaluate", run, *options, "--predictions", str(tmp_path / "out.csv")]) == 0
    assert f"{file} accuracy " in (shown := capsys.readouterr().out)
    assert "(2 texts)" in shown
    with (tmp_path / "out.csv").open(newline="") as read:
        names, *found = csv.reader(read)
    assert names[:3] == ["text", "label", "predicted"]
    assert [row[1] for row in found] == ["arts", "", "sport", "", ""]
    predicted = [row[2] for row in found]
    assert [bool(one) for one in predicted] == [True, True, True, False, True]
    assert jaxnlp_main(["predict", run, *options]) == 0
    assert [line.split("\t")[0] for line in capsys.readouterr().out.splitlines()] == predicted


def test_lines_without_text_keep_their_places_among_predictions():
    processor = TextClassifierProcessor(WordPieceVocabulary.of_pieces(SPECIAL), 8, one_part(OneClass(("a", "b"))))
    examples = [LabelledText("1", ("x",), 0), LabelledText("3", ("y",), None)]
    split = Split(examples=examples, source=SourceRows([0, 2], ["1", "2", "3"]))
    shares = np.array([[0.75, 0.25], [0.25, 0.75]])
    assert predictions_table(processor, split, shares, None).splitlines() == [
        "row,text,label,predicted,probability of a,probability of b",
        "1,x,a,a,0.750000,0.250000",
        "2,,,,,",
        "3,y,,b,0.250000,0.750000",
    ]
    rows = predictions_table(processor, Split(examples=examples), shares, None).splitlines()
    assert [row.partition(",")[0] for row in rows] == ["row", "1", "3"]


def test_without_errors_the_table_of_an_earlier_evaluation_is_replaced():
    image = types.SimpleNamespace(image=np.zeros((8, 8, 1), np.uint8), label=0)
    processor = ImageProcessor(8, 1, (0.5,), (0.5,), ("a", "b"))
    sections = _error_sections(processor, [image], np.array([[0.9, 0.1]]), [])
    assert [section.name for section in sections] == ["Most confident errors", "Most confident errors: images"]
    assert all(section.content.rows == (("none",),) for section in sections)
