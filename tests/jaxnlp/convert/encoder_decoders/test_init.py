"""A T5 and an mT5 compute what Transformers computes, and go in and out without a change of a bit."""

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
from safetensors.numpy import load_file, save_file

from jaxnlp.convert.encoder_decoders import families
from jaxnlp.convert.folders import PretrainedError
from jaxnlp.convert.pretrained_encoder_decoder import read_encoder_decoder, save_encoder_decoder
from jaxnlp.convert.tensors import WeightsError
from tests.encoder_decoder_folders import make_model, save_untied, untie, write_folder
from tests.encoder_folders import TEXTS
from tests.jaxnlp.convert.encoder_decoders import parity
from tests.jaxnlp.convert.encoder_decoders.parity import (
    assert_equal_gradients,
    assert_equal_tensors,
    assert_near_in_bfloat16,
    theirs,
)

T5, MT5 = families()["t5"], families()["mt5"]
TARGETS = torch.as_tensor(np.random.default_rng(0).integers(1, 95, (len(TEXTS), 7)))
inputs_of = functools.partial(parity.inputs_of, targets=TARGETS, start=0)
assert_equal_logits = functools.partial(parity.assert_equal_logits, targets=TARGETS, start=0)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A folder of a tiny T5, its model and its tokenizer in Transformers, and what we read of it."""
    folder = tmp_path_factory.mktemp("tiny") / "t5"
    model, tokenizer = write_folder(folder)
    return folder, model, tokenizer, read_encoder_decoder(folder)


@pytest.mark.thorough
def test_logits_are_those_of_transformers_with_padding_on_both_sides(tiny):
    _, model, tokenizer, held = tiny
    assert_equal_logits(held, model, tokenizer)


@pytest.mark.thorough
def test_gradients_are_those_of_transformers(tiny):
    _, model, tokenizer, held = tiny
    found = assert_equal_gradients(held, model, inputs_of(tokenizer), TARGETS, T5)
    assert any("relative_attention_bias" in name for name in found)


@pytest.mark.thorough
def test_bfloat16_activations_stay_within_three_percent_of_the_largest_value(tiny):
    _, model, tokenizer, held = tiny
    assert_near_in_bfloat16(held, model, inputs_of(tokenizer))


NAMES = [*T5.fields, "pad_token_id", "eos_token_id", "decoder_start_token_id", "vocab_size", "is_encoder_decoder"]
UNTIED = {
    "T5": {"untied": True, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    "MT5": {"untied": True, "vocab_size": 99},
}


@pytest.mark.parametrize("kind", ["T5", pytest.param("T5 1.1", marks=pytest.mark.thorough), "MT5"])
def test_what_is_written_is_read_by_transformers_and_by_us_to_the_same_bits(kind, tmp_path):
    name = kind.removesuffix(" 1.1")
    model, tokenizer = write_folder(tmp_path / "in", name, **({} if kind == "T5" else UNTIED[name]))
    held = read_encoder_decoder(tmp_path / "in")
    assert held.config.embeddings == ("shared" if kind == "T5" else "shared_inputs")
    assert held.config.scale_logits == (kind == "T5")
    assert_equal_logits(held, model, tokenizer)
    written_as = {"model_type": name.lower()}
    assert save_encoder_decoder(tmp_path / "out", held, **written_as) == f"{name}ForConditionalGeneration"
    again = read_encoder_decoder(tmp_path / "out")
    assert (again.config, again.vocabulary) == (held.config, held.vocabulary)
    chex.assert_trees_all_equal(again.params, held.params)
    found, report = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not any(report.values())
    assert type(found) is type(model)
    assert_equal_tensors(found, model)
    written, before = (json.loads((tmp_path / part / "config.json").read_text()) for part in ("out", "in"))
    names = [each for each in NAMES if each != "n_positions"]
    assert {each: written[each] for each in names} == {each: before[each] for each in names}
    if kind == "T5":
        read = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
        assert read(TEXTS)["input_ids"] == tokenizer(TEXTS)["input_ids"]
        assert (read.pad_token, read.eos_token, read.unk_token) == ("<pad>", "</s>", "<unk>")
        batch = inputs_of(tokenizer)
        np.testing.assert_allclose(theirs(found.eval(), batch), theirs(model, batch), atol=1e-5)


def with_tokenizer(folder, target):
    for file in folder.glob("tokenizer*"):
        (target / file.name).write_bytes(file.read_bytes())
    return target


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_weights_in_several_files_are_read(dtype, tiny, tmp_path):
    folder, model, _, held = tiny
    made = make_model(vocab_size=model.config.vocab_size).to(dtype)
    made.save_pretrained(tmp_path, max_shard_size="8KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 1
    kind = {torch.bfloat16: jnp.bfloat16, torch.float16: jnp.float16}[dtype]
    rounded = jax.tree.map(lambda x: np.asarray(jnp.asarray(x, kind), np.float32), held.params)
    chex.assert_trees_all_equal(read_encoder_decoder(with_tokenizer(folder, tmp_path)).params, rounded)


def with_tensors(tiny, tmp_path, tensors):
    with_tokenizer(tiny[0], tmp_path)
    (tmp_path / "config.json").write_text((tiny[0] / "config.json").read_text())
    save_file(tensors, tmp_path / "model.safetensors")
    return tmp_path


READ = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"


@pytest.mark.parametrize(
    "names",
    [
        ("shared", "encoder.embed_tokens", "decoder.embed_tokens", "lm_head"),
        ("encoder.embed_tokens",),
        ("decoder.embed_tokens",),
        ("lm_head",),
        ("decoder.embed_tokens", "lm_head"),
    ],
    ids=" ".join,
)
def test_the_table_may_have_each_of_its_names_and_copies(names, tiny, tmp_path):
    tensors = load_file(tiny[0] / "model.safetensors")
    table = tensors.pop("shared.weight")
    tensors |= {f"{name}.weight": table for name in names} | {READ: np.zeros((8, 2), np.float32)}
    read = read_encoder_decoder(with_tensors(tiny, tmp_path, tensors))
    assert read.config == tiny[3].config
    chex.assert_trees_all_equal(read.params, tiny[3].params)


def test_what_does_not_fit_is_named(tiny, tmp_path):
    tensors = load_file(tiny[0] / "model.safetensors")
    del tensors["decoder.block.1.layer.2.DenseReluDense.wi.weight"]
    tensors |= {
        "classification_head.dense.weight": np.zeros((16, 16), np.float32),
        "encoder.embed_tokens.weight": tensors["shared.weight"] + 1.0,
        "encoder.final_layer_norm.weight": np.full(16, np.nan, np.float32),
    }
    with pytest.raises(WeightsError) as caught:
        read_encoder_decoder(with_tensors(tiny, tmp_path, tensors))
    first, *lines = str(caught.value).splitlines()
    assert first.endswith("tensors that do not fit this T5: 4")
    assert sorted(lines[:4]) == [
        "  encoder.embed_tokens.weight is not tied: it differs from shared.weight",
        "  encoder.final_layer_norm.weight holds infinity or NaN",
        "  missing: decoder.block.1.layer.2.DenseReluDense.wi.weight (20, 16)",
        "  unknown: classification_head.dense.weight (16, 16)",
    ]
    assert "--ignore classification_head." in lines[4]


def test_an_output_layer_that_differs_from_the_table_is_one_of_its_own_as_in_transformers(tiny, tmp_path):
    folder, _, tokenizer, _ = tiny
    model = untie(make_model(vocab_size=104))
    save_untied(model, tmp_path)
    held = read_encoder_decoder(with_tokenizer(folder, tmp_path))
    assert (held.config.embeddings, held.config.scale_logits) == ("shared_inputs", True)
    assert_equal_logits(held, transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path).eval(), tokenizer)


def test_an_output_layer_that_the_config_says_is_not_the_table_must_be_in_the_file(tiny, tmp_path):
    """As in files of T5 1.1 that were written without their head."""
    folder = tiny[0]
    shutil.copytree(folder, tmp_path / "bare")
    settings = json.loads((folder / "config.json").read_text()) | {"tie_word_embeddings": False}
    (tmp_path / "bare" / "config.json").write_text(json.dumps(settings))
    with pytest.raises(WeightsError, match=r"missing: lm_head.weight \(104, 16\)"):
        read_encoder_decoder(tmp_path / "bare")


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("T5", {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False, "d_kv": 4, "num_decoder_layers": 1}),
        ("MT5", {}),
        *(
            pytest.param(kind, changes, marks=pytest.mark.thorough)
            for kind, changes in [
                ("T5", {"scale_decoder_outputs": False}),
                ("T5", {"feed_forward_proj": "gelu"}),
                ("T5", {"feed_forward_proj": "gelu_new"}),
                ("T5", {"feed_forward_proj": "gated-relu"}),
                ("T5", {"feed_forward_proj": "gated-gelu_new"}),
                ("T5", {"tie_word_embeddings": False}),
                ("T5", {"d_kv": 8}),
                ("T5", {"d_model": 12}),
                ("T5", {"d_ff": 7}),
                ("T5", {"num_heads": 3}),
                ("T5", {"num_layers": 1}),
                ("T5", {"num_layers": 1, "num_decoder_layers": 3}),
                ("T5", {"relative_attention_num_buckets": 32}),
                ("T5", {"relative_attention_max_distance": 6}),
                ("T5", {"layer_norm_epsilon": 0.3}),
                ("T5", {"vocab_size": 99}),
                ("T5", {"vocab_size": 128}),
                ("T5", {"dropout_rate": 0.3, "classifier_dropout": 0.2, "initializer_factor": 0.1}),
                ("MT5", {"feed_forward_proj": "relu", "layer_norm_epsilon": 0.3}),
            ]
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_options_of_the_config_change_logits_as_in_transformers(kind, changes, tiny, tmp_path):
    folder, _, tokenizer, _ = tiny
    model = make_model(kind, **{"vocab_size": 104, **changes})
    model.save_pretrained(tmp_path)
    held = read_encoder_decoder(with_tokenizer(folder, tmp_path))
    assert_equal_logits(held, model, tokenizer)
    save_encoder_decoder(tmp_path / "again", held)
    again = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "again").eval()
    assert_equal_tensors(again, model)
    batch = inputs_of(tokenizer)
    np.testing.assert_allclose(theirs(again, batch), theirs(model, batch), atol=1e-5)
    assert read_encoder_decoder(tmp_path / "again").config == held.config


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"feed_forward_proj": "gated-silu"}, "feed_forward_proj 'gated-silu', expected 'relu' or"),
        ({"dense_act_fn": "gelu"}, "dense_act_fn 'gelu', expected 'relu'"),
        ({"is_gated_act": True}, r"config\.json: is_gated_act True, expected False"),
        ({"dense_act_fn": "gelu_new", "feed_forward_proj": "absent"}, "dense_act_fn 'gelu_new', expected 'relu'"),
        ({"is_encoder_decoder": False}, "is_encoder_decoder False, expected True"),
        ({"eos_token_id": 2}, "eos_token_id 2, expected 1"),
        ({"pad_token_id": 3}, "pad_token_id 3, expected 0"),
        ({"decoder_start_token_id": "0"}, "decoder_start_token_id must be the id of a token, got '0'"),
        ({"decoder_start_token_id": 104}, "decoder_start_token_id must be below vocab_size 104, got 104"),
        ({"tie_word_embeddings": 1}, "tie_word_embeddings must be true or false, got 1"),
        ({"scale_decoder_outputs": "yes"}, "scale_decoder_outputs must be true or false, got 'yes'"),
        ({"d_kv": "4"}, "d_kv '4', expected a whole number or null"),
        ({"d_model": "absent"}, "no d_model"),
        ({"dropout_rate": 2.0}, "dropout_rate"),
        ({"relative_attention_max_distance": 0}, "max_distance"),
        ({"rotary_dim": 8}, "unknown settings: rotary_dim"),
        ({"model_type": "umt5"}, "model_type must be one of bart, marian, mt5, t5, got 'umt5'"),
        ({"vocab_size": 98}, "the tokenizer has 99 tokens, but the model has 98 embeddings"),
    ],
    ids=str,
)
def test_settings_that_are_not_supported_are_refused_by_name(changes, message, tiny, tmp_path):
    settings = json.loads((tiny[0] / "config.json").read_text()) | changes
    settings = {name: value for name, value in settings.items() if value != "absent"}
    (with_tokenizer(tiny[0], tmp_path) / "config.json").write_text(json.dumps(settings))
    with pytest.raises(PretrainedError, match=message):
        read_encoder_decoder(tmp_path)


OLDER = {
    **{"_name_or_path": "x", "architectures": ["T5ForConditionalGeneration"], "n_positions": 512, "output_past": True},
    **{"dense_act_fn": "relu", "is_gated_act": False, "use_cache": True, "tokenizer_class": "T5Tokenizer"},
    "task_specific_params": {"summarization": {"num_beams": 4, "prefix": "summarize: "}},
    "feed_forward_proj": "relu",
}
"""What the files of the released T5 and mT5 have besides the settings of today."""


@pytest.mark.parametrize("family", [T5, MT5], ids=["t5", "mt5"])
def test_the_settings_of_released_files_are_known(family):
    assert family.rules.problems(OLDER) == []


def test_settings_that_a_file_leaves_out_have_the_defaults_of_transformers(tiny, tmp_path):
    folder, _, _, held = tiny
    settings = json.loads((folder / "config.json").read_text())
    needed = ("num_layers", "num_heads", "d_model", "d_kv", "d_ff", "vocab_size", "model_type")
    buckets = ("relative_attention_num_buckets", "relative_attention_max_distance")
    with_tokenizer(folder, tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({name: settings[name] for name in (*needed, *buckets)}))
    (tmp_path / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    assert read_encoder_decoder(tmp_path).config == held.config
    assert held.vocabulary.start == held.vocabulary.padding == 0
    for family, kind in ((T5, transformers.T5Config()), (MT5, transformers.MT5Config())):
        ours = {theirs: family.defaults[name] for theirs, name in family.fields.items() if name in family.defaults}
        expected = {name: kind.to_dict().get(name, 512) for name in ours}
        ours["feed_forward_proj"] = next(
            n for n, v in T5.values["feed_forward_proj"].items() if v == ours["feed_forward_proj"]
        )
        assert ours == expected
