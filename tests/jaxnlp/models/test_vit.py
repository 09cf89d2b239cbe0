import dataclasses

import jax
import numpy as np
import pytest
import torch
import transformers

from jaxnlp.images.processor import ImageProcessor
from jaxnlp.models import parameter_shapes
from jaxnlp.models.classifier import HEAD
from jaxnlp.models.vit import (
    DISTILLATION_HEAD,
    Stem,
    ViT,
    ViTConfig,
    patches_of,
    resized_positions,
    sinusoidal_positions_2d,
)
from jaxnlp.nn.compute import TransformerCompute
from jaxnlp.ops.interpolation import bicubic
from jaxnlp.tasks import Trained
from jaxnlp.tasks.classification import Classification

SIZE, CLASSES = 8, 5
MEAN, STDDEV = (0.4, 0.5, 0.6), (0.2, 0.3, 0.25)
CONFIG = ViTConfig(patch=4, num_layers=2, num_heads=2, width=8, feed_forward_width=12, dropout_rate=0.0)
PROCESSOR = ImageProcessor(SIZE, 3, MEAN, STDDEV, tuple("abcde"))
IMAGES = np.random.default_rng(0).integers(0, 256, (3, SIZE, SIZE, 3), dtype=np.uint8)


def with_random_params(config):
    """A model, and parameters that are larger than initial ones, so that all of them count."""
    model = config.build(PROCESSOR)
    shapes = parameter_shapes(model, *config.inputs(PROCESSOR))
    generator = np.random.default_rng(1)
    return model, jax.tree.map(lambda x: generator.normal(scale=0.3, size=x.shape).astype(np.float32), shapes)


def rival(params):
    """The ViT of Transformers with these parameters."""
    settings = transformers.ViTConfig(
        image_size=SIZE,
        patch_size=4,
        num_hidden_layers=2,
        num_attention_heads=2,
        hidden_size=8,
        intermediate_size=12,
        layer_norm_eps=1e-5,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        num_labels=CLASSES,
        attn_implementation="eager",
    )
    model = transformers.ViTForImageClassification(settings).eval()
    blocks = params["blocks"]
    state = {
        "vit.embeddings.cls_token": params["class_token"][None, None],
        "vit.embeddings.position_embeddings": params["positions"][None],
        "vit.embeddings.patch_embeddings.projection.weight": params["stem"]["project"]["kernel"]
        .reshape(4, 4, 3, 8)
        .transpose(3, 2, 0, 1),
        "vit.embeddings.patch_embeddings.projection.bias": params["stem"]["project"]["bias"],
        "vit.layernorm.weight": params["final_norm"]["scale"],
        "vit.layernorm.bias": params["final_norm"]["bias"],
        "classifier.weight": params["head"]["kernel"].T,
        "classifier.bias": params["head"]["bias"],
    }
    for name in model.state_dict().keys() - state.keys():
        layer = int(next(part for part in name.split(".") if part.isdigit()))
        state[name] = of_block(jax.tree.map(lambda x, layer=layer: x[layer], blocks), name)
    model.load_state_dict({name: torch.tensor(np.array(x)) for name, x in state.items()})
    return model


def of_block(block, name):
    """A block's parameter by its name in Transformers."""
    attention, feed_forward = block["attention"], block["feed_forward"]
    kind = "kernel" if name.endswith("weight") else "bias"
    if "layernorm" in name:
        norm = block["attention_norm" if "before" in name else "feed_forward_norm"]
        return norm["scale" if kind == "kernel" else "bias"]
    for number, which in enumerate(("query", "key", "value")):
        if f".{which}." in name or f".{which[0]}_proj." in name:
            x = attention["qkv"][kind]
            return x[:, number].reshape(8, 8).T if kind == "kernel" else x[number].reshape(8)
    if "attention" in name:
        layer = attention["out"]
    else:
        layer = feed_forward["up" if "intermediate" in name or "fc1" in name else "down"]
    return layer[kind].reshape(-1, layer[kind].shape[-1]).T if kind == "kernel" else layer[kind]


def test_logits_and_attention_are_those_of_transformers():
    model, params = with_random_params(CONFIG)
    theirs = rival(params)
    pixels = ((IMAGES / 255.0 - MEAN) / STDDEV).transpose(0, 3, 1, 2).astype(np.float32)
    with torch.no_grad():
        found = theirs(torch.tensor(pixels), output_attentions=True)
    logits = jax.jit(model.apply)({"params": params}, IMAGES)
    np.testing.assert_allclose(logits, found.logits.numpy(), atol=1e-4)
    rolled = np.eye(5)[None]
    for weights in found.attentions:
        rolled = (weights.mean(dim=1).numpy() + np.eye(5)[None]) / 2 @ rolled
    expected = rolled[:, 0, 1:] / rolled[:, 0, 1:].sum(axis=1, keepdims=True)
    shares = jax.jit(model.attention_rollout)(params, IMAGES)
    np.testing.assert_allclose(shares, expected.reshape(3, 2, 2), atol=1e-5)


