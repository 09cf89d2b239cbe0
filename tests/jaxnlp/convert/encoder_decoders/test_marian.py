"""A Marian computes what Transformers computes, and goes in and out without a change of a bit."""

import functools
import json

import chex
import numpy as np
import pytest
import torch
import transformers
from safetensors.numpy import load_file, save_file

import jaxnlp
from jaxnlp.convert.encoder_decoders.marian import FAMILY
from jaxnlp.convert.folders import PretrainedError
from jaxnlp.convert.pretrained_encoder_decoder import read_encoder_decoder, save_encoder_decoder
from jaxnlp.convert.settings import GENERATION_SETTINGS
from jaxnlp.convert.tensors import WeightsError
from jaxnlp.ops.positions import sinusoidal_positions
from tests.encoder_folders import TEXTS
from tests.jaxnlp.convert.encoder_decoders import parity
from tests.jaxnlp.convert.encoder_decoders.parity import (
    assert_equal_gradients,
    assert_equal_tensors,
    assert_near_in_bfloat16,
    theirs,
)
from tests.marian_folders import make_model, write_folder, write_two_tables

SIZE = 94
TARGETS = torch.as_tensor(np.random.default_rng(0).integers(3, SIZE - 1, (len(TEXTS), 7)))
inputs_of = functools.partial(parity.inputs_of, targets=TARGETS, start=SIZE - 1)
assert_equal_logits = functools.partial(parity.assert_equal_logits, targets=TARGETS, start=SIZE - 1)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A folder of a tiny Marian, its model and its tokenizer in Transformers, and what we read of it."""
    folder = tmp_path_factory.mktemp("tiny") / "marian"
    model, tokenizer = write_folder(folder)
    assert len(tokenizer) == SIZE
    return folder, model, tokenizer, read_encoder_decoder(folder)


def copied(tiny, target):
    """The files of the folder without its weights and settings of generation."""
    target.mkdir(exist_ok=True)
    for file in tiny[0].iterdir():
        if file.suffix != ".safetensors" and file.name != "generation_config.json":
            (target / file.name).write_bytes(file.read_bytes())
    return target


def saved(model, tiny, folder):
    model.save_pretrained(copied(tiny, folder))
    return read_encoder_decoder(folder)


def assert_written_as_it_was_read(held, model, tokenizer, folder):
    """What is written is read by Transformers and by us to the same bits."""
    assert save_encoder_decoder(folder, held) == "MarianMTModel"
    again = read_encoder_decoder(folder)
    assert (again.config, again.vocabulary) == (held.config, held.vocabulary)
    chex.assert_trees_all_equal(again.params, held.params)
    found, report = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder, output_loading_info=True)
    assert not any(report.values())
    assert_equal_tensors(found, model)
    batch = inputs_of(tokenizer)
    np.testing.assert_allclose(theirs(found.eval(), batch), theirs(model, batch), atol=1e-5)
    return found


def test_logits_are_those_of_transformers_with_padding_on_both_sides(tiny):
    _, model, tokenizer, held = tiny
    assert_equal_logits(held, model, tokenizer)


@pytest.mark.thorough
def test_gradients_are_those_of_transformers(tiny):
    _, model, tokenizer, held = tiny
    for table in (model.model.shared, model.model.encoder.embed_tokens, model.model.decoder.embed_tokens):
        table.padding_idx = None  # otherwise Transformers leaves out that of the start symbol
    model.final_logits_bias.requires_grad_()
    found = assert_equal_gradients(held, model, inputs_of(tokenizer), TARGETS, FAMILY)
    model.final_logits_bias.requires_grad_(False)
    assert found["final_logits_bias"].all()


@pytest.mark.thorough
def test_bfloat16_activations_stay_within_three_percent_of_the_largest_value(tiny):
    _, model, tokenizer, held = tiny
    assert_near_in_bfloat16(held, model, inputs_of(tokenizer))


def test_what_is_written_is_read_by_transformers_and_by_us_to_the_same_bits(tiny, tmp_path):
    folder, model, tokenizer, held = tiny
    found = assert_written_as_it_was_read(held, model, tokenizer, tmp_path)
    written, before = (json.loads((part / "config.json").read_text()) for part in (tmp_path, folder))
    names = {*FAMILY.fields, "pad_token_id", "eos_token_id", "decoder_start_token_id", "vocab_size"}
    names -= {"activation_function"}
    assert {each: written[each] for each in names} == {each: before[each] for each in names}
    assert (before["activation_function"], written["activation_function"]) == ("swish", "silu")
    generation = found.generation_config
    assert (generation.bad_words_ids, generation.forced_eos_token_id) == ([[SIZE - 1]], 0)
    assert generation.forced_bos_token_id is None
    read = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert type(read) is type(tokenizer)
    assert read(TEXTS, text_target=TEXTS) == tokenizer(TEXTS, text_target=TEXTS)
    assert read.special_tokens_map == tokenizer.special_tokens_map


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param(changes, marks=pytest.mark.thorough)
        for changes in [
            {"scale_embedding": False, "activation_function": "relu", "decoder_layers": 1},
            {"activation_function": "gelu"},
            {"activation_function": "gelu_new"},
            {"encoder_layers": 1, "decoder_layers": 3},
            {"encoder_attention_heads": 4, "decoder_attention_heads": 4},
            {"encoder_ffn_dim": 7, "decoder_ffn_dim": 7},
            {"d_model": 12},
            {"max_position_embeddings": 200},
            {"vocab_size": 99, "decoder_vocab_size": 99},
            {"dropout": 0.3, "attention_dropout": 0.2},
            {"activation_dropout": 0.3, "encoder_layerdrop": 0.2, "init_std": 0.1},
            {"tie_word_embeddings": False},
        ]
    ],
    ids=lambda value: " ".join(value),
)
def test_options_of_the_config_change_logits_as_in_transformers(changes, tiny, tmp_path):
    size = changes.get("vocab_size", SIZE)
    model = make_model(size, **{"pad_token_id": SIZE - 1, "decoder_start_token_id": SIZE - 1, **changes})
    if "tie_word_embeddings" in changes:
        with torch.no_grad():
            for side in (model.model.encoder, model.model.decoder):
                side.embed_tokens.weight.copy_(model.model.shared.weight)
    held = saved(model, tiny, tmp_path / "in")
    assert held.config.ties_output == ("tie_word_embeddings" not in changes)
    assert_equal_logits(held, model, tiny[2])
    assert_written_as_it_was_read(held, model, tiny[2], tmp_path / "out")


@pytest.mark.thorough
@pytest.mark.parametrize("changes", [{}, {"tie_word_embeddings": False}])
def test_two_vocabularies_have_a_table_each_and_go_in_and_out(changes, tmp_path):
    model, tokenizer = write_two_tables(tmp_path / "in", **changes)
    held = read_encoder_decoder(tmp_path / "in")
    assert held.config.embeddings == ("separate" if changes else "tied")
    of_targets = {"targets": TARGETS % 70 + 3, "start": tokenizer.pad_token_id}
    parity.assert_equal_logits(held, model, tokenizer, **of_targets)
    assert save_encoder_decoder(tmp_path / "out", held) == "MarianMTModel"
    again = read_encoder_decoder(tmp_path / "out")
    assert (again.config, again.vocabulary) == (held.config, held.vocabulary)
    chex.assert_trees_all_equal(again.params, held.params)
    found, report = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not any(report.values())
    batch = parity.inputs_of(transformers.AutoTokenizer.from_pretrained(tmp_path / "out"), **of_targets)
    np.testing.assert_allclose(theirs(found.eval(), batch), theirs(model, batch), atol=1e-6)
    run, sources = jaxnlp.load_pretrained(tmp_path / "in"), [TEXTS[1], "the cat"]
    expected = []
    for text in sources:
        ids = tokenizer(text, return_tensors="pt")
        most = 2 * ids["input_ids"].shape[1] + 10
        (written,) = model.generate(**ids, max_new_tokens=most, do_sample=False, num_beams=1).tolist()
        expected.append(run.processor.target.decode(written))
    assert run.translate(sources, num_beams=1) == expected
    settings = json.loads((tmp_path / "in" / "config.json").read_text())
    (tmp_path / "in" / "config.json").write_text(json.dumps(settings | {"share_encoder_decoder_embeddings": True}))
    with pytest.raises(PretrainedError, match=r"embeddings true, but the tokenizer has separate_vocabs"):
        read_encoder_decoder(tmp_path / "in")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"share_encoder_decoder_embeddings": 1}, "share_encoder_decoder_embeddings must be true or false, got 1"),
        (
            {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 99},
            r"vocab_size and decoder_vocab_size \(94, 99\), expected the sizes of both vocabularies, \(94, 94\)",
        ),
        ({"decoder_vocab_size": 90}, "decoder_vocab_size 90, expected 94"),
        ({"activation_function": "tanh"}, "activation_function 'tanh', expected 'gelu' or"),
        ({"decoder_attention_heads": 4}, "encoder_attention_heads 2, expected 4"),
        ({"normalize_before": True}, "normalize_before True, expected False"),
        ({"normalize_embedding": True}, "normalize_embedding True, expected False"),
        ({"pad_token_id": 3}, "pad_token_id 3, expected 93"),
        (
            {"bad_words_ids": [[1, 2]]},
            r"config\.json: not supported: bad_words_ids \[\[1, 2\]\], expected lists of one",
        ),
        ({"bad_words_ids": [[94]]}, "from 0 to 93"),
        ({"min_length": -1}, "min_length must be a whole number or null, got -1"),
        ({"tokenizer_class": "T5Tokenizer"}, "tokenizer_class 'T5Tokenizer', expected 'MarianTokenizer'"),
        ({"rotary_dim": 8}, "unknown settings: rotary_dim"),
    ],
    ids=str,
)
def test_settings_that_are_not_supported_are_refused_by_name(changes, message, tiny, tmp_path):
    settings = json.loads((tiny[0] / "config.json").read_text()) | changes
    copied(tiny, tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(settings))
    if "tokenizer_class" in changes:
        own = json.loads((tmp_path / "tokenizer_config.json").read_text())
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({**own, **changes}))
    with pytest.raises(PretrainedError, match=message):
        read_encoder_decoder(tmp_path)


def test_forced_and_excluded_tokens_are_those_of_the_generation_config_and_else_of_the_config(tiny, tmp_path):
    def forced(folder):
        held = read_encoder_decoder(folder).vocabulary
        theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).generation_config
        constraints = held.constraints
        assert [[one] for one in constraints.suppressed_tokens] == (theirs.bad_words_ids or [])
        assert (held.end if constraints.forced_eos else None) == theirs.forced_eos_token_id
        return constraints.forced_eos, constraints.suppressed_tokens

    copied(tiny, tmp_path)
    (tmp_path / "model.safetensors").write_bytes((tiny[0] / "model.safetensors").read_bytes())
    assert forced(tmp_path) == (True, ())
    generation, config = tmp_path / "generation_config.json", tmp_path / "config.json"
    generation.write_text('{"bad_words_ids": [[93], [5]]}')
    assert forced(tmp_path) == (False, (93, 5))
    generation.unlink()
    settings = json.loads(config.read_text())
    config.write_text(json.dumps(settings | {"bad_words_ids": [[93]]}))
    assert forced(tmp_path) == (True, (93,))
    generation.write_text('{"bad_words_ids": [[0], [93]], "eos_token_id": 0}')
    suppressed = read_encoder_decoder(tmp_path).vocabulary.constraints.suppressed_tokens
    assert suppressed == (93,)  # Transformers leaves out the end symbol


@pytest.mark.parametrize(
    ("given", "least"),
    [({"min_length": 5, "renormalize_logits": True}, 4), ({"min_length": 0}, 0), ({"min_new_tokens": 3}, 3)],
)
def test_a_minimum_length_goes_in_and_out_and_is_not_kept_in_training(given, least, tiny, tmp_path):
    copied(tiny, tmp_path)
    (tmp_path / "model.safetensors").write_bytes((tiny[0] / "model.safetensors").read_bytes())
    (tmp_path / "generation_config.json").write_text(json.dumps(given))
    held = read_encoder_decoder(tmp_path)
    constraints = held.vocabulary.constraints
    assert (constraints.min_length, constraints.renormalize) == (least, "renormalize_logits" in given)
    save_encoder_decoder(tmp_path / "out", held)
    assert read_encoder_decoder(tmp_path / "out").vocabulary == held.vocabulary
    run = jaxnlp.load_pretrained(tmp_path)
    adopted = run.model.config.adopt(run)
    unlimited = run.processor.symbols.constraints._replace(min_length=0)
    assert adopted.processor.symbols == run.processor.symbols._replace(constraints=unlimited)
    assert adopted.processor.shared
    assert len(adopted.notes) == (2 if least else 1)
    (tmp_path / "generation_config.json").write_text(json.dumps(given | {"renormalize_logits": 1}))
    with pytest.raises(PretrainedError, match="renormalize_logits must be true, false or null, got 1"):
        read_encoder_decoder(tmp_path)


def test_every_setting_of_transformers_is_known():
    written = transformers.MarianConfig().to_dict()
    assert FAMILY.rules.problems(written) == []
    assert GENERATION_SETTINGS.problems({"bad_words_ids": [[58100]], "renormalize_logits": True}) == []


OLDER = {
    **{"_num_labels": 3, "activation_function": "swish", "add_bias_logits": False, "add_final_layer_norm": False},
    **{"bad_words_ids": [[58100]], "bos_token_id": 0, "classif_dropout": 0.0, "classifier_dropout": 0.0},
    **{"decoder_vocab_size": 58101, "extra_pos_embeddings": 58101, "forced_eos_token_id": 0, "max_length": 512},
    **{"normalize_before": False, "normalize_embedding": False, "num_beams": 6, "num_hidden_layers": 6},
    **{"scale_embedding": True, "share_encoder_decoder_embeddings": True, "static_position_embeddings": True},
}
"""What the files of the released translators have besides the settings of today."""


def test_the_settings_of_released_files_are_known():
    assert FAMILY.rules.problems(OLDER) == []


def test_settings_that_a_file_leaves_out_have_the_defaults_of_transformers(tiny, tmp_path):
    expected = transformers.MarianConfig().to_dict()
    ours = {theirs: FAMILY.defaults[name] for theirs, name in FAMILY.fields.items() if name in FAMILY.defaults}
    assert FAMILY.defaults["feed_forward"] == FAMILY.values["activation_function"]["gelu"]
    ours["activation_function"] = "gelu"
    assert {**ours, **FAMILY.special} == {name: expected[name] for name in (*ours, *FAMILY.special)}


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_stored_positions_are_left_out_if_they_are_the_sines_and_else_refused(dtype, tiny, tmp_path):
    tensors = load_file(tiny[0] / "model.safetensors")
    stored = tiny[1].model.encoder.embed_positions.weight.numpy().astype(dtype)
    names = [f"model.{side}.embed_positions.weight" for side in ("encoder", "decoder")]
    save_file(tensors | dict.fromkeys(names, stored), copied(tiny, tmp_path) / "model.safetensors")
    chex.assert_trees_all_equal(read_encoder_decoder(tmp_path).params, tiny[3].params)
    for other in (np.asarray(sinusoidal_positions(130, 16)), stored[:100]):
        save_file(tensors | {names[1]: other}, tmp_path / "model.safetensors")
        with pytest.raises(WeightsError, match=r"decoder\.embed_positions\.weight is not the table of sines"):
            read_encoder_decoder(tmp_path)
