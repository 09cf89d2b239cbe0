"""Each family computes what Transformers computes, and goes in and out without a change of a bit."""

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
from safetensors.numpy import load_file

from jaxnlp.convert.encoder_weights import from_huggingface, to_huggingface
from jaxnlp.convert.encoders import families
from jaxnlp.convert.folders import PretrainedError
from jaxnlp.convert.pretrained_encoder import read_pretrained, save_pretrained
from jaxnlp.convert.tensors import WeightsError
from jaxnlp.models.bert import Bert
from jaxnlp.nn.compute import EXACT, TransformerCompute
from tests.encoder_folders import TEXTS, make_model, write_folder

FAMILIES = list(families())


@pytest.fixture(scope="module", params=FAMILIES)
def tiny(request, tmp_path_factory):
    """A folder of a tiny model of a family, its model and its tokenizer in Transformers, and what we read of it."""
    folder = tmp_path_factory.mktemp("tiny") / request.param
    model, tokenizer = write_folder(request.param, folder)
    return request.param, folder, model, tokenizer, read_pretrained(folder)


def inputs_of(tokenizer, side="right"):
    """What Transformers reads of texts of several lengths."""
    tokenizer.padding_side = side
    batch = tokenizer(TEXTS, padding=True, truncation=True, max_length=40, return_tensors="pt")
    return {name: batch[name] for name in ("input_ids", "attention_mask")}


@functools.partial(jax.jit, static_argnums=0)
def encode(model, params, tokens, mask):
    return model.apply({"params": params}, tokens, None, mask)


def ours(held, batch, compute=EXACT):
    """What we make of the inputs of Transformers."""
    model = Bert(held.config, held.config.embeddings(held.vocabulary.size), compute)
    tokens, mask = batch["input_ids"].numpy().astype(np.int32), batch["attention_mask"].numpy().astype(bool)
    return jax.device_get(encode(model, held.params, tokens, mask)), mask


def theirs(model, batch):
    with torch.no_grad():
        return model(**batch)


def assert_equal_outputs(held, model, batch, atol=1e-5):
    (hidden, pooled, _), mask = ours(held, batch)
    expected = theirs(model, batch)
    np.testing.assert_allclose(hidden[mask], expected.last_hidden_state.numpy()[mask], atol=atol)
    assert np.ptp(hidden[mask], axis=0).min() > 0.1  # not only the normalisation
    if expected.get("pooler_output") is not None:
        np.testing.assert_allclose(pooled, expected.pooler_output.numpy(), atol=atol)


@pytest.mark.parametrize("side", ["right", "left"])  # on the left it moves the positions of BERT, there and here
def test_outputs_are_those_of_transformers_with_padding_on_both_sides(tiny, side):
    _, _, model, tokenizer, held = tiny
    batch = inputs_of(tokenizer, side)
    assert not batch["attention_mask"].all()
    assert_equal_outputs(held, model, batch)


@pytest.mark.sweep(1)
def test_gradients_are_those_of_transformers(tiny):
    _, _, model, tokenizer, held = tiny
    batch = inputs_of(tokenizer)
    tokens, mask = batch["input_ids"].numpy().astype(np.int32), batch["attention_mask"].numpy().astype(bool)
    weights = np.random.default_rng(0).normal(size=(*mask.shape, held.config.width)).astype(np.float32)
    weights *= mask[:, :, None]
    ours_of = Bert(held.config, held.config.embeddings(held.vocabulary.size), EXACT)

    def loss(params):
        output = ours_of.apply({"params": params}, tokens, None, mask)
        pooled = 0.0 if output.pooled is None else output.pooled.sum()
        return (output.hidden * weights).sum() + pooled

    model.zero_grad()
    output = model(**batch)
    pooled = output.get("pooler_output")
    ((output.last_hidden_state * torch.as_tensor(weights)).sum() + (0.0 if pooled is None else pooled.sum())).backward()
    expected = {name: x.grad.numpy() for name, x in model.named_parameters() if x.grad is not None}
    gradients = jax.device_get(jax.jit(jax.grad(loss))(held.params))
    found = to_huggingface(gradients, held.config, len(gradients["tokens"]["embedding"]))
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        np.testing.assert_allclose(found[name], gradient, atol=1e-4 * max(1.0, np.abs(gradient).max()), err_msg=name)


