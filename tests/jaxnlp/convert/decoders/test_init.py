"""A decoder computes what Transformers computes, and goes in and out without a change of a bit."""

import functools
import itertools
import json
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers
from safetensors.numpy import load_file, save_file

from jaxnlp.convert.decoder_weights import to_huggingface
from jaxnlp.convert.decoders import families
from jaxnlp.convert.folders import PretrainedError
from jaxnlp.convert.pretrained_decoder import _fields_of, read_decoder, save_decoder
from jaxnlp.convert.tensors import WeightsError
from jaxnlp.nn.compute import EXACT, TransformerCompute
from tests.decoder_folders import make_model, write_folder
from tests.encoder_folders import TEXTS

FAMILIES = families()
GPT2 = FAMILIES["gpt2"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Of a family: a folder of a tiny model, the model and its tokenizer in Transformers, and what we read of it."""

    @functools.cache
    def make(model_type):
        folder = tmp_path_factory.mktemp("tiny") / model_type
        model, tokenizer = write_folder(folder, model_type=model_type)
        return folder, model, tokenizer, read_decoder(folder)

    return make


@pytest.fixture
def tiny(made):
    return made("gpt2")


@pytest.fixture(params=FAMILIES)
def each(request, made):
    return request.param, *made(request.param)


def inputs_of(tokenizer, side="right"):
    """What Transformers reads of texts of several lengths, with the positions of their tokens."""
    tokenizer.padding_side, tokenizer.pad_token = side, tokenizer.eos_token
    batch = tokenizer(TEXTS, padding=True, truncation=True, max_length=40, return_tensors="pt")
    positions = (batch["attention_mask"].cumsum(-1) - 1).clamp(min=0)
    return {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"], "position_ids": positions}


@functools.partial(jax.jit, static_argnums=0)
def logits_of(model, params, tokens):
    return model.apply({"params": params}, tokens)


def ours(held, batch, compute=EXACT):
    """Our logits, which have no need of a mask: texts with padding on their right."""
    model = type(held.config)(**{**vars(held.config), "compute": compute}).build(held.vocabulary)
    return np.asarray(logits_of(model, held.params, batch["input_ids"].numpy().astype(np.int32)))


def theirs(model, batch):
    with torch.no_grad():
        return model(**batch).logits.numpy()


def in_order(values, batch):
    """The rows of all tokens that are not padding, in the order of the texts."""
    return values[batch["attention_mask"].numpy().astype(bool)]


def assert_equal_logits(held, model, tokenizer, atol=2e-5):
    right, left = inputs_of(tokenizer), inputs_of(tokenizer, "left")
    found = in_order(ours(held, right), right)
    for batch in (right, left):
        assert not batch["attention_mask"].all()
        np.testing.assert_allclose(found, in_order(theirs(model, batch), batch), atol=atol)
    assert found.std(axis=0).min() > 0.05


@pytest.mark.sweep(1)
def test_logits_are_those_of_transformers_with_padding_on_both_sides(each):
    _, _, model, tokenizer, held = each
    assert_equal_logits(held, model, tokenizer)


@pytest.mark.sweep(1)
def test_gradients_are_those_of_transformers(each):
    model_type, _, model, tokenizer, held = each
    batch = inputs_of(tokenizer)
    tokens = batch["input_ids"].numpy().astype(np.int32)
    mask = batch["attention_mask"].numpy()[:, 1:].astype(bool)
    ours_of = held.config.build(held.vocabulary)

    def loss(params):
        scores = jax.nn.log_softmax(ours_of.apply({"params": params}, tokens)[:, :-1])
        return -jnp.where(mask, jnp.take_along_axis(scores, tokens[:, 1:, None], axis=-1)[..., 0], 0.0).sum()

    model.zero_grad()
    scores = model(**batch).logits[:, :-1].log_softmax(-1)
    nll = -scores.gather(-1, batch["input_ids"][:, 1:, None])[..., 0]
    (nll * torch.as_tensor(mask)).sum().backward()
    expected = {name: x.grad.numpy() for name, x in model.named_parameters()}
    found = to_huggingface(jax.device_get(jax.jit(jax.grad(loss))(held.params)), held.config, FAMILIES[model_type])
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        np.testing.assert_allclose(found[name], gradient, atol=1e-4 * max(1.0, np.abs(gradient).max()), err_msg=name)


@pytest.mark.sweep(1)
def test_bfloat16_activations_stay_within_three_percent_of_the_largest_value(each):
    _, _, model, tokenizer, held = each
    batch = inputs_of(tokenizer)
    found = in_order(ours(held, batch, TransformerCompute(dtype="bfloat16")), batch)
    expected = in_order(theirs(model, batch), batch)
    assert 0.0 < np.abs(found - expected).max() < 0.03 * np.abs(expected).max()


def test_what_is_written_is_read_by_transformers_and_by_us_to_the_same_bits(each, tmp_path):
    model_type, folder, model, tokenizer, held = each
    assert save_decoder(tmp_path / "again", held) == type(model).__name__
    again = read_decoder(tmp_path / "again")
    assert (again.config, again.vocabulary) == (held.config, held.vocabulary)
    chex.assert_trees_all_equal(again.params, held.params)
    found, report = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "again", output_loading_info=True)
    assert not any(report.values())
    assert_equal_tensors(found, model)
    written, before = (json.loads((path / "config.json").read_text()) for path in (tmp_path / "again", folder))
    names = [*FAMILIES[model_type].fields, "bos_token_id", "eos_token_id", "vocab_size"]
    names += ["rope_parameters"] if FAMILIES[model_type].rotary else []
    assert {name: written[name] for name in names} == {name: before[name] for name in names}
    read = transformers.AutoTokenizer.from_pretrained(tmp_path / "again")
    assert read(TEXTS)["input_ids"] == tokenizer(TEXTS)["input_ids"]
    assert (read.bos_token, read.eos_token) == (tokenizer.bos_token, tokenizer.eos_token)


def assert_equal_tensors(found, expected):
    held, others = found.state_dict(), expected.state_dict()
    assert held.keys() == others.keys()
    for name, tensor in others.items():
        assert torch.equal(held[name], tensor), name


def with_tokenizer(folder, target):
    for file in folder.glob("tokenizer*"):
        (target / file.name).write_bytes(file.read_bytes())
    return target


@pytest.mark.sweep(1)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_weights_in_several_files_are_read(dtype, each, tmp_path):
    model_type, folder, model, _, held = each
    make_model(model_type=model_type, vocab_size=model.config.vocab_size).to(dtype).save_pretrained(
        tmp_path, max_shard_size="8KB"
    )
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 1
    kind = {torch.bfloat16: jnp.bfloat16, torch.float16: jnp.float16}[dtype]
    rounded = jax.tree.map(lambda x: np.asarray(jnp.asarray(x, kind), np.float32), held.params)
    chex.assert_trees_all_equal(read_decoder(with_tokenizer(folder, tmp_path)).params, rounded)


def test_files_of_the_model_without_a_head_and_of_older_versions_give_the_same_parameters(tiny, tmp_path):
    folder, _, _, held = tiny
    tensors = load_file(folder / "model.safetensors")
    assert "transformer.wte.weight" in tensors
    bare = {name.removeprefix("transformer."): x for name, x in tensors.items()}
    for layer in range(2):
        bare[f"h.{layer}.attn.bias"] = np.ones((1, 1, 40, 40), bool)
        bare[f"h.{layer}.attn.masked_bias"] = np.array(-1e4, np.float32)
    bare["lm_head.weight"] = bare["wte.weight"]
    with_tokenizer(folder, tmp_path)
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    save_file(bare, tmp_path / "model.safetensors")
    chex.assert_trees_all_equal(read_decoder(tmp_path).params, held.params)


def test_what_does_not_fit_is_named(tiny, tmp_path):
    folder, _, _, held = tiny
    tensors = load_file(folder / "model.safetensors")
    del tensors["transformer.h.1.mlp.c_fc.weight"]
    tensors |= {
        "transformer.h.2.attn.bias": np.ones((1, 1, 40, 40), bool),
        "score.weight": np.zeros((2, 16), np.float32),
        "lm_head.weight": tensors["transformer.wte.weight"] + 1.0,
        "transformer.ln_f.weight": np.full(16, np.nan, np.float32),
    }
    with_tokenizer(folder, tmp_path)
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(WeightsError) as caught:
        read_decoder(tmp_path)
    first, *lines = str(caught.value).splitlines()
    assert first.endswith("tensors that do not fit this GPT-2: 5")
    assert sorted(lines[:5]) == [
        "  lm_head.weight is not tied: it differs from wte.weight",
        "  missing: h.1.mlp.c_fc.weight (16, 64)",
        "  transformer.ln_f.weight holds infinity or NaN",
        "  unknown: score.weight (2, 16)",
        "  unknown: transformer.h.2.attn.bias (1, 1, 40, 40)",
    ]
    assert "--ignore score. transformer.h.2.attn.bias" in lines[5]
    fixed = tensors | {"transformer.ln_f.weight": np.ones(16, np.float32), "score.weight": np.zeros(1, np.float32)}
    fixed["transformer.h.1.mlp.c_fc.weight"] = np.zeros((16, 64), np.float32)
    save_file(fixed, tmp_path / "model.safetensors")
    read = read_decoder(tmp_path, ignore=("score.", "lm_head.", "transformer.h.2."))
    np.testing.assert_array_equal(read.params["tokens"]["embedding"], held.params["tokens"]["embedding"])


ROTARY = {"rope_type": "default", "rope_theta": 100.0}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 100.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
QUICK: dict[str, Any] = {
    **{"rope_parameters": LLAMA3, "tie_word_embeddings": True, "num_key_value_heads": 4, "rms_norm_eps": 1e-1}
}
SLOW = pytest.mark.thorough
LLAMA_OPTIONS = [
    QUICK,
    {"rope_parameters": ROTARY},
    {"rope_parameters": {**ROTARY, "rope_type": "linear", "factor": 3.0}},
    {"rope_parameters": LLAMA3},
    {"num_key_value_heads": 1},
    {"num_attention_heads": 2},
    {"intermediate_size": 24},
    {"hidden_size": 32},
    {"num_hidden_layers": 1},
    {"tie_word_embeddings": True},
    {"max_position_embeddings": 50},
    {"vocab_size": 400},
    {"attention_dropout": 0.3, "pad_token_id": 2, "initializer_range": 0.5},
]


ROTARY_CASES = [
    *itertools.product(("llama", "mistral", "qwen2", "qwen3"), LLAMA_OPTIONS),
    *((model_type, {"head_dim": 6}) for model_type in ("llama", "mistral", "qwen3")),
    ("mistral", {"sliding_window": 3}),
]


@pytest.mark.parametrize(
    ("model_type", "changes"),
    [
        pytest.param(
            model_type, changes, id=f"{model_type} {' '.join(changes)}", marks=[] if changes is QUICK else SLOW
        )
        for model_type, changes in ROTARY_CASES
    ],
)
def test_options_of_rotary_decoders_change_logits_as_in_transformers(model_type, changes, made, tmp_path):
    folder, _, tokenizer, _ = made(model_type)
    model = make_model(model_type=model_type, **{"vocab_size": len(tokenizer), **changes})
    assert_options(model, tokenizer, with_tokenizer(folder, tmp_path))


@pytest.mark.parametrize(
    "changes",
    [
        {"activation_function": "relu", "tie_word_embeddings": False, "n_inner": 24, "layer_norm_epsilon": 1e-1},
        pytest.param({"activation_function": "gelu"}, marks=pytest.mark.thorough),
        pytest.param({"activation_function": "gelu_pytorch_tanh"}, marks=pytest.mark.thorough),
        pytest.param({"tie_word_embeddings": False}, marks=pytest.mark.thorough),
        pytest.param({"n_inner": 24}, marks=pytest.mark.thorough),
        pytest.param({"layer_norm_epsilon": 1e-1}, marks=pytest.mark.thorough),
        pytest.param({"n_head": 4}, marks=pytest.mark.thorough),
        pytest.param({"n_layer": 1}, marks=pytest.mark.thorough),
        pytest.param({"n_embd": 8}, marks=pytest.mark.thorough),
        pytest.param({"n_positions": 50}, marks=pytest.mark.thorough),
        pytest.param({"vocab_size": 352}, marks=pytest.mark.thorough),
        pytest.param({"reorder_and_upcast_attn": True, "is_decoder": True}, marks=pytest.mark.thorough),
        pytest.param({"embd_pdrop": 0, "resid_pdrop": 0.3, "initializer_range": 1.0}, marks=pytest.mark.thorough),
    ],
    ids=lambda changes: " ".join(changes),
)
def test_options_of_the_config_change_logits_as_in_transformers(changes, tiny, tmp_path):
    folder, _, tokenizer, _ = tiny
    model = make_model(**{"vocab_size": len(tokenizer), **changes})
    assert_options(model, tokenizer, with_tokenizer(folder, tmp_path))


def assert_options(model, tokenizer, folder):
    """A model with other options computes the same here, goes out, and comes back. Args: folder: has the tokenizer."""
    model.save_pretrained(folder)
    held = read_decoder(folder)
    assert_equal_logits(held, model, tokenizer)
    save_decoder(folder / "again", held)
    again = transformers.AutoModelForCausalLM.from_pretrained(folder / "again")
    assert_equal_tensors(again, model)
    batch = inputs_of(tokenizer)
    np.testing.assert_allclose(theirs(again, batch), theirs(model, batch), atol=1e-5)
    assert read_decoder(folder / "again").config == held.config


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"activation_function": "silu"}, "activation_function 'silu', expected 'gelu_new' or"),
        ({"scale_attn_weights": False}, "scale_attn_weights False, expected True"),
        ({"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx True, expected False"),
        ({"add_cross_attention": True}, "add_cross_attention True, expected False"),
        ({"n_inner": "4"}, "n_inner '4', expected a whole number or null"),
        ({"tie_word_embeddings": 1}, "tie_word_embeddings 1, expected true or false"),
        ({"n_layer": "absent"}, "no n_layer"),
        ({"n_head": 3}, "num_heads must divide"),
        ({"embd_pdrop": 2.0}, "embd_pdrop 2.0, expected in"),
        ({"rotary_dim": 8}, "unknown settings: rotary_dim"),
        ({"model_type": "gptj"}, "model_type must be one of gpt2, llama, .*, got 'gptj'"),
        ({"vocab_size": 10**18}, "vocab_size 1000000000000000000, expected less than 2147483648"),
        ({"vocab_size": 0}, "vocab_size 0, expected"),
        ({"vocab_size": 340}, "the tokenizer has 341 tokens, but the model has 340 embeddings"),
    ],
    ids=str,
)
def test_settings_that_are_not_supported_are_refused_by_name(changes, message, tiny, tmp_path):
    folder = tiny[0]
    settings = json.loads((folder / "config.json").read_text()) | changes
    settings = {name: value for name, value in settings.items() if value != "absent"}
    (with_tokenizer(folder, tmp_path) / "config.json").write_text(json.dumps(settings))
    with pytest.raises(PretrainedError, match=message):
        read_decoder(tmp_path)


@pytest.mark.parametrize(
    ("model_type", "changes", "message"),
    [
        ("llama", {"attention_bias": True}, "attention_bias True, expected False"),
        ("llama", {"mlp_bias": True}, "mlp_bias True, expected False"),
        ("llama", {"hidden_act": "gelu"}, "hidden_act 'gelu', expected 'silu'"),
        ("llama", {"num_key_value_heads": 3}, "num_key_heads must divide model.num_heads, got 3"),
        ("llama", {"head_dim": 5}, "head_width must be even for rotary positions, got 5"),
        ("llama", {"sliding_window": 8}, "unknown settings: sliding_window"),
        ("llama", {"rope_parameters": {"rope_type": "yarn"}}, "rope_type 'yarn', expected 'default' or 'linear' or"),
        ("llama", {"rope_parameters": {"rope_type": "linear"}}, "factor None, expected a number"),
        ("llama", {"rope_parameters": {**LLAMA3, "factor": "8"}}, "factor '8', expected a number"),
        ("llama", {"rope_parameters": {"attention_factor": 2.0}}, "unknown settings: attention_factor"),
        ("llama", {"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor 0.5, expected 1.0"),
        ("llama", {"rope_scaling": [8]}, r"rope_scaling must be an object, got \[8\]"),
        ("mistral", {"sliding_window": 0}, "need a sliding_window of at least 1, got 0"),
        ("qwen2", {"layer_types": None, "max_window_layers": "1"}, "max_window_layers must be a whole number, got '1'"),
        ("qwen2", {"use_sliding_window": False}, "need a sliding_window of at least 1, got None"),
        ("qwen2", {"head_dim": 8}, "unknown settings: head_dim"),
        ("qwen3", {"attention_bias": True}, "attention_bias True, expected False"),
        ("qwen3", {"layer_types": 5}, "layer_types must be full_attention or .* for each of 2 layers, got 5"),
        ("qwen3", {"layer_types": ["full_attention", "chunked_attention"]}, "must be .*, got .*chunked_attention"),
    ],
    ids=str,
)
def test_settings_of_rotary_decoders_that_are_not_supported_are_refused_by_name(
    model_type, changes, message, made, tmp_path
):
    folder = made(model_type)[0]
    settings = json.loads((folder / "config.json").read_text()) | changes
    (with_tokenizer(folder, tmp_path) / "config.json").write_text(json.dumps(settings))
    with pytest.raises(PretrainedError, match=message):
        read_decoder(tmp_path)


def test_rotary_settings_of_earlier_versions_mean_the_same(made, tmp_path):
    folder = made("llama")[0]
    settings = json.loads((folder / "config.json").read_text())
    for name in ("rope_parameters", "num_key_value_heads", "head_dim"):
        del settings[name]
    older = {"rope_theta": 500_000.0, "rope_scaling": {**LLAMA3, "type": "llama3"}}
    del older["rope_scaling"]["rope_theta"], older["rope_scaling"]["rope_type"]
    found = []
    for held in (older, {"rope_parameters": {**LLAMA3, "rope_theta": 500_000.0}}):
        (with_tokenizer(folder, tmp_path) / "config.json").write_text(json.dumps(settings | held))
        found.append(_fields_of(tmp_path / "config.json")[1])
    assert found[0] == found[1]
    assert found[0]["rotary_base"] == 500_000.0
    assert found[0]["rotary_factor"] == 8.0


OLDER = {
    "gpt2": {
        **{
            "activation_function": "gelu_new",
            "architectures": ["GPT2LMHeadModel"],
            "bos_token_id": 50256,
            "n_ctx": 1024,
        },
        **{"_num_labels": 1, "id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}, "output_past": True},
        "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}},
    },
    "llama": {
        **{"attention_bias": False, "mlp_bias": False, "head_dim": 64, "pretraining_tp": 1, "eos_token_id": [2, 5]},
        **{"is_llama_config": True, "rope_interleaved": False, "rope_scaling": None, "rope_theta": 100_000},
        **{"unsloth_fixed": True, "unsloth_version": "2025.1"},
        **{"torch_dtype": "bfloat16", "transformers.js_config": {"kv_cache_dtype": {"fp16": "float16"}}},
    },
    "mistral": {"attention_dropout": 0.0, "head_dim": None, "sliding_window": None, "rope_theta": 1_000_000.0},
    "qwen2": {
        **{"max_window_layers": 24, "sliding_window": 32_768, "use_sliding_window": False, "use_mrope": False},
        **{"rope_theta": 1_000_000.0, "tie_word_embeddings": True, "torch_dtype": "bfloat16"},
    },
    "qwen3": {
        **{"attention_bias": False, "head_dim": 128, "max_window_layers": 28, "sliding_window": None},
        **{"use_sliding_window": False, "rope_scaling": None, "rope_theta": 1_000_000},
    },
}
"""What the files of released decoders have besides the settings of today: GPT-2 and DistilGPT2; TinyLlama, Llama 3.2
and SmolLM2; Mistral; Qwen2.5; Qwen3."""


@pytest.mark.parametrize("model_type", FAMILIES)
def test_the_settings_of_released_files_are_known(model_type):
    assert FAMILIES[model_type].rules.problems(OLDER[model_type]) == []


def test_settings_that_a_file_leaves_out_have_the_defaults_of_transformers(tiny, tmp_path):
    folder, _, _, held = tiny
    settings = json.loads((folder / "config.json").read_text())
    needed = ("n_layer", "n_head", "n_embd", "n_positions", "vocab_size", "model_type")
    with_tokenizer(folder, tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({name: settings[name] for name in needed}))
    (tmp_path / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    assert read_decoder(tmp_path).config == held.config
