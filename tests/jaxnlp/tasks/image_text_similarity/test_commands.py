"""The verbs of a folder with a CLIP."""

import json

import numpy as np
import pytest
import transformers

import jaxnlp
from jaxnlp.__main__ import main
from tests.image_folders import for_transformers

CLASSES = ["a big dog", "the cat sat", "der hund"]


@pytest.mark.thorough
def test_predict_prints_the_text_that_describes_an_image(tiny, files, capsys):
    folder, _, run = tiny
    options = ["--classes", *CLASSES, "--template", "on {} ."]
    assert main(["predict", str(folder), *map(str, files), *options, "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    found = run.predict(files, CLASSES, template="on {} .")
    assert [row["class"] for row in rows] == [one.label for one in found]
    assert main(["predict", str(folder), str(files[0])]) == 2
    assert 'give the classes as texts, such as --classes "a photo of a cat"' in capsys.readouterr().err


def test_embed_prints_writes_and_compares_vectors_of_texts_and_images(tiny, files, tmp_path, capsys):
    folder, _, run = tiny
    out, expected = tmp_path / "vectors.npy", run.embed(["a cat", "", *files])
    images = ["--images", str(files[0].parent)]
    assert main(["embed", str(folder), "a cat", "", "--images", *map(str, files)]) == 0
    printed = capsys.readouterr()
    rows = [json.loads(line) for line in printed.out.splitlines()]
    np.testing.assert_array_equal(np.array([row["vector"] for row in rows], np.float32), expected)
    assert [row.get("file", row.get("text")) for row in rows] == ["a cat", "", *map(str, files)]
    assert "blank" in printed.err
    assert main(["embed", str(folder), "a cat", *images, "--out", str(out), "--similarities"]) == 0
    written, lines = np.load(out), capsys.readouterr().out.splitlines()
    np.testing.assert_array_equal(written[0], expected[0])
    cosine = written[0] @ written[1] / np.linalg.norm(written[0]) / np.linalg.norm(written[1])
    assert float(lines[0].split("\t")[1]) == pytest.approx(cosine, abs=1e-4)
    assert main(["embed", str(folder), "a cat", "--pooling", "mean"]) == 2
    assert "--pooling does not apply" in capsys.readouterr().err
    assert main(["embed", str(folder), "a cat", str(files[0])]) == 2
    assert f"{files[0]} is an image file; give it after --images" in capsys.readouterr().err


@pytest.mark.thorough
@pytest.mark.parametrize("classes", [CLASSES, pytest.param([], marks=pytest.mark.thorough)])
def test_attention_writes_a_page_with_the_texts_that_describe_images(classes, tiny, files, tmp_path, capsys):
    folder, _, run = tiny
    page, options = tmp_path / "page.html", ["--classes", *classes] if classes else []
    assert main(["attention", str(folder), str(files[0]), *options, "--out", str(page)]) == 0
    assert files[0].name in page.read_text()
    assert not classes or run.predict(files[0], CLASSES).label in page.read_text()
    assert main(["attention", str(folder), str(files[0]), "--text", "a cat"]) == 2
    assert "a page shows a text or images" in capsys.readouterr().err
    for shown in ([str(files[0])], ["--text", "a cat"]):
        assert main(["attention", str(folder), *shown, "--template", "a {}"]) == 2
        assert "--template applies to the classes" in capsys.readouterr().err


def test_models_of_texts_embed_and_say_why_they_do_nothing_with_images(texts_only, files, capsys):
    folder, _, run = texts_only
    assert main(["embed", str(folder), "a cat"]) == 0
    row = json.loads(capsys.readouterr().out)
    np.testing.assert_array_equal(np.array(row["vector"], np.float32), run.embed("a cat"))
    page = files[0].parent / "text.html"
    assert main(["attention", str(folder), "--text", "A big dog", "--out", str(page)]) == 0
    assert "dog" in page.read_text()
    page.unlink()
    assert capsys.readouterr().out
    for verb, options in (
        ("embed", ["a cat", "--images", str(files[0])]),
        ("predict", [str(files[0]), "--classes", *CLASSES]),
        ("attention", [str(files[0])]),
    ):
        assert main([verb, str(folder), *options]) == 2
        captured = capsys.readouterr()
        assert "this model reads only texts" in captured.err
        assert not captured.out


def test_export_writes_a_folder_for_transformers(tiny, files, tmp_path, capsys):
    folder, _, run = tiny
    assert main(["export", str(folder), str(tmp_path / "out")]) == 0
    assert "transformers.CLIPModel.from_pretrained reads it, and jaxnlp" in capsys.readouterr().out
    again = jaxnlp.load_pretrained(tmp_path / "out")
    np.testing.assert_array_equal(again.embed(["a cat", files[0]]), run.embed(["a cat", files[0]]))


@pytest.mark.thorough
def test_the_pipeline_of_transformers_gives_the_same_scores(tiny, files, tmp_path):
    folder, _, run = tiny
    assert main(["export", str(folder), str(tmp_path / "out")]) == 0
    opaque = [file for file in files if "alpha" not in file.name]
    pipeline = transformers.pipeline("zero-shot-image-classification", str(tmp_path / "out"))
    for file, one in zip(opaque, run.predict(opaque, CLASSES, template="on {} ."), strict=True):
        found = pipeline(for_transformers(file), candidate_labels=CLASSES, hypothesis_template="on {} .")
        scores = {each["label"]: each["score"] for each in found}
        np.testing.assert_allclose([one.probabilities[name] for name in scores], [*scores.values()], atol=1e-4)
