"""CLIP and its encoder of texts give the numbers of Transformers with equal random weights, in both directions."""

import dataclasses
import functools
import json
import shutil

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from safetensors.numpy import load_file
from sentence_transformers import SentenceTransformer

import jaxnlp
from jaxnlp.convert.clip import IMAGE, RULES, TEXT, to_huggingface
from jaxnlp.convert.folders import PretrainedError
from jaxnlp.convert.pretrained_clip import IMAGE_DEFAULTS, TEXT_DEFAULTS, read_clip, save_clip
from jaxnlp.convert.tensors import WeightsError
from jaxnlp.nn.compute import EXACT, TransformerCompute
from jaxnlp.tasks.image_text_similarity.processor import ImageTextProcessor
from tests.clip_folders import IMAGES, KINDS, make_model, tokenizer, write_folder
from tests.encoder_folders import TEXTS
from tests.image_folders import change, for_transformers, write_images

PIXELS = np.random.default_rng(0).integers(0, 256, (3, 12, 12, 3), dtype=np.uint8)
TOKENS = tokenizer()(TEXTS[:4], padding=True, truncation=True, max_length=24, return_tensors="pt")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """By the name of its class: a folder, its model in Transformers, and what we read of it."""
    made = {}
    for kind in KINDS:
        folder = tmp_path_factory.mktemp("tiny") / kind
        made[kind] = folder, write_folder(folder, kind), read_clip(folder)
    return made


@functools.partial(jax.jit, static_argnums=0)
def apply(model, params, inputs):
    return model.apply({"params": params}, *inputs)


def built(held, compute=EXACT):
    config = dataclasses.replace(held.config, compute=compute)
    return config.build(ImageTextProcessor(held.vocabulary, held.max_length, held.images))


def inputs_of(held, tokens=TOKENS, pixels=PIXELS):
    ids = tokens["input_ids"].numpy().astype(np.int32)
    return (ids,) if held.images is None else (ids, pixels)


def ours(held, tokens=TOKENS, pixels=PIXELS, compute=EXACT):
    return np.asarray(apply(built(held, compute), held.params, inputs_of(held, tokens, pixels)))


def outputs(model, held, tokens=TOKENS, pixels=PIXELS):
    """What Transformers makes of the same: logits [images, texts], or vectors of texts."""
    if held.images is None:
        found = model(**tokens)
        return found.text_embeds if hasattr(found, "text_embeds") else found.pooler_output
    normalised = ((pixels / 255.0 - held.images.mean) / held.images.stddev).astype(np.float32)
    return model(**tokens, pixel_values=torch.tensor(normalised).permute(0, 3, 1, 2)).logits_per_image


def theirs(model, held, tokens=TOKENS, pixels=PIXELS):
    with torch.no_grad():
        return outputs(model, held, tokens, pixels).numpy()


def assert_equal_outputs(held, model, tokens=TOKENS, pixels=PIXELS):
    found, expected = ours(held, tokens, pixels), theirs(model, held, tokens, pixels)
    np.testing.assert_allclose(found, expected, atol=1e-5 * max(1.0, np.abs(expected).max()))
    assert found.std(axis=0).min() > 0.01


WITHOUT_IMAGES = [pytest.param(kind, marks=pytest.mark.thorough) for kind in KINDS[1:]]


@pytest.mark.parametrize("kind", [KINDS[0], *WITHOUT_IMAGES])
def test_values_and_gradients_are_those_of_transformers(kind, tiny, tmp_path):
    _, model, held = tiny[kind]
    module, inputs = built(held), inputs_of(held)

    @jax.jit
    def values_and_gradients(params):
        values, vjp = jax.vjp(lambda params: module.apply({"params": params}, *inputs), params)
        return values, vjp(2.0 * values)[0]

    values, gradients = values_and_gradients(held.params)
    model.zero_grad()
    rival = outputs(model, held)
    rival.square().sum().backward()
    expected = rival.detach().numpy()
    np.testing.assert_allclose(values, expected, atol=1e-5 * max(1.0, np.abs(expected).max()))
    assert values.std(axis=0).min() > 0.01
    model.save_pretrained(tmp_path, state_dict={name: x.grad for name, x in model.named_parameters()})
    expected, found = load_file(tmp_path / "model.safetensors"), to_huggingface(jax.device_get(gradients), held.config)
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        np.testing.assert_allclose(found[name], gradient, atol=1e-4 * max(1.0, np.abs(gradient).max()), err_msg=name)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", KINDS)
def test_padding_changes_no_other_text(kind, tiny):
    _, model, held = tiny[kind]
    alone = tokenizer()([TEXTS[0]], return_tensors="pt")
    assert alone["input_ids"].shape[1] < TOKENS["input_ids"].shape[1]
    found = ours(held, alone)
    np.testing.assert_allclose(found, theirs(model, held, alone), atol=1e-4)
    np.testing.assert_allclose(found, ours(held)[:, :1] if held.images else ours(held)[:1], atol=1e-4)


