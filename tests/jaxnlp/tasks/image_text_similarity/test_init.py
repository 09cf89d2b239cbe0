"""Which folders are models of images and texts, and what other models take from them."""

import dataclasses

import jax
import numpy as np
import pytest

import jaxnlp
from data.number_words import NumberWords
from jaxnlp.models.classifier import HEAD
from jaxnlp.models.vit import ViTConfig
from jaxnlp.nn.compute import EXACT
from jaxnlp.tasks.classification import Classification
from jaxnlp.tasks.image_text_similarity import ImageTextSimilarity
from tests.clip_folders import write_folder
from tests.jaxnlp.tasks.classification.test_export_command import train, write_classes


def test_each_model_type_has_its_task(tiny, texts_only, tmp_path):
    assert [run.task for _, _, run in (tiny, texts_only)] == [ImageTextSimilarity()] * 2
    write_folder(tmp_path, "CLIPVisionModelWithProjection")
    assert jaxnlp.load_pretrained(tmp_path).task == Classification()


def test_a_classifier_of_images_begins_with_the_encoder_of_images(tiny):
    _, _, run = tiny
    mine = ViTConfig(dropout_rate=0.2, compute=EXACT)
    adopted = mine.adopt(run)
    expected = dataclasses.replace(run.model.config.image, dropout_rate=0.2, projection_width=None)
    assert adopted.config == expected
    assert adopted.processor == run.processor.images
    kept = {name for name in run.params["image"] if name not in ("projection", "positions")}
    assert adopted.params.keys() == kept
    jax.tree.map(np.testing.assert_array_equal, adopted.params, {name: run.params["image"][name] for name in kept})
    assert any("its projection is not used" in note for note in adopted.notes)
    assert any(note.endswith("1 layers, 16 wide, 2 heads") for note in adopted.notes)


def test_such_models_are_not_trained(tiny):
    with pytest.raises(ValueError, match=r"are not trained here, got CLIPConfig; a classifier of images begins with"):
        ImageTextSimilarity().check(tiny[2].model.config, NumberWords())
    assert ImageTextSimilarity().evaluators == {}


@pytest.mark.thorough
def test_a_classifier_is_trained_from_a_folder_and_says_that_transformers_has_no_such_class(tiny, tmp_path, capsys):
    folder, _, before = tiny
    images = write_classes(tmp_path / "images")
    steps = ["--total-steps", "1", "--evaluate-every-steps", "1", "--checkpoint-every-steps", "1"]
    assert train("vit_finetune", folder, images, tmp_path / "run", *steps, "--optimizer.learning-rate", "1e-9") == 0
    run = jaxnlp.load_run(tmp_path / "run", checkpoint="latest")
    assert HEAD in run.params
    for name in ("positions", "class_token"):
        np.testing.assert_allclose(run.params[name], before.params["image"][name], atol=1e-6)
    assert jaxnlp.__main__.main(["export", str(tmp_path / "run"), str(tmp_path / "out")]) == 2
    assert "CLIP image encoder does not support a head that reads the class token" in capsys.readouterr().err