@pytest.mark.sweep(1)
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"stem": "convolutional", "pooling": "mean", "positions": "sinusoidal_2d"},
        {"distillation": "head", "qkv_bias": False, "activation": "relu", "pooler_width": 6, "epsilon": 1e-3},
    ],
    ids=["published", "variants", "distilled"],
)
def test_every_parameter_is_described_and_the_output_is_logits(changes):
    config = dataclasses.replace(CONFIG, **changes)
    model, params = with_random_params(config)
    for path, _ in jax.tree_util.tree_leaves_with_path(params):
        config.parameter(tuple(key.key for key in path))
    with pytest.raises(KeyError):
        config.parameter(("nowhere",))
    # Probabilities would be normalised again by the loss: a head must not return them.
    params["head"]["kernel"] *= 100.0
    logits = np.asarray(jax.jit(model.apply)({"params": params}, IMAGES))
    assert logits.dtype == np.float32
    assert logits.min() < 0.0
    assert np.ptp(logits) > 2.0
    shares = np.asarray(jax.jit(model.attention_rollout)(params, IMAGES))
    np.testing.assert_allclose(shares.sum(axis=(1, 2)), 1.0, rtol=1e-5)


def test_a_convolution_of_the_stem_is_pytorchs():
    config = dataclasses.replace(CONFIG, patch=2, stem="convolutional")
    x = np.random.default_rng(2).normal(size=(2, SIZE, SIZE, 3)).astype(np.float32)
    params = jax.jit(Stem(config).init)(jax.random.key(0), x)["params"]
    kernel = np.asarray(params["convolution_0"]["kernel"]).reshape(3, 3, 3, 8).transpose(3, 2, 0, 1)
    with torch.no_grad():
        y = torch.nn.functional.conv2d(torch.tensor(x).permute(0, 3, 1, 2), torch.tensor(kernel), stride=2, padding=1)
        y = torch.nn.functional.gelu(torch.nn.functional.layer_norm(y.permute(0, 2, 3, 1), (8,)))
    expected = y.numpy() @ np.asarray(params["project"]["kernel"])
    np.testing.assert_allclose(jax.jit(Stem(config).apply)({"params": params}, x), expected, atol=1e-5)


def test_patches_are_squares_of_pixels():
    images = np.arange(2 * 4 * 4 * 3).reshape(2, 4, 4, 3)
    found = np.asarray(patches_of(images, 2))
    for row, column in np.ndindex(2, 2):
        square = images[:, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2]
        np.testing.assert_array_equal(found[:, row, column], square.reshape(2, -1))


@pytest.mark.thorough
def test_positions_of_a_square_tell_row_and_column():
    found = np.asarray(sinusoidal_positions_2d(3, 8)).reshape(3, 3, 8)
    for place in range(3):
        np.testing.assert_array_equal(found[place, :, :4], found[place, :1, :4].repeat(3, 0))
        np.testing.assert_array_equal(found[:, place, 4:], found[:1, place, 4:].repeat(3, 0))
    assert len(np.unique(found.reshape(9, 8).round(5), axis=0)) == 9


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"num_heads": 3}, "model.num_heads must divide model.width, got 3 and 8"),
        ({"patch": 0}, "model.patch must be at least 1, got 0"),
        ({"patch": 6, "stem": "convolutional"}, "model.patch must be 2, 4, 8, ... for a convolutional stem, got 6"),
        ({"width": 6, "positions": "sinusoidal_2d"}, "model.width must be divisible by 4"),
        ({"layer_dropout_rate": 1.0}, r"model.layer_dropout_rate must be in \[0, 1\), got 1.0"),
        ({"feed_forward_width": 0}, "model.feed_forward_width must be at least 1, got 0"),
        ({"pooling": "mean", "distillation": "token"}, "model.distillation applies only to model.pooling cls"),
    ],
)
def test_a_config_that_cannot_be_is_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(CONFIG, **fields)


@pytest.mark.thorough
def test_the_logits_are_the_mean_of_both_heads_and_a_token_without_a_head_is_not_read():
    config = dataclasses.replace(CONFIG, distillation="head")
    model, params = with_random_params(config)
    one = dataclasses.replace(config, distillation="token").build(PROCESSOR)
    other = {name: value for name, value in params.items() if name != DISTILLATION_HEAD}
    swapped = params | {HEAD: params[DISTILLATION_HEAD], DISTILLATION_HEAD: params[HEAD]}

    @jax.jit
    def run():
        return [
            model.apply({"params": params}, IMAGES),
            one.apply({"params": other}, IMAGES),
            model.apply({"params": swapped}, IMAGES),
        ]

    both, first, crossed = run()
    without = model.apply({"params": params | {DISTILLATION_HEAD: jax.tree.map(np.zeros_like, params[HEAD])}}, IMAGES)
    np.testing.assert_allclose(2.0 * without, first, atol=1e-5)
    assert np.abs(both - crossed).max() > 0.01