@pytest.mark.sweep(1)
def test_bfloat16_activations_stay_within_three_percent_of_the_largest_value(tiny):
    _, _, model, tokenizer, held = tiny
    batch = inputs_of(tokenizer)
    (hidden, _, _), mask = ours(held, batch, TransformerCompute(dtype="bfloat16"))
    expected = theirs(model, batch).last_hidden_state.numpy()[mask]
    difference = np.abs(hidden.astype(np.float32)[mask] - expected)
    assert 0.0 < difference.max() < 0.03 * np.abs(expected).max()


@pytest.mark.sweep(1)
@pytest.mark.parametrize("family", FAMILIES)
def test_masked_tokens_have_the_logits_of_transformers_and_the_model_goes_in_and_out(family, tmp_path):
    model, tokenizer = write_folder(family, tmp_path / "masked", "ForMaskedLM")
    batch = inputs_of(tokenizer)
    held = read_pretrained(tmp_path / "masked")
    assert held.heads is not None
    assert not held.config.use_pooler
    (hidden, _, _), mask = ours(held, batch)
    np.testing.assert_allclose(
        held.token_logits(jnp.asarray(hidden))[mask], theirs(model, batch).logits.numpy()[mask], atol=1e-5
    )
    with pytest.raises(ValueError, match="do not have a head of masked tokens"):
        held._replace(heads=None).token_logits(jnp.asarray(hidden))
    save_pretrained(tmp_path / "again", held)
    again = type(model).from_pretrained(tmp_path / "again")
    assert_equal_tensors(again, model)
    assert json.loads((tmp_path / "again" / "config.json").read_text())["architectures"] == [type(model).__name__]


def assert_equal_tensors(found, expected):
    held, others = found.state_dict(), expected.state_dict()
    assert held.keys() == others.keys()
    for name, tensor in others.items():
        assert torch.equal(held[name], tensor), name


def test_what_is_written_is_read_by_transformers_and_by_us_to_the_same_bits(tiny, tmp_path):
    _, folder, model, tokenizer, held = tiny
    save_pretrained(tmp_path / "again", held)
    again = read_pretrained(tmp_path / "again")
    assert (again.config, again.vocabulary) == (held.config, held.vocabulary)
    chex.assert_trees_all_equal(again.params, held.params)
    found, report = transformers.AutoModel.from_pretrained(tmp_path / "again", output_loading_info=True)
    assert not any(report.values())
    assert type(found) is type(model)
    assert_equal_tensors(found, model)
    ours_of, before = (json.loads((path / "config.json").read_text()) for path in (tmp_path / "again", folder))
    fields = families()[held.config.model_type].fields
    assert {name: ours_of[name] for name in fields} == {name: before[name] for name in fields}
    assert (
        transformers.AutoTokenizer.from_pretrained(tmp_path / "again")(TEXTS)["input_ids"]
        == (tokenizer(TEXTS)["input_ids"])
    )


@pytest.mark.sweep(1)
def test_bfloat16_weights_in_several_files_are_read(tiny, tmp_path):
    family, folder, model, _, held = tiny
    half = make_model(family, vocab_size=model.config.vocab_size).to(torch.bfloat16)
    half.save_pretrained(tmp_path / "half", max_shard_size="2KB")
    assert len(list((tmp_path / "half").glob("model-*.safetensors"))) > 1
    for file in folder.glob("tokenizer*"):
        (tmp_path / "half" / file.name).write_bytes(file.read_bytes())
    found = read_pretrained(tmp_path / "half").params
    rounded = jax.tree.map(lambda x: np.asarray(jnp.asarray(x, jnp.bfloat16), np.float32), held.params)
    chex.assert_trees_all_equal(found, rounded)


@pytest.mark.parametrize("family", FAMILIES)
def test_each_prefix_is_understood_and_what_does_not_fit_is_named(family, tmp_path):
    write_folder(family, tmp_path)
    held, base = read_pretrained(tmp_path), families()[family].base
    tensors = load_file(tmp_path / "model.safetensors")
    size = len(held.params["tokens"]["embedding"])
    for prefix in (f"{base}.", "0.auto_model."):
        prefixed = {prefix + name: x for name, x in tensors.items()}
        chex.assert_trees_all_equal(from_huggingface(prefixed, held.config, size).params, held.params)
    last = families()[family].names.blocks.block.format(1) + families()[family].names.blocks.up + ".weight"
    shape = tensors[last].shape
    wrong = {name: x for name, x in tensors.items() if name != last} | {"adapter.weight": np.zeros(3, np.float32)}
    with pytest.raises(WeightsError) as caught:
        from_huggingface(wrong, held.config, size)
    assert str(caught.value).splitlines()[:3] == [
        f"tensors that do not fit this {families()[family].title}: 2",
        f"  missing: {last} {shape}",
        "  unknown: adapter.weight (3,)",
    ]


