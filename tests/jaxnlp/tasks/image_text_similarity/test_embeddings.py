"""Vectors of texts and images are those of Transformers."""

import numpy as np
import pytest
import torch
from PIL import Image

from jaxnlp.tasks.classification import vectors
from jaxnlp.tasks.image_text_similarity import embeddings
from jaxnlp.tasks.image_text_similarity.embeddings import exports
from tests.clip_folders import IMAGES, tokenizer
from tests.encoder_folders import TEXTS
from tests.image_folders import for_transformers


def test_the_vectors_of_texts_and_images_are_those_of_transformers_in_one_list(tiny, files):
    _, model, run = tiny
    with torch.no_grad():
        tokens = tokenizer()(TEXTS[:3], padding=True, truncation=True, max_length=24, return_tensors="pt")
        texts = model.get_text_features(**tokens).pooler_output.numpy()
        pixels = IMAGES([for_transformers(file) for file in files], return_tensors="pt")["pixel_values"]
        images = model.get_image_features(pixel_values=pixels).pooler_output.numpy()
    found = run.embed([TEXTS[0], *files, TEXTS[1], " ", TEXTS[2]])
    expected = np.concatenate([texts[:1], images, texts[1:2], np.zeros((1, 8), np.float32), texts[2:]])
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert found.dtype == np.float32
    assert run.embed([]).shape == (0, 8)
    np.testing.assert_allclose(run.embed(TEXTS[0]), texts[0], atol=1e-5)
    picture = Image.open(next(file for file in files if "grey.png" in file.name or "bits" in file.name))
    np.testing.assert_allclose(run.embed(picture), run.embed([picture])[0], atol=1e-6)


def test_the_name_of_an_image_file_is_no_text_but_other_names_are(tiny, files):
    _, _, run = tiny
    with pytest.raises(ValueError, match=r"is an image file; give pathlib.Path\('.*'\), because a str is a text"):
        run.embed([str(files[0])])
    for text in ("no such file.png", "~no-such-user/file.png", f"{'long ' * 60}file.png"):
        assert run.embed(text).shape == (8,)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (None, "expected texts or images, got NoneType at index 2; replace missing values"),
        (float("nan"), "expected texts or images, got float at index 2; replace missing values"),
        ("\ud800", "got half of a surrogate pair at index 2"),
        (3, r"an image must be a path, .* got int\nIt is the input with the index 2"),
    ],
)
def test_an_input_that_cannot_be_read_is_named_by_its_index_among_all(tiny, wrong, message):
    with pytest.raises(ValueError, match=message):
        tiny[2].embed(["A cat", np.zeros((12, 12, 3), np.uint8), wrong])


def test_a_model_of_texts_says_that_it_reads_no_images(texts_only, files):
    _, _, run = texts_only
    with pytest.raises(ValueError, match="this model reads only texts, and has no encoder of images"):
        run.embed(files[0])
    assert run.embed("A cat").shape == (8,)


def test_long_texts_are_cut_before_the_end_and_counted(tiny, caplog):
    _, model, run = tiny
    tokens = tokenizer()(TEXTS[2] * 3, truncation=True, max_length=24, return_tensors="pt")
    with torch.no_grad():
        expected = model.get_text_features(**tokens).pooler_output[0].numpy()
    np.testing.assert_allclose(run.embed(TEXTS[2] * 3), expected, atol=1e-5)
    assert "24" in caplog.text


@pytest.mark.thorough
def test_warm_programs_are_not_compiled_again(tiny, files):
    _, _, run = tiny
    run.warm_up("embed")
    programs = embeddings._compute, vectors._compute
    before = [program._cache_size() for program in programs]
    run.embed(["A cat", files[0], *TEXTS[:2]])
    assert [program._cache_size() for program in programs] == before
    assert min(before) > 0


def test_each_encoder_has_a_program(tiny, texts_only):
    assert [*exports(texts_only[2])] == ["embed"]
    assert {name: set(one.inputs) for name, one in exports(tiny[2]).items()} == {
        "embed": {"tokens"},
        "embed_images": {"images"},
    }


@pytest.mark.thorough
def test_exported_programs_give_the_same_vectors(tiny, files):
    _, _, run = tiny
    programs = exports(run)
    arrays = run.processor(TEXTS[:2], files[:2])
    found = [np.asarray(programs[name].apply(run.params, arrays)["vectors"]) for name in ("embed", "embed_images")]
    np.testing.assert_allclose(np.concatenate(found), run.embed([*TEXTS[:2], *files[:2]]), atol=1e-5)