def test_positions_of_another_size_are_interpolated_and_those_of_tokens_stay():
    config = dataclasses.replace(CONFIG, distillation="token")
    positions = np.random.default_rng(3).normal(size=(2 + 4, 8)).astype(np.float32)
    assert resized_positions(positions, config, SIZE) is positions
    found = resized_positions(positions, config, 12)
    np.testing.assert_array_equal(found[:2], positions[:2])
    np.testing.assert_array_equal(found[2:], bicubic(positions[2:].reshape(2, 2, 8), 3).reshape(9, 8))
    mean = dataclasses.replace(CONFIG, pooling="mean")
    assert resized_positions(positions[:4], mean, 12).shape == (9, 8)


def test_weights_of_another_library_give_their_shape_and_what_fits_the_images(caplog):
    theirs = dataclasses.replace(CONFIG, patch=2, epsilon=1e-3, distillation="head", pooler_width=6)
    model, params = with_random_params(theirs)
    weights = Trained(Classification(), model, params, PROCESSOR, name="tiny-deit")
    ours = ViTConfig(layer_dropout_rate=0.3, compute=TransformerCompute(scan_layers=True))
    config, adopted, processor, notes, fitting = ours.adopt(weights)
    rates = {"layer_dropout_rate": 0.3, "dropout_rate": ours.dropout_rate}
    assert config == dataclasses.replace(theirs, pooler_width=None, compute=ours.compute, **rates)
    assert processor == PROCESSOR
    assert notes == ("image encoder from tiny-deit: 2 layers, 8 wide, 2 heads", "its pooler is not used")
    kept = {HEAD, DISTILLATION_HEAD, "positions", "pooler"}
    assert adopted.keys() == params.keys() - kept
    same = fitting(PROCESSOR)
    assert same.keys() == kept - {"pooler"}
    np.testing.assert_array_equal(same["positions"], params["positions"])
    assert not caplog.text
    other = fitting(dataclasses.replace(PROCESSOR, size=12, classes=("a", "b")))
    assert "the positions of tiny-deit are interpolated to images of 12 pixels" in caplog.text
    assert "the head of tiny-deit is not used: its classes differ" in caplog.text
    assert other.keys() == {"positions"}
    assert other["positions"].shape == (2 + 36, 8)


def test_a_run_gives_its_parameters_to_one_of_the_same_architecture_and_other_images(tmp_path):
    model, params = with_random_params(CONFIG)
    run = Trained(Classification(), model, params, PROCESSOR, name="runs/first", folder=tmp_path)
    config, adopted, _, notes, fitting = dataclasses.replace(CONFIG, dropout_rate=0.3).adopt(run)
    assert (config.dropout_rate, notes) == (0.3, ())
    assert adopted.keys() | fitting(PROCESSOR).keys() == params.keys()
    assert fitting(dataclasses.replace(PROCESSOR, size=12)).keys() == {HEAD, "positions"}
    smaller = dataclasses.replace(CONFIG, patch=2).adopt(run)
    assert (smaller.config, smaller.notes) == (CONFIG, ("from runs/first: model.patch 4",))


def test_images_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"model.patch must divide the size of the images, 8 pixels, got 3"):
        dataclasses.replace(CONFIG, patch=3).check(PROCESSOR)
    model = ViT(CONFIG, SIZE, MEAN, STDDEV, CLASSES)
    with pytest.raises(ValueError, match="images must be uint8, from 0 to 255, got float32"):
        model.init(jax.random.key(0), IMAGES.astype(np.float32))


@pytest.mark.thorough
@pytest.mark.parametrize("rate", ["dropout_rate", "attention_dropout_rate", "layer_dropout_rate"])
def test_each_rate_of_dropout_changes_training_and_nothing_else(rate):
    config = dataclasses.replace(CONFIG, num_layers=1, **{rate: 0.5})
    model, params = with_random_params(config)
    plain = dataclasses.replace(CONFIG, num_layers=1).build(PROCESSOR)

    @jax.jit
    def run(params, keys):
        trained = [model.apply({"params": params}, IMAGES, deterministic=False, rngs={"dropout": key}) for key in keys]
        return *trained, model.apply({"params": params}, IMAGES), plain.apply({"params": params}, IMAGES)

    first, second, evaluated, without = run(params, tuple(jax.random.split(jax.random.key(0))))
    np.testing.assert_array_equal(evaluated, without)
    assert np.abs(first - evaluated).max() > 1e-3
    assert np.abs(first - second).max() > 1e-3
