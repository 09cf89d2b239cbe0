import dataclasses
import logging

import chex
import numpy as np
import pytest
import torch
import transformers

from jaxnlp.convert.folders import PretrainedError
from jaxnlp.convert.pretrained_image_encoder import read_image_encoder, save_image_encoder
from jaxnlp.convert.tensors import WeightsError
from jaxnlp.models.vit import ViTConfig
from tests.image_folders import CLASSES, change, for_transformers, make_model, write_folder, write_images

IMAGES = np.random.default_rng(0).integers(0, 256, (3, 12, 12, 3), dtype=np.uint8)


def outputs(held, images=IMAGES):
    model = held.config.build(held.processor)
    return np.asarray(model.apply({"params": held.params}, images))


def pixels(held, images=IMAGES):
    normalised = (images / 255.0 - held.processor.mean) / held.processor.stddev
    return torch.tensor(normalised.astype(np.float32)).permute(0, 3, 1, 2)


@pytest.mark.parametrize("pooler", [True, False], ids=["pooler", "no pooler"])
@pytest.mark.parametrize("kind", ["ViTModel", pytest.param("DeiTModel", marks=pytest.mark.thorough)])
def test_a_model_without_a_head_gives_the_vectors_of_transformers_and_goes_out_again(kind, pooler, tmp_path):
    model, _ = write_folder(tmp_path / "in", kind, pooler=pooler, pooler_output_size=10)
    held = read_image_encoder(tmp_path / "in")
    assert (held.processor.classes, held.config.pooler_width) == ((), 10 if pooler else None)
    with torch.no_grad():
        found = model(pixels(held))
    expected = found.pooler_output if pooler else found.last_hidden_state[:, 0]
    np.testing.assert_allclose(outputs(held), expected.numpy(), atol=1e-5)
    assert save_image_encoder(tmp_path / "out", held) == kind
    again = read_image_encoder(tmp_path / "out")
    assert (again.config, again.processor) == (held.config, held.processor)
    chex.assert_trees_all_equal(again.params, held.params)
    read = type(model).from_pretrained(tmp_path / "out", add_pooling_layer=pooler)
    for name, tensor in model.state_dict().items():
        assert torch.equal(read.state_dict()[name], tensor), name


def test_a_classifier_is_read_without_its_head(tmp_path):
    model, _ = write_folder(tmp_path)
    held = read_image_encoder(tmp_path, ignore=("classifier.",))
    assert held.processor.classes == ()
    with torch.no_grad():
        expected = model.vit(pixels(held)).last_hidden_state[:, 0].numpy()
    np.testing.assert_allclose(outputs(held), expected, atol=1e-5)


@pytest.mark.parametrize("family", ["ViT", pytest.param("DeiT", marks=pytest.mark.thorough)])
def test_weights_of_masked_image_modelling_are_read_without_their_decoder(family, tmp_path):
    model, _ = write_folder(tmp_path, f"{family}ForMaskedImageModeling", encoder_stride=4)
    with pytest.raises(WeightsError, match=r"--ignore decoder\."):
        read_image_encoder(tmp_path)
    held = read_image_encoder(tmp_path, ignore=("decoder.",))
    with torch.no_grad():
        expected = model.base_model(pixels(held)).last_hidden_state[:, 0].numpy()
    np.testing.assert_allclose(outputs(held), expected, atol=1e-5)


KINDS = ["ViTForImageClassification", "DeiTForImageClassificationWithTeacher"]


