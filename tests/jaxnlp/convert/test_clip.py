import dataclasses

import jax
import numpy as np
import pytest

from jaxnlp.convert.clip import from_huggingface, to_huggingface
from jaxnlp.convert.tensors import WeightsError
from jaxnlp.images.processor import ImageProcessor
from jaxnlp.models.clip import CLIP, CLIPConfig, TextEncoderConfig
from jaxnlp.models.vit import ViTConfig
from tests.random_parameters import random_parameters

SHAPE = {"num_layers": 1, "num_heads": 2, "width": 4, "feed_forward_width": 6, "activation": "quick_gelu"}
TEXT = TextEncoderConfig(context_length=3, projection_width=5, end_id=6, **SHAPE)
IMAGE = ViTConfig(patch=2, projection_width=5, embedding_norm=True, stem_bias=False, dropout_rate=0.0, **SHAPE)
CONFIG = CLIPConfig(TEXT, IMAGE)
IMAGES = ImageProcessor(4, 3, (0.5,) * 3, (0.5,) * 3, ())
TOKENS, PIXELS = np.zeros((1, 1), np.int32), np.zeros((1, 4, 4, 3), np.uint8)
NUMBERS = {"patches": 4, "channels": 3}


@pytest.fixture(scope="module")
def params():
    return random_parameters(CLIP(CONFIG, 7, 4, IMAGES.mean, IMAGES.stddev), TOKENS, PIXELS)


@pytest.fixture(scope="module")
def tensors(params):
    return to_huggingface(params, CONFIG)


def test_tensors_go_in_and_out_to_the_same_bits(params, tensors):
    jax.tree.map(np.testing.assert_array_equal, from_huggingface(tensors, CONFIG, 7, **NUMBERS), params)
    assert tensors["logit_scale"].shape == ()
    assert tensors["vision_model.embeddings.patch_embedding.weight"].shape == (4, 3, 2, 2)
    assert tensors["text_projection.weight"].shape == (5, 4)


@pytest.mark.parametrize("prefix", ["", "text_model."])
def test_names_of_an_encoder_of_texts_may_begin_with_the_prefix(prefix, params, tensors):
    own = {
        name if name.startswith("text_projection") else prefix + name.removeprefix("text_model."): tensor
        for name, tensor in tensors.items()
        if name.startswith("text_")
    }
    own[f"{prefix}embeddings.position_ids"] = np.arange(3)[None]  # older files have it
    jax.tree.map(np.testing.assert_array_equal, from_huggingface(own, TEXT, 7), params["text"])


def test_what_does_not_fit_is_named(tensors):
    changed = {
        **{name: tensor for name, tensor in tensors.items() if name != "visual_projection.weight"},
        "classifier.weight": np.zeros((2, 4), np.float32),
        "logit_scale": np.float32("nan"),
        "text_model.final_layer_norm.bias": np.zeros(3, np.float32),
    }
    with pytest.raises(WeightsError) as caught:
        from_huggingface(changed, CONFIG, 7, **NUMBERS)
    first, *lines = str(caught.value).splitlines()
    assert first == "tensors that do not fit this CLIP: 4"
    assert sorted(lines[:4]) == [
        "  logit_scale holds infinity or NaN",
        "  missing: visual_projection.weight (5, 4)",
        "  text_model.final_layer_norm.bias (3,), expected (4,)",
        "  unknown: classifier.weight (2, 4)",
    ]
    assert "--ignore classifier." in lines[4]
    with pytest.raises(
        WeightsError, match=r"this is not a CLIP checkpoint: none of its 1 tensors is called embeddings"
    ):
        from_huggingface({"wte.weight": np.zeros((2, 2))}, CONFIG, 7, **NUMBERS)


@pytest.mark.parametrize(
    ("text", "image", "message"),
    [
        ({"use_bias": False}, {}, "CLIP text encoder does not support use_bias = False"),
        ({"end_id": 2}, {}, "CLIP text encoder does not support end_id = 2"),
        ({}, {"embedding_norm": False}, "CLIP image encoder does not support model.embedding_norm = False"),
        ({}, {"unit_vectors": True}, "CLIP image encoder does not support model.unit_vectors = True"),
        ({"projection_width": None}, {"projection_width": None}, "does not support encoders without a projection"),
    ],
)
def test_variants_that_transformers_does_not_have_are_refused_in_one_line(text, image, message, params):
    config = CLIPConfig(dataclasses.replace(TEXT, **text), dataclasses.replace(IMAGE, **image))
    with pytest.raises(WeightsError, match=message) as caught:
        to_huggingface(params, config)
    assert "\n" not in str(caught.value)


def test_parameters_that_do_not_fit_the_config_are_refused(params):
    with pytest.raises(WeightsError, match=r"no parameter decoder/blocks/.* that fits the config"):
        to_huggingface(params["text"], dataclasses.replace(TEXT, width=8))
