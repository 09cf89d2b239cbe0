"""ViT and DeiT give the numbers of Transformers with equal random weights, in both directions."""

import dataclasses
import functools
import json

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers
from safetensors.numpy import load_file, save_file

from jaxnlp.convert.folders import PretrainedError
from jaxnlp.convert.image_encoder_weights import to_huggingface
from jaxnlp.convert.image_encoders import families
from jaxnlp.convert.pretrained_image_encoder import read_image_encoder, save_image_encoder
from jaxnlp.convert.tensors import WeightsError
from jaxnlp.nn.compute import EXACT, TransformerCompute
from tests.image_folders import CLASSES, SHAPE, change, for_transformers, make_model, write_folder, write_images

VIT, DEIT = families()["vit"], families()["deit"]
KINDS = [f"{family.title}{name}" for family in (VIT, DEIT) for name in family.heads]
TEACHER = "DeiTForImageClassificationWithTeacher"
PIXELS = np.random.default_rng(0).integers(0, 256, (4, 12, 12, 3), dtype=np.uint8)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """By the name of its class: a folder, its model and its image processor in Transformers, and what we read of it."""
    made = {}
    for kind in KINDS:
        folder = tmp_path_factory.mktemp("tiny") / kind
        made[kind] = folder, *write_folder(folder, kind), read_image_encoder(folder)
    return made


@functools.partial(jax.jit, static_argnums=0)
def apply(model, params, images):
    return model.apply({"params": params}, images)


def built(held, compute=EXACT):
    return dataclasses.replace(held.config, compute=compute).build(held.processor)


def ours(held, images=PIXELS, compute=EXACT):
    return np.asarray(apply(built(held, compute), held.params, images))


def normalised(held, images=PIXELS):
    """What Transformers' models read: [B, R, I, I]."""
    pixels = (images / 255.0 - held.processor.mean) / held.processor.stddev
    return torch.tensor(pixels.astype(np.float32)).permute(0, 3, 1, 2)


def theirs(model, held, images=PIXELS, **options):
    with torch.no_grad():
        return model(normalised(held, images), **options).logits.numpy()


def assert_equal_logits(held, model, images=PIXELS):
    found = ours(held, images)
    np.testing.assert_allclose(found, theirs(model, held, images), atol=1e-5)
    assert found.std(axis=0).min() > 0.01


@pytest.mark.sweep(1)
@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_those_of_transformers(kind, tiny):
    _, model, _, held = tiny[kind]
    assert_equal_logits(held, model)


@pytest.mark.parametrize("kind", KINDS)
def test_logits_of_files_are_those_of_transformers_own_image_processor(kind, tiny, tmp_path):
    _, model, processor, held = tiny[kind]
    files = write_images(tmp_path)
    batch = processor([for_transformers(file) for file in files], return_tensors="pt")
    images = held.processor(files)["images"]
    np.testing.assert_allclose(normalised(held, images).numpy(), batch["pixel_values"].numpy(), atol=1e-6)
    with torch.no_grad():
        expected = model(**batch).logits.numpy()
    found = ours(held, images)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert len(np.unique(found.round(3), axis=0)) == len(files)


@pytest.mark.sweep(1)
@pytest.mark.parametrize("kind", ["ViTForImageClassification", TEACHER])
def test_gradients_are_those_of_transformers(kind, tiny, tmp_path):
    _, model, _, held = tiny[kind]
    module = built(held)
    labels = np.arange(len(PIXELS), dtype=np.int32) % 3

    @jax.jit
    @jax.grad
    def gradients(params):
        scores = jax.nn.log_softmax(module.apply({"params": params}, PIXELS))
        return -jnp.take_along_axis(scores, labels[:, None], axis=-1).sum()

    model.zero_grad()
    logits = model(normalised(held)).logits
    torch.nn.functional.cross_entropy(logits, torch.tensor(labels).long(), reduction="sum").backward()
    # Transformers has other names in memory than in files.
    model.save_pretrained(tmp_path, state_dict={name: x.grad for name, x in model.named_parameters()})
    expected = load_file(tmp_path / "model.safetensors")
    family = DEIT if "DeiT" in kind else VIT
    found = to_huggingface(jax.device_get(gradients(held.params)), held.config, family)
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        np.testing.assert_allclose(found[name], gradient, atol=1e-4 * max(1.0, np.abs(gradient).max()), err_msg=name)