@pytest.mark.thorough
def test_bfloat16_activations_stay_within_three_percent_of_the_largest_value(tiny):
    _, model, held = tiny["CLIPModel"]
    expected = theirs(model, held)
    error = np.abs(ours(held, compute=TransformerCompute(dtype="bfloat16")) - expected).max()
    assert 0.0 < error < 0.03 * np.exp(float(model.logit_scale.detach()))  # a cosine is at most 1


def assert_goes_out(held, model, folder):
    """It is written, and read to the same bits by Transformers and by us."""
    assert save_clip(folder, held) == type(model).__name__
    again = read_clip(folder)
    assert again._replace(params=None) == held._replace(params=None)
    chex.assert_trees_all_equal(again.params, held.params)
    found, report = type(model).from_pretrained(folder, output_loading_info=True)
    assert not any(report.values())
    assert found.state_dict().keys() == model.state_dict().keys()
    for name, tensor in model.state_dict().items():
        assert torch.equal(found.state_dict()[name], tensor), name
    return found.eval()


@pytest.mark.parametrize("kind", [KINDS[0], *WITHOUT_IMAGES])
def test_what_is_written_is_read_by_transformers_and_by_us_to_the_same_bits(kind, tiny, tmp_path):
    folder, model, held = tiny[kind]
    assert_goes_out(held, model, tmp_path / "out")
    found, before = (json.loads((part / "config.json").read_text()) for part in (tmp_path / "out", folder))
    for part in ("text_config", "vision_config") if kind == "CLIPModel" else ():
        found, before = (
            {**one, part: None, **{f"{part}.{k}": v for k, v in one[part].items()}} for one in (found, before)
        )
    other = {"initializer_factor", "dtype", "transformers_version", "logit_scale_init_value", "projection_dim"}
    other |= {"bos_token_id", "pad_token_id"}
    kept = {name for name in before if name.rpartition(".")[2] not in other}
    assert {name: found[name] for name in kept} == {name: before[name] for name in kept}
    tensors, others = (load_file(part / "model.safetensors") for part in (tmp_path / "out", folder))
    assert tensors.keys() == others.keys()


def test_the_processor_of_transformers_reads_what_is_written(tiny, tmp_path):
    save_clip(tmp_path / "out", tiny["CLIPModel"][2])
    files = [for_transformers(file) for file in write_images(tmp_path / "images")]
    read = transformers.CLIPProcessor.from_pretrained(tmp_path / "out")
    whole = transformers.CLIPProcessor(IMAGES, tokenizer())
    arrays = [
        one(text=TEXTS[:2], images=[transformers.image_utils.load_image(file) for file in files], padding=True)
        for one in (read, whole)
    ]
    assert arrays[0]["input_ids"] == arrays[1]["input_ids"]
    np.testing.assert_array_equal(*(np.stack(one["pixel_values"]) for one in arrays))


OPTIONS = [
    *({"text": {"hidden_act": name}, "image": {"hidden_act": name}} for name in TEXT.values["hidden_act"]),
    {"text": {"layer_norm_eps": 0.3}},
    {"image": {"layer_norm_eps": 0.3}},
    {"text": {"hidden_size": 16, "intermediate_size": 7, "num_attention_heads": 4, "num_hidden_layers": 1}},
    {"image": {"hidden_size": 8, "intermediate_size": 7, "num_attention_heads": 4, "num_hidden_layers": 3}},
    {"image": {"patch_size": 6}, "projection_dim": 5},
    {"text": {"attention_dropout": 0.2, "projection_dim": 3}, "image": {"attention_dropout": 0.1}},
    {"text": {"max_position_embeddings": 30, "vocab_size": 600}},
    {"text": {"eos_token_id": 2}},
    {"text": {"eos_token_id": 7}},
    {"logit_scale_init_value": 1.0},
]


@pytest.mark.thorough
@pytest.mark.parametrize("changes", OPTIONS, ids=str)
def test_options_of_the_config_change_logits_as_in_transformers(changes, tmp_path):
    model = write_folder(tmp_path / "in", **changes)
    held = read_clip(tmp_path / "in")
    assert_equal_outputs(held, model)
    again = assert_goes_out(held, model, tmp_path / "out")
    np.testing.assert_allclose(theirs(again, held), theirs(model, held), atol=1e-5)