OPTIONS = {
    "roberta": [
        {"num_attention_heads": 4},
        {"intermediate_size": 20},
        {"num_hidden_layers": 1},
        {"layer_norm_eps": 1e-1},
        {"type_vocab_size": 3},
        {"pad_token_id": 0},
        {"pad_token_id": 5, "max_position_embeddings": 60},
        {"vocab_size": 400},
        {"hidden_size": 16},
        {"initializer_range": 0.5, "classifier_dropout": 0.3, "use_cache": False, "bos_token_id": 7},
    ],
}
OPTIONS["xlm-roberta"] = OPTIONS["roberta"]
OPTIONS["bert"] = [
    {"num_attention_heads": 4},
    {"intermediate_size": 20},
    {"num_hidden_layers": 1},
    {"hidden_size": 16},
    {"layer_norm_eps": 1e-1},
    {"type_vocab_size": 3},
    {"vocab_size": 400},
    {"max_position_embeddings": 60},
    {"pad_token_id": 3, "classifier_dropout": 0.3, "initializer_range": 0.5},
]
OPTIONS["distilbert"] = [
    {"n_heads": 4},
    {"hidden_dim": 20},
    {"n_layers": 1},
    {"dim": 16},
    {"max_position_embeddings": 50},
    {"vocab_size": 400},
    {"sinusoidal_pos_embds": True},
    {"pad_token_id": 3, "qa_dropout": 0.3, "seq_classif_dropout": 0.4, "initializer_range": 0.5},
]
OPTIONS["electra"] = [
    {"num_attention_heads": 4},
    {"intermediate_size": 20},
    {"embedding_size": 8},
    {"embedding_size": 20},
    {"hidden_size": 16},
    {"type_vocab_size": 3},
    {"layer_norm_eps": 1e-1},
    {"vocab_size": 400},
    {"max_position_embeddings": 60, "num_hidden_layers": 1},
    {"pad_token_id": 3, "summary_type": "mean", "classifier_dropout": 0.3, "initializer_range": 0.5},
]
OPTIONS["modernbert"] = [
    {"num_attention_heads": 4},
    {"intermediate_size": 20},
    {"num_hidden_layers": 1},
    {"hidden_size": 16},
    {"norm_eps": 1e-1},
    {"vocab_size": 400},
    {"local_attention": 2},
    {"local_attention": 5},
    {"global_attn_every_n_layers": 3},
    {"global_attn_every_n_layers": 1},
    {"layer_types": ["sliding_attention"] * 2 + ["full_attention"]},
    {"layer_types": ["sliding_attention"] * 3},
    {"global_rope_theta": 50.0, "local_rope_theta": 5.0},
    {"rope_parameters": {"sliding_attention": {"rope_type": "default", "rope_theta": 30.0}}},
    {"pad_token_id": 3, "classifier_dropout": 0.3, "mlp_dropout": 0.2, "attention_dropout": 0.1},
]
CASES = [
    pytest.param(family, changes, id=f"{family} {' '.join(changes)}")
    for family, rows in OPTIONS.items()
    for changes in rows
]


