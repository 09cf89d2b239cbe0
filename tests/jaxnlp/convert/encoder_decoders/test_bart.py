"""A BART computes what Transformers computes, and goes in and out without a change of a bit."""

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

from jaxnlp.convert.encoder_decoder_weights import to_huggingface
from jaxnlp.convert.encoder_decoders.bart import FAMILY
from jaxnlp.convert.folders import PretrainedError
from jaxnlp.convert.pretrained_encoder_decoder import read_encoder_decoder, save_encoder_decoder
from jaxnlp.convert.settings import GENERATION_SETTINGS
from jaxnlp.convert.tensors import WeightsError
from tests.bart_folders import make_model, save_tokenizer, write_folder
from tests.encoder_folders import TEXTS
from tests.jaxnlp.convert.encoder_decoders import parity
from tests.jaxnlp.convert.encoder_decoders.parity import (
    assert_equal_gradients,
    assert_equal_tensors,
    assert_near_in_bfloat16,
    theirs,
)

TARGETS = torch.as_tensor(np.random.default_rng(0).integers(3, 300, (len(TEXTS), 7)))
inputs_of = functools.partial(parity.inputs_of, targets=TARGETS, start=2)
assert_equal_logits = functools.partial(parity.assert_equal_logits, targets=TARGETS, start=2)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A folder of a tiny BART, its model and its tokenizer in Transformers, and what we read of it."""
    folder = tmp_path_factory.mktemp("tiny") / "bart"
    model, tokenizer = write_folder(folder)
    return folder, model, tokenizer, read_encoder_decoder(folder)


@pytest.mark.thorough
def test_logits_are_those_of_transformers_with_padding_on_both_sides(tiny):
    _, model, tokenizer, held = tiny
    assert_equal_logits(held, model, tokenizer)


@pytest.mark.thorough
def test_gradients_are_those_of_transformers(tiny):
    _, model, tokenizer, held = tiny
    found = assert_equal_gradients(held, model, inputs_of(tokenizer), TARGETS, FAMILY)
    positions = found["model.decoder.embed_positions.weight"]
    assert not positions[[0, 1, 9]].any()
    assert positions[2:9].all()


@pytest.mark.thorough
def test_bfloat16_activations_stay_within_three_percent_of_the_largest_value(tiny):
    _, model, tokenizer, held = tiny
    assert_near_in_bfloat16(held, model, inputs_of(tokenizer))


def test_the_tensors_are_those_of_the_class_in_transformers(tiny):
    _, model, _, held = tiny
    found = to_huggingface(held.params, held.config, FAMILY)
    assert {name: array.shape for name, array in found.items()} == {
        name: tuple(tensor.shape) for name, tensor in model.named_parameters()
    }


def with_tokenizer(folder, target):
    target.mkdir(exist_ok=True)
    for file in folder.glob("tokenizer*"):
        (target / file.name).write_bytes(file.read_bytes())
    return target


def saved(model, tiny, folder):
    model.save_pretrained(folder)
    return read_encoder_decoder(with_tokenizer(tiny[0], folder))


def assert_written_as_it_was_read(held, model, tokenizer, folder):
    """What is written is read by Transformers and by us to the same bits."""
    assert save_encoder_decoder(folder, held) == "BartForConditionalGeneration"
    again = read_encoder_decoder(folder)
    assert (again.config, again.vocabulary) == (held.config, held.vocabulary)
    chex.assert_trees_all_equal(again.params, held.params)
    found, report = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder, output_loading_info=True)
    assert not any(report.values())
    assert_equal_tensors(found, model)
    batch = inputs_of(tokenizer)
    np.testing.assert_allclose(theirs(found.eval(), batch), theirs(model, batch), atol=1e-5)
    return found


def test_what_is_written_is_read_by_transformers_and_by_us_to_the_same_bits(tiny, tmp_path):
    folder, model, tokenizer, held = tiny
    found = assert_written_as_it_was_read(held, model, tokenizer, tmp_path / "out")
    written, before = (json.loads((part / "config.json").read_text()) for part in (tmp_path / "out", folder))
    names = [*FAMILY.fields, "pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id", "vocab_size"]
    assert {each: written[each] for each in names} == {each: before[each] for each in names}
    assert (found.generation_config.forced_bos_token_id, found.generation_config.forced_eos_token_id) == (None, 2)
    read = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    assert read(TEXTS)["input_ids"] == tokenizer(TEXTS)["input_ids"]
    assert read.special_tokens_map == tokenizer.special_tokens_map


@pytest.mark.thorough
def test_an_output_layer_of_its_own_and_biases_of_logits_go_in_and_out(tiny, tmp_path):
    model = make_model(vocab_size=346, tie_word_embeddings=False)
    model.final_logits_bias.copy_(torch.randn(1, 346))
    with torch.no_grad():
        for side in (model.model.encoder, model.model.decoder):
            side.embed_tokens.weight.copy_(model.model.shared.weight)
    held = saved(model, tiny, tmp_path / "in")
    assert (held.config.embeddings, held.config.output_bias) == ("shared_inputs", True)
    assert_equal_logits(held, model, tiny[2])
    assert_written_as_it_was_read(held, model, tiny[2], tmp_path / "out")


@pytest.mark.sweep(1)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_weights_in_several_files_are_read(dtype, tiny, tmp_path):
    made = make_model(vocab_size=346).to(dtype)
    made.save_pretrained(tmp_path, max_shard_size="8KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 1
    kind = {torch.bfloat16: jnp.bfloat16, torch.float16: jnp.float16}[dtype]
    rounded = jax.tree.map(lambda x: np.asarray(jnp.asarray(x, kind), np.float32), tiny[3].params)
    chex.assert_trees_all_equal(read_encoder_decoder(with_tokenizer(tiny[0], tmp_path)).params, rounded)


@pytest.mark.parametrize(
    "changes",
    [
        {"scale_embedding": True, "activation_function": "relu", "decoder_layers": 1},
        *(
            pytest.param(changes, marks=pytest.mark.thorough)
            for changes in [
                {"activation_function": "gelu_new"},
                {"activation_function": "silu"},
                {"encoder_layers": 1, "decoder_layers": 3},
                {"encoder_attention_heads": 4, "decoder_attention_heads": 4},
                {"encoder_ffn_dim": 7, "decoder_ffn_dim": 7},
                {"d_model": 12},
                {"max_position_embeddings": 200},
                {"vocab_size": 341},
                {"dropout": 0.3, "attention_dropout": 0.2},
                {"activation_dropout": 0.3, "encoder_layerdrop": 0.2, "init_std": 0.1, "classifier_dropout": 0.2},
            ]
        ),
    ],
    ids=lambda value: " ".join(value),
)
def test_options_of_the_config_change_logits_as_in_transformers(changes, tiny, tmp_path):
    model = make_model(**{"vocab_size": 346, **changes})
    held = saved(model, tiny, tmp_path / "in")
    assert_equal_logits(held, model, tiny[2])
    assert_written_as_it_was_read(held, model, tiny[2], tmp_path / "out")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"activation_function": "tanh"}, "activation_function 'tanh', expected 'gelu' or"),
        ({"decoder_attention_heads": 4}, "encoder_attention_heads 2, expected 4"),
        ({"decoder_ffn_dim": 24}, "encoder_ffn_dim 20, expected 24"),
        ({"hidden_size": 8}, "hidden_size 8, expected 16"),
        ({"num_hidden_layers": 3}, "num_hidden_layers 3, expected 2"),
        ({"normalize_before": True}, "normalize_before True, expected False"),
        ({"static_position_embeddings": True}, "static_position_embeddings True, expected False"),
        ({"scale_embedding": 1}, "scale_embedding 1, expected true or false"),
        ({"decoder_ffn_dim": "absent"}, "no decoder_ffn_dim"),
        ({"eos_token_id": 3, "forced_eos_token_id": 3}, "eos_token_id 3, expected 2"),
        ({"pad_token_id": 3}, "pad_token_id 3, expected 1"),
        ({"rotary_dim": 8}, "unknown settings: rotary_dim"),
    ],
    ids=str,
)
def test_settings_that_are_not_supported_are_refused_by_name(changes, message, tiny, tmp_path):
    settings = json.loads((tiny[0] / "config.json").read_text()) | changes
    settings = {name: value for name, value in settings.items() if value != "absent"}
    (with_tokenizer(tiny[0], tmp_path) / "config.json").write_text(json.dumps(settings))
    with pytest.raises(PretrainedError, match=message):
        read_encoder_decoder(tmp_path)


def copied(tiny, target):
    for file in tiny[0].iterdir():
        (target / file.name).write_bytes(file.read_bytes())
    return target


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bad_words_ids": [[1, 3]]}, r"generation_config\.json: not supported: bad_words_ids \[\[1, 3\]\], expected"),
        ({"repetition_penalty": 1.2}, r"repetition_penalty 1\.2, expected"),
        ({"forced_bos_token_id": 400}, "forced_bos_token_id must be from 0 to 345, or null, got 400"),
        ({"forced_eos_token_id": 5}, "forced_eos_token_id 5, expected eos_token_id or null"),
        ({"window": 3}, "unknown settings: window"),
        ({"decoder_start_token_id": 5}, r"generation_config\.json: decoder_start_token_id 5, but by config\.json"),
        ({"decoder_start_token_id": None, "bos_token_id": 0}, "bos_token_id 0, but by"),
        ({"eos_token_id": [2, 7]}, r"eos_token_id \[2, 7\], but by"),
    ],
    ids=str,
)
def test_settings_of_generation_that_are_not_supported_are_refused_by_name(changes, message, tiny, tmp_path):
    file = copied(tiny, tmp_path) / "generation_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    with pytest.raises(PretrainedError, match=message):
        read_encoder_decoder(tmp_path)


def test_forced_tokens_are_those_of_the_generation_config_and_else_of_the_config(tiny, tmp_path):
    def forced(folder):
        held = read_encoder_decoder(folder).vocabulary
        theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).generation_config
        constraints = held.constraints
        assert constraints.forced_bos == theirs.forced_bos_token_id
        assert (held.end if constraints.forced_eos else None) == theirs.forced_eos_token_id
        return constraints.forced_bos, constraints.forced_eos

    copied(tiny, tmp_path)
    assert forced(tmp_path) == (None, True)
    generation, config = tmp_path / "generation_config.json", tmp_path / "config.json"
    generation.write_text('{"forced_bos_token_id": 0}')
    assert forced(tmp_path) == (0, False)
    generation.unlink()
    settings = json.loads(config.read_text())
    config.write_text(json.dumps(settings | {"forced_bos_token_id": 0, "forced_eos_token_id": 2}))
    assert forced(tmp_path) == (0, True)
    config.write_text(json.dumps(settings | {"forced_eos_token_id": None}))
    assert forced(tmp_path) == (None, False)
    config.write_text(json.dumps({name: x for name, x in settings.items() if name != "forced_eos_token_id"}))
    assert forced(tmp_path) == (None, False)
    config.write_text(json.dumps(settings | {"bad_words_ids": "a"}))
    with pytest.raises(PretrainedError, match=r"config\.json: not supported: bad_words_ids"):
        read_encoder_decoder(tmp_path)


@pytest.mark.thorough
def test_a_mask_without_an_embedding_is_an_ordinary_word(tiny, tmp_path):
    model = make_model(vocab_size=340)
    held = saved(model, tiny, tmp_path / "in")
    assert (tiny[3].vocabulary.id_of("<mask>"), held.vocabulary.id_of("<mask>")) == (340, None)
    assert held.vocabulary.size == 340
    assert max(held.vocabulary.encode("a <mask> b")) < 340
    assert held.vocabulary.decode(held.vocabulary.encode("a <mask> b")) == "a <mask> b"
    assert_equal_logits(held, model, tiny[2])
    assert_written_as_it_was_read(held, model, tiny[2], tmp_path / "out")
    read = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    assert read(TEXTS)["input_ids"] == tiny[2](TEXTS)["input_ids"]
    make_model(vocab_size=339).save_pretrained(with_tokenizer(tiny[0], tmp_path / "less"))
    with pytest.raises(PretrainedError, match="the tokenizer has 341 tokens, but the model has 339 embeddings"):
        read_encoder_decoder(tmp_path / "less")


def test_every_setting_of_transformers_is_known():
    written = transformers.BartConfig().to_dict()
    assert FAMILY.rules.problems(written) == []
    assert set(transformers.GenerationConfig().to_dict()) - set(GENERATION_SETTINGS.names) == set()
    assert GENERATION_SETTINGS.problems(transformers.GenerationConfig().to_dict()) == []


OLDER = {
    **{"_num_labels": 3, "add_bias_logits": False, "add_final_layer_norm": False, "classif_dropout": 0.0},
    **{"extra_pos_embeddings": 2, "force_bos_token_to_be_generated": True, "normalize_before": False},
    **{"normalize_embedding": True, "num_hidden_layers": 12, "output_past": True, "prefix": " ", "save_step": 58},
    **{"static_position_embeddings": False, "gradient_checkpointing": False, "no_repeat_ngram_size": 3},
    **{"task_specific_params": {"summarization": {"num_beams": 4}}, "early_stopping": True, "min_length": 56},
    **{"forced_bos_token_id": 0, "length_penalty": 2.0, "max_length": 142, "num_beams": 4},
}
"""What the files of the released BARTs have besides the settings of today."""


def test_the_settings_of_released_files_are_known():
    assert FAMILY.rules.problems(OLDER) == []


def test_settings_that_a_file_leaves_out_have_the_defaults_of_transformers(tiny, tmp_path):
    folder, _, _, held = tiny
    settings = json.loads((folder / "config.json").read_text())
    left_out = ("dropout", "attention_dropout", "activation_function", "scale_embedding", "decoder_start_token_id")
    left_out += ("pad_token_id", "eos_token_id", "forced_eos_token_id")
    copied(tiny, tmp_path)
    kept = {name: value for name, value in settings.items() if name not in left_out}
    (tmp_path / "config.json").write_text(json.dumps(kept))
    assert read_encoder_decoder(tmp_path).config == held.config
    assert held.vocabulary.start == 2
    ours = {theirs: FAMILY.defaults[name] for theirs, name in FAMILY.fields.items() if name in FAMILY.defaults}
    ours["activation_function"] = "gelu"
    expected = transformers.BartConfig().to_dict()
    assert FAMILY.defaults["feed_forward"] == FAMILY.values["activation_function"]["gelu"]
    assert {**ours, **FAMILY.special} == {name: expected[name] for name in (*ours, *FAMILY.special)}


def with_tensors(tiny, tmp_path, tensors):
    with_tokenizer(tiny[0], tmp_path)
    (tmp_path / "config.json").write_text((tiny[0] / "config.json").read_text())
    save_file(tensors, tmp_path / "model.safetensors")
    return tmp_path


@pytest.mark.parametrize(
    "names",
    [
        ("model.shared", "model.encoder.embed_tokens", "model.decoder.embed_tokens", "lm_head"),
        ("model.encoder.embed_tokens",),
        ("lm_head",),
    ],
    ids=" ".join,
)
def test_the_table_may_have_each_of_its_names_and_copies(names, tiny, tmp_path):
    tensors = load_file(tiny[0] / "model.safetensors")
    table = tensors.pop("model.shared.weight")
    tensors |= {f"{name}.weight": table for name in names} | {"model.encoder.version": np.ones(1, np.float32)}
    read = read_encoder_decoder(with_tensors(tiny, tmp_path, tensors))
    assert read.config == tiny[3].config
    chex.assert_trees_all_equal(read.params, tiny[3].params)


def test_a_model_without_the_prefix_and_without_biases_of_logits_is_read(tiny, tmp_path):
    tensors = load_file(tiny[0] / "model.safetensors")
    tensors.pop("final_logits_bias")
    tensors = {name.removeprefix("model."): tensor for name, tensor in tensors.items()}
    chex.assert_trees_all_equal(read_encoder_decoder(with_tensors(tiny, tmp_path, tensors)).params, tiny[3].params)


def test_what_does_not_fit_is_named(tiny, tmp_path):
    tensors = load_file(tiny[0] / "model.safetensors")
    del tensors["model.decoder.layers.1.encoder_attn.q_proj.bias"]
    tensors |= {
        "classification_head.dense.weight": np.zeros((16, 16), np.float32),
        "model.encoder.embed_positions.weight": np.zeros((130, 16), np.float32),
    }
    with pytest.raises(WeightsError) as caught:
        read_encoder_decoder(with_tensors(tiny, tmp_path, tensors))
    first, *lines = str(caught.value).splitlines()
    assert first.endswith("tensors that do not fit this BART: 3")
    assert sorted(lines[:3]) == [
        "  missing: decoder.layers.1.encoder_attn.q_proj.bias (16,)",
        "  model.encoder.embed_positions.weight (130, 16), expected (132, 16)",
        "  unknown: classification_head.dense.weight (16, 16)",
    ]


def test_a_tokenizer_of_another_class_is_refused(tiny, tmp_path):
    save_tokenizer(tmp_path)
    (tmp_path / "config.json").write_text((tiny[0] / "config.json").read_text())
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "T5Tokenizer"}')
    with pytest.raises(PretrainedError, match="is not a Unigram tokenizer"):
        read_encoder_decoder(tmp_path)