@pytest.mark.sweep(1)
@pytest.mark.parametrize("rule", [2, 5])
def test_the_vector_of_a_text_is_that_of_its_first_end_or_of_its_highest_id(rule, tmp_path):
    model = write_folder(tmp_path, KINDS[1], eos_token_id=rule)
    held = read_clip(tmp_path)
    assert held.config.end_id == (None if rule == 2 else 5)
    ids = torch.tensor([[1, 5, 9, 5, 2], [7, 3, 8, 1, 2], [5, 400, 400, 3, 6]])
    assert_equal_outputs(held, model, {"input_ids": ids})


def test_older_files_with_the_config_of_an_encoder_in_another_setting_are_read_as_by_transformers(tiny, tmp_path):
    folder, _, held = tiny["CLIPModel"]
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    settings = json.loads((folder / "config.json").read_text())
    given = {
        "text_config_dict": {"hidden_size": 12, "intermediate_size": 20, "num_attention_heads": 2}
        | {"num_hidden_layers": 2, "max_position_embeddings": 24, "vocab_size": 544, "eos_token_id": 3},
        "vision_config_dict": {**settings["vision_config"], "layer_norm_eps": 0.25},
    }
    (tmp_path / "config.json").write_text(json.dumps(settings | given))
    model, again = transformers.CLIPModel.from_pretrained(tmp_path).eval(), read_clip(tmp_path)
    assert (again.config.text.end_id, again.config.image.epsilon) == (3, 0.25)
    assert model.config.text_config.eos_token_id == 3
    assert model.config.vision_config.layer_norm_eps == 0.25
    (tmp_path / "config.json").write_text(json.dumps(settings | dict.fromkeys(given)))
    assert read_clip(tmp_path).config == held.config
    del settings["text_config"]["hidden_act"], settings["vision_config"]["layer_norm_eps"]
    del settings["text_config"]["model_type"]
    (tmp_path / "config.json").write_text(json.dumps(settings))
    assert read_clip(tmp_path).config == held.config


def test_settings_that_a_file_leaves_out_have_the_defaults_of_transformers():
    for defaults, config in (
        (TEXT_DEFAULTS, transformers.CLIPTextConfig()),
        (IMAGE_DEFAULTS, transformers.CLIPVisionConfig()),
    ):
        assert defaults == {name: getattr(config, name) for name in defaults}
    assert transformers.CLIPConfig().projection_dim == TEXT_DEFAULTS["projection_dim"]


def test_every_setting_that_transformers_writes_is_known():
    config = transformers.CLIPConfig(text_config={}, vision_config={}).to_dict()
    for rules, settings in (
        (RULES, config),
        (TEXT.rules, config["text_config"]),
        (IMAGE.rules, config["vision_config"]),
    ):
        assert rules.problems(settings) == []
        assert len(rules.names) == len(set(rules.names))


@pytest.mark.thorough
def test_images_of_another_size_have_the_interpolated_positions_of_transformers(tmp_path, caplog):
    size = 20
    model = write_folder(tmp_path)
    change(
        tmp_path, "preprocessor_config.json", size={"shortest_edge": size}, crop_size={"height": size, "width": size}
    )
    held = read_clip(tmp_path)
    assert f"images have {size} x {size} pixels by preprocessor_config.json, but 12 x 12 by config.json" in caplog.text
    pixels = np.random.default_rng(1).integers(0, 256, (2, size, size, 3), dtype=np.uint8)
    normalised = ((pixels / 255.0 - held.images.mean) / held.images.stddev).astype(np.float32)
    images = torch.tensor(normalised).permute(0, 3, 1, 2)
    with torch.no_grad():
        expected = model(**TOKENS, pixel_values=images, interpolate_pos_encoding=True).logits_per_image.numpy()
    np.testing.assert_allclose(ours(held, pixels=pixels), expected, atol=1e-4)