def test_bfloat16_activations_stay_within_three_percent_of_the_largest_value(tiny):
    _, model, _, held = tiny[TEACHER]
    expected = theirs(model, held)
    error = np.abs(ours(held, compute=TransformerCompute(dtype="bfloat16")) - expected).max()
    assert 0.0 < error < 0.03 * np.abs(expected).max()


def assert_equal_tensors(found, expected):
    held, others = found.state_dict(), expected.state_dict()
    assert held.keys() == others.keys()
    for name, tensor in others.items():
        assert torch.equal(held[name], tensor), name


NAMES = [*VIT.fields, "image_size", "num_channels", "model_type", "architectures"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_written_is_read_by_transformers_and_by_us_to_the_same_bits(kind, tiny, tmp_path):
    folder, model, processor, held = tiny[kind]
    assert save_image_encoder(tmp_path / "out", held) == kind
    again = read_image_encoder(tmp_path / "out")
    assert (again.config, again.processor) == (held.config, held.processor)
    chex.assert_trees_all_equal(again.params, held.params)
    found, report = type(model).from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not any(report.values())
    assert_equal_tensors(found, model)
    assert found.config.id2label == dict(enumerate(CLASSES))
    written, before = (json.loads((part / "config.json").read_text()) for part in (tmp_path / "out", folder))
    assert {name: written[name] for name in NAMES} == {name: before[name] for name in NAMES}
    tensors, others = (load_file(part / "model.safetensors") for part in (tmp_path / "out", folder))
    assert tensors.keys() == others.keys()
    read = transformers.AutoImageProcessor.from_pretrained(tmp_path / "out", backend="pil")
    files = [str(file) for file in write_images(tmp_path / "images")]
    images = (one(files, return_tensors="pt")["pixel_values"].numpy() for one in (read, processor))
    np.testing.assert_array_equal(*images)


@pytest.mark.parametrize("kind", KINDS)
def test_the_auto_class_reads_what_is_written(kind, tiny, tmp_path):
    save_image_encoder(tmp_path / "out", tiny[kind][3])
    found = transformers.AutoModelForImageClassification.from_pretrained(tmp_path / "out")
    assert type(found).__name__ == kind


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_weights_in_several_files_are_read(dtype, tiny, tmp_path):
    _, _, processor, held = tiny[TEACHER]
    make_model(TEACHER).to(dtype).save_pretrained(tmp_path, max_shard_size="8KB")
    processor.save_pretrained(tmp_path)
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 1
    kind = {torch.bfloat16: jnp.bfloat16, torch.float16: jnp.float16}[dtype]
    rounded = jax.tree.map(lambda x: np.asarray(jnp.asarray(x, kind), np.float32), held.params)
    chex.assert_trees_all_equal(read_image_encoder(tmp_path).params, rounded)


def test_what_does_not_fit_is_named(tiny, tmp_path):
    folder, _, processor, _ = tiny["ViTForImageClassification"]
    tensors = load_file(folder / "model.safetensors")
    del tensors["vit.encoder.layer.1.output.dense.weight"]
    tensors |= {
        "decoder.0.bias": np.zeros(5, np.float32),
        "vit.embeddings.mask_token": np.zeros((1, 1, 16), np.float32),  # only masked images have it
        "vit.layernorm.weight": np.full(16, np.nan, np.float32),
        "vit.embeddings.position_embeddings": np.zeros((1, 9, 16), np.float32),
    }
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    processor.save_pretrained(tmp_path)
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(WeightsError) as caught:
        read_image_encoder(tmp_path)
    first, *lines = str(caught.value).splitlines()
    assert first.endswith("tensors that do not fit this ViT: 4")
    assert sorted(lines[:4]) == [
        "  missing: encoder.layer.1.output.dense.weight (16, 20)",
        "  unknown: decoder.0.bias (5,)",
        "  vit.embeddings.position_embeddings (1, 9, 16), expected (1, 10, 16)",
        "  vit.layernorm.weight holds infinity or NaN",
    ]
    assert "--ignore decoder." in lines[4]


OPTIONS = [
    {"qkv_bias": False, "hidden_act": "gelu_new", "layer_norm_eps": 0.3},
    *(
        pytest.param(changes, marks=pytest.mark.thorough)
        for changes in [
            {"qkv_bias": False},
            {"hidden_act": "gelu_new"},
            {"hidden_act": "gelu_pytorch_tanh"},
            {"hidden_act": "relu"},
            {"layer_norm_eps": 0.3},
            {"hidden_size": 12},
            {"intermediate_size": 7},
            {"num_attention_heads": 4},
            {"num_hidden_layers": 1},
            {"num_hidden_layers": 3},
            {"patch_size": 6},
            {"patch_size": 12},
            {"id2label": {0: "no", 1: "yes"}},
            {"hidden_dropout_prob": 0.3, "attention_probs_dropout_prob": 0.2, "initializer_range": 0.1},
            {"encoder_stride": 4, "pooler_output_size": 8},
        ]
    ),
]


@pytest.mark.parametrize("changes", OPTIONS, ids=" ".join)
@pytest.mark.parametrize(
    "kind", ["ViTForImageClassification", *(pytest.param(kind, marks=pytest.mark.thorough) for kind in KINDS[1:])]
)
def test_options_of_the_config_change_logits_as_in_transformers(kind, changes, tmp_path):
    model, _ = write_folder(tmp_path / "in", kind, **changes)
    held = read_image_encoder(tmp_path / "in")
    assert_equal_logits(held, model)
    save_image_encoder(tmp_path / "out", held)
    again = type(model).from_pretrained(tmp_path / "out").eval()
    assert_equal_tensors(again, model)
    np.testing.assert_allclose(theirs(again, held), theirs(model, held), atol=1e-5)
    assert read_image_encoder(tmp_path / "out").config == held.config


@pytest.mark.thorough
def test_a_grey_model_reads_grey_images(tmp_path):
    model, _ = write_folder(tmp_path, num_channels=1)
    change(tmp_path, "preprocessor_config.json", image_mean=0.3, image_std=[0.2])
    held = read_image_encoder(tmp_path)
    assert (held.processor.channels, held.processor.mean, held.processor.stddev) == (1, (0.3,), (0.2,))
    assert_equal_logits(held, model, PIXELS[..., :1])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_act": "silu"}, "hidden_act 'silu', expected 'gelu' or"),
        ({"pooler_act": "gelu"}, "pooler_act 'gelu', expected 'tanh'"),
        ({"problem_type": "multi_label_classification"}, "problem_type 'multi_label_classification', expected None or"),
        ({"qkv_bias": 1}, "qkv_bias 1, expected true or false"),
        ({"hidden_size": "16"}, "hidden_size '16', expected a whole number"),
        ({"patch_size": [4, 4]}, r"patch_size \[4, 4\], expected a whole number"),
        ({"image_size": [12, 8]}, r"image_size \[12, 8\], expected a whole number"),
        ({"image_size": None}, "no image_size"),
        ({"patch_size": 5}, "model.patch must divide the size of the images, 12 pixels, got 5"),
        ({"num_attention_heads": 3}, "model.num_heads must divide model.width"),
        ({"num_channels": 4}, "num_channels must be 1 or 3, got 4"),
        ({"num_channels": 3.0}, "num_channels must be 1 or 3, got 3.0"),
        ({"hidden_dropout_prob": 2.0}, "hidden_dropout_prob 2.0, expected in"),
        ({"head_dim": 4}, "unknown settings: head_dim"),
        ({"model_type": "beit"}, "model_type must be one of clip_vision_model, deit, vit, got 'beit'"),
        ({"id2label": {"0": "cat"}}, "id2label has the names of 1 classes, expected 3"),
    ],
    ids=str,
)
def test_settings_that_are_not_supported_are_refused_by_name(changes, message, tiny, tmp_path):
    folder, _, _, _ = tiny["ViTForImageClassification"]
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    change(tmp_path, "config.json", **changes)
    with pytest.raises(PretrainedError, match=message):
        read_image_encoder(tmp_path)


def test_settings_that_a_file_leaves_out_have_the_defaults_of_transformers(tiny, tmp_path):
    folder, _, _, held = tiny["ViTForImageClassification"]
    settings = json.loads((folder / "config.json").read_text())
    needed = ("model_type", *(name for name in SHAPE if name != "label2id"))
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "config.json").write_text(json.dumps({name: settings[name] for name in needed}))
    assert read_image_encoder(tmp_path).config == held.config
    for family, kind in ((VIT, transformers.ViTConfig()), (DEIT, transformers.DeiTConfig())):
        given = {theirs: family.defaults[ours] for theirs, ours in family.fields.items() if ours in family.defaults}
        assert {**given, "pooler_output_size": 768} == {name: getattr(kind, name) for name in given}
