"""Embeddings of images, by a run and by weights of Transformers; those of texts have their tests with the BERTs."""

import json

import numpy as np
import pytest
import torch

import jaxnlp
from jaxnlp.__main__ import main
from jaxnlp.tasks.export.loader import load
from tests.image_folders import for_transformers, write_folder, write_images


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A ViTModel: its folder, its model and its image processor in Transformers, and ours."""
    folder = tmp_path_factory.mktemp("tiny") / "vit"
    return folder, *write_folder(folder, "ViTModel", pooler_output_size=10), jaxnlp.load_pretrained(folder)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_images(tmp_path_factory.mktemp("images") / "all")


def pooled(model, processor, files):
    with torch.no_grad():
        return model(**processor([for_transformers(file) for file in files], return_tensors="pt")).pooler_output.numpy()


def test_the_vectors_of_images_are_those_of_transformers(tiny, files):
    _, model, processor, run = tiny
    expected = pooled(model, processor, files)
    found = run.embed(files)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert found.std(axis=0).min() > 1e-3
    np.testing.assert_allclose(run.embed(files[0]), expected[0], atol=1e-5)
    assert run.embed([]).shape == (0, 10)
    run.warm_up("embed")


@pytest.mark.thorough
def test_the_vector_of_a_classifier_is_what_its_head_reads(tmp_path, files):
    write_folder(tmp_path, "DeiTForImageClassificationWithTeacher")
    run = jaxnlp.load_pretrained(tmp_path)
    encoder = jaxnlp.load_pretrained(tmp_path, ignore=("cls_classifier.", "distillation_classifier."))
    np.testing.assert_allclose(run.embed(files[:3]), encoder.embed(files[:3]), atol=1e-6)
    assert "embed" in dir(run)


def test_the_verb_prints_writes_and_compares_vectors(tiny, files, tmp_path, capsys):
    folder, _, _, run = tiny
    expected = run.embed(files)
    assert main(["embed", str(folder), *map(str, files)]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["file"] for row in rows] == list(map(str, files))
    np.testing.assert_array_equal(np.array([row["vector"] for row in rows], np.float32), expected)
    out = tmp_path / "vectors.npy"
    assert main(["embed", str(folder), str(files[0].parent), "--out", str(out), "--similarities"]) == 0
    np.testing.assert_array_equal(np.load(out), expected)
    first = capsys.readouterr().out.splitlines()[0].split("\t")
    assert (first[0], first[-1], len(first)) == ("1.0000", str(files[0]), len(files) + 1)


@pytest.mark.thorough
def test_the_programs_for_jax_give_the_vectors(tiny, files, tmp_path):
    folder, _, _, run = tiny
    assert main(["export", str(folder), str(tmp_path / "out"), "--format", "jax"]) == 0
    functions = load(tmp_path / "out")
    assert functions.keys() == {"embed"}  # there is no head
    found = functions["embed"](images=run.processor(files)["images"])["vectors"]
    np.testing.assert_allclose(found, run.embed(files), atol=1e-5)


def test_what_does_not_apply_or_cannot_be_read_is_refused(tiny, tmp_path):
    run = tiny[3]
    with pytest.raises(ValueError, match="pooling applies only to texts; remove it"):
        run.embed(["a.png"], pooling="mean")
    (tmp_path / "broken.png").write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"broken.png is not an image") as caught:
        run.embed([np.zeros((12, 12, 3), np.uint8), tmp_path / "broken.png"])
    assert caught.value.__notes__ == ["It is the input with the index 1."]


def test_texts_are_not_scaled(text_run, tmp_path, capsys):
    run = text_run("class")
    with pytest.raises(ValueError, match="resize applies only to images; remove it"):
        jaxnlp.load_run(run).embed(["the cat"], resize=True)
    assert main(["embed", str(run), "the cat", "--resize"]) == 2
    assert "--resize applies only to images; remove it" in capsys.readouterr().err
