"""The encoder of images of a CLIP, alone, gives the vectors of Transformers and goes out again."""

import json

import chex
import jax
import numpy as np
import pytest
import torch
import transformers
from safetensors.numpy import load_file

from jaxnlp.convert.folders import PretrainedError
from jaxnlp.convert.image_encoder_weights import to_huggingface
from jaxnlp.convert.image_encoders import families
from jaxnlp.convert.pretrained_image_encoder import read_image_encoder, save_image_encoder
from tests.clip_folders import IMAGE_KINDS, IMAGES, write_folder
from tests.image_folders import change, for_transformers, write_images

FAMILY = families()["clip_vision_model"]
PIXELS = np.random.default_rng(0).integers(0, 256, (3, 12, 12, 3), dtype=np.uint8)


def normalised(held, images=PIXELS):
    pixels = (images / 255.0 - held.processor.mean) / held.processor.stddev
    return torch.tensor(pixels.astype(np.float32)).permute(0, 3, 1, 2)


def vectors_of(model, pixels, **options):
    found = model(pixels, **options)
    return found.image_embeds if hasattr(found, "image_embeds") else found.pooler_output


@pytest.mark.thorough
@pytest.mark.parametrize("kind", IMAGE_KINDS)
def test_values_and_gradients_are_those_of_transformers(kind, tmp_path):
    model = write_folder(tmp_path / "in", kind, hidden_act="gelu")
    held = read_image_encoder(tmp_path / "in")
    module = held.config.build(held.processor)

    @jax.jit
    def values_and_gradients(params):
        values, vjp = jax.vjp(lambda params: module.apply({"params": params}, PIXELS), params)
        return values, vjp(2.0 * values)[0]

    values, gradients = values_and_gradients(held.params)
    rival = vectors_of(model, normalised(held))
    rival.square().sum().backward()
    np.testing.assert_allclose(values, rival.detach().numpy(), atol=1e-5)
    model.save_pretrained(tmp_path / "g", state_dict={name: x.grad for name, x in model.named_parameters()})
    expected = load_file(tmp_path / "g" / "model.safetensors")
    found = to_huggingface(jax.device_get(gradients), held.config, FAMILY)
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        np.testing.assert_allclose(found[name], gradient, atol=1e-4 * max(1.0, np.abs(gradient).max()), err_msg=name)


@pytest.mark.parametrize("kind", IMAGE_KINDS)
def test_what_is_written_is_read_by_transformers_and_by_us_to_the_same_bits(kind, tmp_path):
    model = write_folder(tmp_path / "in", kind)
    held = read_image_encoder(tmp_path / "in")
    assert save_image_encoder(tmp_path / "out", held) == kind
    again = read_image_encoder(tmp_path / "out")
    assert (again.config, again.processor) == (held.config, held.processor)
    chex.assert_trees_all_equal(again.params, held.params)
    read, report = type(model).from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not any(report.values())
    for name, tensor in model.state_dict().items():
        assert torch.equal(read.state_dict()[name], tensor), name


def test_what_is_written_has_the_image_processor_of_clip(tmp_path):
    write_folder(tmp_path / "in", IMAGE_KINDS[0])
    save_image_encoder(tmp_path / "out", read_image_encoder(tmp_path / "in"))
    read = transformers.AutoImageProcessor.from_pretrained(tmp_path / "out", backend="pil")
    assert type(read) is type(IMAGES)
    files = [for_transformers(file) for file in write_images(tmp_path / "images")]
    np.testing.assert_array_equal(*(one(files, return_tensors="np")["pixel_values"] for one in (read, IMAGES)))


@pytest.mark.thorough
def test_images_of_another_size_have_the_interpolated_positions_of_transformers(tmp_path):
    model = write_folder(tmp_path, IMAGE_KINDS[0])
    change(tmp_path, "preprocessor_config.json", size={"shortest_edge": 20}, crop_size={"height": 20, "width": 20})
    held = read_image_encoder(tmp_path)
    images = np.random.default_rng(1).integers(0, 256, (2, 20, 20, 3), dtype=np.uint8)
    with torch.no_grad():
        expected = vectors_of(model, normalised(held, images), interpolate_pos_encoding=True).numpy()
    found = held.config.build(held.processor).apply({"params": held.params}, images)
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_act": "mish"}, "CLIP image encoder: hidden_act 'mish', expected 'quick_gelu' or"),
        ({"projection_dim": "8"}, "projection_dim '8', expected a whole number"),
        ({"qkv_bias": True}, "unknown settings: qkv_bias"),
    ],
    ids=str,
)
def test_settings_that_are_not_supported_are_refused_by_name(changes, message, tmp_path):
    write_folder(tmp_path, IMAGE_KINDS[0])
    change(tmp_path, "config.json", **changes)
    with pytest.raises(PretrainedError, match=message):
        read_image_encoder(tmp_path)


def test_every_setting_that_transformers_writes_is_known_and_has_its_default():
    config = transformers.CLIPVisionConfig()
    assert FAMILY.rules.problems(json.loads(config.to_json_string(use_diff=False))) == []
    defaults = {theirs: FAMILY.defaults[ours] for theirs, ours in FAMILY.fields.items()}
    assert defaults == {name: getattr(config, name) for name in defaults}