@pytest.mark.thorough
def test_half_precision_weights_in_several_files_are_read(tiny, tmp_path):
    write_folder(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    make_model().to(torch.bfloat16).save_pretrained(tmp_path, max_shard_size="8KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 1
    rounded = jax.tree.map(lambda x: np.asarray(jnp.asarray(x, jnp.bfloat16), np.float32), tiny["CLIPModel"][2].params)
    chex.assert_trees_all_equal(read_clip(tmp_path).params, rounded)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"architectures": ["CLIPForImageClassification"]},
            "supported CLIP: the class CLIPForImageClassification, which",
        ),
        ({"projection_dim": None}, "projection_dim None, expected a whole number"),
        ({"projection_dim": 0}, "projection_width"),
        ({"tie": 1}, "unknown settings: tie"),
        ({"text_config": 3}, "expected an object as text_config, got 3"),
        ({"text_config": {"hidden_act": "mish"}}, "CLIP text encoder: hidden_act 'mish', expected 'quick_gelu' or"),
        ({"text_config": {"eos_token_id": [1, 2]}}, r"eos_token_id \[1, 2\], expected a whole number"),
        ({"text_config": {"eos_token_id": None}}, "eos_token_id None, expected the id of the token at the end"),
        ({"text_config": {"vocab_size": 20}}, "the tokenizer has 544 tokens, but the model has 20 embeddings"),
        ({"text_config": {"num_attention_heads": 5}}, "model.num_heads must divide model.width"),
        ({"vision_config": {"patch_size": [4, 4]}}, r"CLIP image encoder: patch_size \[4, 4\], expected a whole"),
        ({"vision_config": {"image_size": 13}}, "model.patch must divide the size of the images, 13 pixels, got 4"),
        ({"vision_config": {"num_channels": 4}}, "num_channels must be 1 or 3, got 4"),
        ({"vision_config": {"head_dim": 4}}, "unknown settings: head_dim"),
    ],
    ids=str,
)
def test_settings_that_are_not_supported_are_refused_by_name(changes, message, tiny, tmp_path):
    folder, _, _ = tiny["CLIPModel"]
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    settings = json.loads((folder / "config.json").read_text())
    for name, value in changes.items():
        settings[name] = {**settings[name], **value} if isinstance(value, dict) else value
    (tmp_path / "config.json").write_text(json.dumps(settings))
    with pytest.raises(PretrainedError, match=message) as caught:
        read_clip(tmp_path)
    assert str(tmp_path) in str(caught.value)


def test_other_models_and_folders_that_are_not_empty_are_refused(tiny, tmp_path):
    folder, _, held = tiny[KINDS[1]]
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    with pytest.raises(FileExistsError, match="exists and is not empty"):
        save_clip(tmp_path, held)
    change(tmp_path, "config.json", model_type="siglip")
    with pytest.raises(PretrainedError, match="model_type must be one of clip_text_model, got 'siglip'"):
        read_clip(tmp_path)
    strange = dataclasses.replace(held.config, end_id=2)
    with pytest.raises(WeightsError, match="Transformers' CLIP text encoder does not support end_id = 2"):
        save_clip(tmp_path / "out", held._replace(config=strange))
    assert not (tmp_path / "out").exists()


def older_folder(folder, clip, kind="sentence_transformers.models.CLIPModel"):
    """A folder as older sentence-transformers wrote it, with the CLIP in a folder of its own."""
    shutil.copytree(clip, folder / "0_CLIPModel")
    modules = [{"idx": 0, "name": "0", "path": "0_CLIPModel", "type": kind}]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "config_sentence_transformers.json").write_text(json.dumps({"__version__": {"transformers": "4.7.0"}}))


@pytest.mark.parametrize("layout", ["older", pytest.param("newer", marks=pytest.mark.thorough)])
def test_folders_of_sentence_transformers_give_the_same_vectors(layout, tiny, tmp_path):
    clip = tiny["CLIPModel"][0]
    if layout == "older":
        older_folder(tmp_path / "model", clip)
    else:
        SentenceTransformer(str(clip)).save(str(tmp_path / "model"))
    theirs, run = SentenceTransformer(str(tmp_path / "model")), jaxnlp.load_pretrained(tmp_path / "model")
    texts, images = TEXTS[:3], [Image.fromarray(one) for one in PIXELS]
    np.testing.assert_allclose(run.embed(texts), theirs.encode(texts), atol=1e-5)
    np.testing.assert_allclose(run.embed(images), theirs.encode(images), atol=1e-5)


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("config_sentence_transformers.json", {"truncate_dim": 4}, r"not supported with a CLIP: truncate_dim 4"),
        (
            "config_sentence_transformers.json",
            {"prompts": {"q": "query: "}, "default_prompt_name": "q"},
            r"the prompt 'query: ' before each text",
        ),
        (
            "0_CLIPModel/sentence_bert_config.json",
            {"module_output_name": "token_embeddings"},
            r"module_output_name 'token_embeddings', expected 'sentence_embedding'",
        ),
    ],
)
def test_what_sentence_transformers_does_beside_the_encoders_is_refused(file, content, words, tiny, tmp_path):
    older_folder(tmp_path, tiny["CLIPModel"][0])
    (tmp_path / file).write_text(json.dumps(content))
    with pytest.raises(PretrainedError, match=words):
        read_clip(tmp_path)


def test_a_module_after_the_encoders_is_refused_and_a_maximum_length_is_read(tiny, tmp_path):
    older_folder(tmp_path, tiny["CLIPModel"][0])
    (tmp_path / "0_CLIPModel" / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 9}))
    assert read_clip(tmp_path).max_length == 9
    modules = json.loads((tmp_path / "modules.json").read_text())
    modules.append({"idx": 1, "name": "1", "path": "1_Normalize", "type": "sentence_transformers.models.Normalize"})
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(PretrainedError, match=r"expected the modules .*, got Transformer, Normalize$"):
        read_clip(tmp_path)