@pytest.mark.thorough
@pytest.mark.parametrize("size", [20, pytest.param(8, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("kind", KINDS)
def test_images_of_another_size_have_the_interpolated_positions_of_transformers(kind, size, tmp_path, caplog):
    model, _ = write_folder(tmp_path / "in", kind)
    sizes = {"size": {"height": size, "width": size}, "crop_size": {"height": size, "width": size}}
    change(tmp_path / "in", "preprocessor_config.json", **sizes)
    with caplog.at_level(logging.WARNING):
        held = read_image_encoder(tmp_path / "in")
    assert f"images have {size} x {size} pixels by preprocessor_config.json, but 12 x 12 by config.json" in caplog.text
    processor = transformers.AutoImageProcessor.from_pretrained(tmp_path / "in", backend="pil")
    files = write_images(tmp_path / "images")
    batch = processor([for_transformers(file) for file in files], return_tensors="pt")
    assert batch["pixel_values"].shape[2:] == (size, size)
    with torch.no_grad():
        expected = model(**batch, interpolate_pos_encoding=True).logits.numpy()
    np.testing.assert_allclose(outputs(held, held.processor(files)["images"]), expected, atol=1e-5)
    save_image_encoder(tmp_path / "out", held)
    again = type(model).from_pretrained(tmp_path / "out")
    assert again.config.image_size == size
    with torch.no_grad():
        np.testing.assert_allclose(again(**batch).logits.numpy(), expected, atol=1e-5)


def test_a_size_that_the_patch_does_not_divide_is_refused(tmp_path):
    write_folder(tmp_path)
    change(tmp_path, "preprocessor_config.json", size={"height": 14, "width": 14})
    with pytest.raises(PretrainedError, match=r"model.patch must divide the size of the images, 14 pixels, got 4"):
        read_image_encoder(tmp_path)


def test_classes_of_one_name_are_told_apart(tmp_path):
    write_folder(tmp_path / "in", id2label={0: "crane", 1: "dog", 2: "crane"})
    held = read_image_encoder(tmp_path / "in")
    assert held.processor.classes == ("crane", "dog", "crane (2)")
    save_image_encoder(tmp_path / "out", held)
    assert read_image_encoder(tmp_path / "out").processor == held.processor


def test_classes_without_names_have_those_of_transformers(tmp_path):
    write_folder(tmp_path)
    change(tmp_path, "config.json", id2label=None, label2id=None)
    assert read_image_encoder(tmp_path).processor.classes == ("LABEL_0", "LABEL_1", "LABEL_2")


def test_folders_without_an_image_processor_or_weights_are_refused(tmp_path):
    make_model().save_pretrained(tmp_path)
    with pytest.raises(PretrainedError, match=r"has no preprocessor_config\.json"):
        read_image_encoder(tmp_path)
    write_folder(tmp_path)
    (tmp_path / "processor_config.json").write_text('{"feature_extractor": {}}')
    with pytest.raises(PretrainedError, match=r"processor_config\.json: not supported: unknown settings: feature_"):
        read_image_encoder(tmp_path)
    (tmp_path / "processor_config.json").unlink()
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(PretrainedError, match=r"has no weights: neither"):
        read_image_encoder(tmp_path)


def test_a_head_of_one_class_is_refused(tmp_path):
    write_folder(tmp_path, id2label={0: "price"})
    with pytest.raises(PretrainedError, match=r"config.json: images: expected at least two classes .*, got price"):
        read_image_encoder(tmp_path)


def test_a_folder_that_is_not_empty_is_not_written_and_other_models_are_not(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    write_folder(tmp_path / "in")
    held = read_image_encoder(tmp_path / "in")
    for path in (tmp_path / "in", "~/in"):
        with pytest.raises(FileExistsError, match=f"{tmp_path / 'in'} exists and is not empty"):
            save_image_encoder(path, held)

    @dataclasses.dataclass(frozen=True)
    class Other(ViTConfig):
        pass

    fields = {field.name: getattr(held.config, field.name) for field in dataclasses.fields(held.config)}
    with pytest.raises(WeightsError, match="Transformers' ViT does not support a Other"):
        save_image_encoder(tmp_path / "out", held._replace(config=Other(**fields)))
    assert not (tmp_path / "out").exists()
    assert held.processor.classes == CLASSES