@pytest.mark.thorough
@pytest.mark.parametrize(("family", "changes"), CASES)
def test_options_of_the_config_change_outputs_as_in_transformers(family, changes, tiny_folder, tmp_path):
    folder, tokenizer = tiny_folder(family)
    model = make_model(family, **{"vocab_size": len(tokenizer), **changes})
    model.save_pretrained(tmp_path)
    for file in folder.glob("tokenizer*"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    held = read_pretrained(tmp_path)
    for side in ("right", "left"):
        assert_equal_outputs(held, model, inputs_of(tokenizer, side))
    save_pretrained(tmp_path / "again", held)
    assert_equal_tensors(transformers.AutoModel.from_pretrained(tmp_path / "again"), model)


@pytest.fixture(scope="module")
def tiny_folder(tmp_path_factory):
    """The folder and the tokenizer of a family."""

    @functools.cache
    def make(family):
        folder = tmp_path_factory.mktemp("options") / family
        return folder, write_folder(family, folder)[1]

    return make


@pytest.mark.parametrize(
    ("family", "changes", "message"),
    [
        ("roberta", {"hidden_act": "relu"}, "hidden_act 'relu', expected 'gelu'"),
        ("roberta", {"is_decoder": True}, "is_decoder True, expected False"),
        ("roberta", {"pad_token_id": None}, "no pad_token_id"),
        ("roberta", {"pad_token_id": 60}, "max_positions must be at least 1"),
        ("roberta", {"dim": 8}, "unknown settings: dim"),
        ("distilbert", {"activation": "relu"}, "activation 'relu', expected 'gelu'"),
        ("distilbert", {"hidden_size": 8}, "unknown settings: hidden_size"),
        ("distilbert", {"n_layers": None}, "no n_layers"),
        ("electra", {"embedding_size": None}, "no embedding_size"),
        ("electra", {"hidden_act": "gelu_new"}, "hidden_act 'gelu_new', expected 'gelu'"),
        ("xlm-roberta", {"model_type": "xlm-roberta-xl"}, "model_type must be one of .*, got 'xlm-roberta-xl'"),
        ("xlm-roberta", {"layer_norm_eps": "1"}, "layer_norm_eps '1', expected a number"),
        ("modernbert", {"hidden_activation": "relu"}, "hidden_activation 'relu', expected 'gelu'"),
        ("modernbert", {"attention_bias": True}, "attention_bias True, expected False"),
        ("modernbert", {"decoder_bias": False}, "decoder_bias False, expected True"),
        ("modernbert", {"classifier_pooling": "max"}, "classifier_pooling 'max', expected 'cls' or 'mean'"),
        ("modernbert", {"layer_types": ["full_attention"]}, "must be full_attention or .* for each of 3 layers"),
        ("modernbert", {"rope_parameters": {"full_attention": {"rope_type": "yarn"}}}, "rope_type 'yarn'"),
        ("modernbert", {"rope_parameters": {"rope_theta": 3.0}}, "rope_parameters of rope_theta"),
        ("modernbert", {"layer_types": None, "global_attn_every_n_layers": 0}, "a whole number of at least 1"),
        ("modernbert", {"num_hidden_layers": None}, "no num_hidden_layers"),
    ],
)
def test_settings_that_are_not_supported_are_refused_by_name(family, changes, message, tiny_folder, tmp_path):
    folder, _ = tiny_folder(family)
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    settings = json.loads((tmp_path / "config.json").read_text()) | changes
    settings = {name: value for name, value in settings.items() if value is not None}
    (tmp_path / "config.json").write_text(json.dumps(settings))
    with pytest.raises(PretrainedError, match=message):
        read_pretrained(tmp_path)


def test_positions_that_begin_after_padding_need_its_number(tiny_folder, tmp_path):
    folder, _ = tiny_folder("xlm-roberta")
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    settings = json.loads((folder / "config.json").read_text()) | {"pad_token_id": None}
    (tmp_path / "config.json").write_text(json.dumps(settings))
    with pytest.raises(PretrainedError, match="pad_token_id null, expected the number of a token"):
        read_pretrained(tmp_path)


@pytest.mark.parametrize(
    ("family", "changes", "message"),
    [
        ("roberta", {"padding_id": None}, "Transformers' RoBERTa does not support padding_id = None"),
        ("roberta", {"pooler_activation": "relu"}, "RoBERTa does not support pooler_activation = relu"),
        ("distilbert", {"epsilon": 1e-5}, "DistilBERT does not support epsilon = 1e-05"),
        ("distilbert", {"num_segments": 2}, "DistilBERT does not support num_segments = 2"),
        ("bert", {"padding_id": 1}, "BERT does not support padding_id = 1"),
        ("bert", {"embedding_width": 4}, "BERT does not support embedding_width = 4"),
        ("electra", {"pooler_activation": "tanh"}, "ELECTRA does not support pooler_activation = tanh"),
        ("bert", {"use_bias": False}, "BERT does not support use_bias = False"),
        ("bert", {"pooler_input": "mean"}, "BERT does not support pooler_input = mean"),
        ("modernbert", {"gated": False}, "ModernBERT does not support gated = False"),
        ("bert", {"model_type": "roberto"}, "model_type must be one of bert, .*, got 'roberto'"),
    ],
)
def test_variants_that_a_family_does_not_have_are_not_exported(family, changes, message, tiny_folder, tmp_path):
    folder, _ = tiny_folder(family)
    held = read_pretrained(folder)
    with pytest.raises(WeightsError, match=message):
        save_pretrained(tmp_path / "out", held._replace(config=dataclasses.replace(held.config, **changes)))
