import dataclasses

import jax
import numpy as np
import pytest

from jaxnlp.convert.image_encoder_weights import from_huggingface, has_pooler, heads_of, to_huggingface
from jaxnlp.convert.image_encoders import families
from jaxnlp.convert.tensors import WeightsError
from jaxnlp.images.processor import ImageProcessor
from jaxnlp.models import parameter_shapes
from jaxnlp.models.vit import ViTConfig, patches_of

VIT, DEIT = families()["vit"], families()["deit"]
CONFIG = ViTConfig(patch=2, num_layers=1, num_heads=2, width=4, feed_forward_width=6)
SHAPE = {"patches": 4, "channels": 3, "classes": 2}
PROCESSOR = ImageProcessor(4, 3, (0.5,) * 3, (0.5,) * 3, ("a", "b"))


def params_of(config, processor=PROCESSOR):
    shapes = parameter_shapes(config.build(processor), *config.inputs(processor))
    generator = np.random.default_rng(0)
    return jax.tree.map(lambda x: generator.normal(size=x.shape).astype(np.float32), shapes)


def test_the_layer_on_patches_is_the_convolution():
    params = params_of(CONFIG)
    tensors = to_huggingface(params, CONFIG, VIT)
    weight = tensors["vit.embeddings.patch_embeddings.projection.weight"]
    images = np.random.default_rng(1).normal(size=(2, 4, 4, 3)).astype(np.float32)
    expected = np.zeros((2, 2, 2, 4))
    for row, column in np.ndindex(2, 2):
        square = images[:, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2]
        expected[:, row, column] = np.einsum("bijr,drij->bd", square, weight)
    found = np.asarray(patches_of(images, 2)) @ params["stem"]["project"]["kernel"]
    np.testing.assert_allclose(found, expected, rtol=1e-4)


@pytest.mark.parametrize("prefix", ["", "vit."])
def test_names_may_begin_with_the_prefix(prefix):
    params = params_of(CONFIG)
    tensors = {
        name if name.startswith("classifier") else prefix + name.removeprefix("vit."): x
        for name, x in to_huggingface(params, CONFIG, VIT).items()
    }
    again = from_huggingface(tensors, CONFIG, VIT, **SHAPE)
    np.testing.assert_array_equal(again["positions"], params["positions"])
    assert not np.shares_memory(again["positions"], tensors[f"{prefix}embeddings.position_embeddings"])


@pytest.mark.parametrize(
    ("family", "names", "heads"),
    [
        (VIT, ["classifier"], ("classifier",)),
        (DEIT, ["classifier"], ("classifier",)),
        (DEIT, ["cls_classifier", "distillation_classifier"], ("cls_classifier", "distillation_classifier")),
        (DEIT, ["distillation_classifier"], ("cls_classifier", "distillation_classifier")),
        (VIT, ["pooler.dense"], ()),
    ],
)
def test_the_heads_are_those_that_the_tensors_have(family, names, heads):
    tensors = {f"{name}.weight": np.zeros((2, 4)) for name in names}
    assert heads_of(tensors, family) == heads
    assert has_pooler(tensors, family) == ("pooler.dense" in names)


def test_a_head_without_the_other_is_named():
    config = dataclasses.replace(CONFIG, distillation="head")
    tensors = to_huggingface(params_of(config), config, DEIT)
    del tensors["cls_classifier.weight"]
    with pytest.raises(WeightsError, match=r"missing: cls_classifier.weight \(2, 4\)"):
        from_huggingface(tensors, config, DEIT, **SHAPE)


def test_other_weights_are_no_vit():
    with pytest.raises(WeightsError, match=r"this is not a ViT checkpoint: none of its 1 tensors is called embeddings"):
        from_huggingface({"wte.weight": np.zeros((2, 2))}, CONFIG, VIT, **SHAPE)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pooling": "mean"}, "does not support model.pooling = mean"),
        ({"positions": "sinusoidal_2d", "stem": "convolutional"}, "stem = convolutional, model.positions = sinusoidal"),
        ({"pooler_width": 3}, "does not support model.pooler_width = 3"),
    ],
)
def test_variants_that_transformers_does_not_have_are_refused_in_one_line(changes, message):
    config = dataclasses.replace(CONFIG, **changes)
    with pytest.raises(WeightsError, match=message) as caught:
        to_huggingface(params_of(config), config, VIT)
    assert "\n" not in str(caught.value)


def test_parameters_that_do_not_fit_the_config_are_refused():
    with pytest.raises(WeightsError, match=r"no parameter stem/project/kernel that fits the config"):
        to_huggingface(params_of(CONFIG), dataclasses.replace(CONFIG, width=6), VIT)
