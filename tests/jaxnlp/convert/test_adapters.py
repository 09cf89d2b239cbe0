"""Adapters of PEFT: their models compute what PEFT computes, and a change of a model is found as factors."""

import json

import numpy as np
import peft
import pytest
import torch
import transformers
from safetensors.numpy import save_file

import jaxnlp
from jaxnlp.__main__ import main
from jaxnlp.convert import PretrainedError
from jaxnlp.convert.adapters import ADAPTER, ADAPTER_CONFIG, SETTINGS, add_factors, factors_of_change
from jaxnlp.convert.tensors import WeightsError
from tests import bart_folders, decoder_folders, encoder_decoder_folders, encoder_folders, image_folders, marian_folders

pytestmark = [
    pytest.mark.filterwarnings("ignore:fan_in_fan_out is set to False:UserWarning"),
    pytest.mark.filterwarnings("ignore:fan_in_fan_out is set to True but the target:UserWarning"),
    pytest.mark.filterwarnings("ignore:Setting `save_embedding_layers`:UserWarning"),
    pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings=True`:UserWarning"),
    pytest.mark.filterwarnings("ignore:You have requested `ensure_weight_tying`:UserWarning"),
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"),
]
"""PEFT warns of what it does itself."""


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """The folder of a tiny GPT-2."""
    folder = tmp_path_factory.mktemp("base") / "gpt2"
    decoder_folders.write_folder(folder)
    return folder


def adapted(model, **options):
    """The model with random factors of PEFT."""
    torch.manual_seed(1)
    model = peft.get_peft_model(model, peft.LoraConfig(init_lora_weights=False, **options)).eval()
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            if ".modules_to_save." in name or "trainable_tokens_delta" in name:
                tensor.add_(0.3 * torch.randn(tensor.shape))
    return model


@pytest.mark.sweep(1)
@pytest.mark.parametrize(
    "options",
    [
        {"r": 2, "target_modules": ["c_attn"]},
        {"r": 4, "target_modules": ["c_attn", "c_proj", "c_fc"], "lora_alpha": 3, "use_rslora": True},
        {
            **{"r": 2, "target_modules": ["c_attn", "mlp.c_fc"], "rank_pattern": {"c_fc": 3}},
            **{"alpha_pattern": {r"h.1.mlp.c_fc": 5, "attn.c_attn": 1}, "bias": "all"},
        },
        {"r": 2, "target_modules": ["wte", "wpe", "c_attn"], "alpha_pattern": {"wte": 1}},
        {"r": 2, "target_modules": ["wpe"], "modules_to_save": ["wte", "ln_f"]},
        *(
            pytest.param({"r": 2, **further}, marks=pytest.mark.thorough)
            for further in (
                {"target_modules": ["c_attn"], "trainable_token_indices": [3, 9]},
                {"target_modules": ["c_attn"], "trainable_token_indices": {"wte": [3, 9]}},
                {"target_modules": ["wpe"], "modules_to_save": ["wte"], "ensure_weight_tying": True},
                {"target_modules": ["wte"], "ensure_weight_tying": True},
                {"target_modules": ["c_attn"], "modules_to_save": ["lm_head"]},
                {"target_modules": ["c_attn"], "modules_to_save": ["lm_head"], "ensure_weight_tying": True},
                {"target_modules": ["c_attn", "lm_head"]},
                {"target_modules": ["c_attn", "lm_head"], "ensure_weight_tying": True},
            )
        ),
    ],
    ids=str,
)
def test_a_decoder_with_an_adapter_has_the_logits_that_it_has_in_peft(options, base, tmp_path):
    theirs = adapted(transformers.AutoModelForCausalLM.from_pretrained(base), task_type="CAUSAL_LM", **options)
    theirs.save_pretrained(tmp_path / "adapter")
    ours = jaxnlp.load_pretrained(tmp_path / "adapter")
    tokens = np.arange(3, 13)[None]
    with torch.no_grad():
        expected = theirs(torch.tensor(tokens)).logits.numpy()
    found = ours.model.apply({"params": ours.params}, tokens)
    np.testing.assert_allclose(found, expected, atol=2e-5, rtol=1e-6)
    plain = jaxnlp.load_pretrained(base)
    assert np.abs(plain.model.apply({"params": plain.params}, tokens) - expected).max() > 0.01


@pytest.mark.thorough
def test_an_encoder_and_its_head_take_an_adapter_of_a_classifier(tmp_path):
    encoder_folders.write_folder("roberta", tmp_path / "base", "ForSequenceClassification", num_labels=3)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "base")
    theirs = adapted(model, task_type="SEQ_CLS", target_modules=["query", "value"], r=2)
    with torch.no_grad():
        theirs.base_model.model.classifier.modules_to_save["default"].out_proj.weight.add_(0.3)
    theirs.save_pretrained(tmp_path / "adapter")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "base")
    text = encoder_folders.TEXTS[0]
    with torch.no_grad():
        expected = theirs(**tokenizer(text, return_tensors="pt")).logits.softmax(-1)[0].tolist()
    before, after = (jaxnlp.load_pretrained(tmp_path / name) for name in ("base", "adapter"))
    found = [*after.predict([text])[0].probabilities.values()]
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert np.abs(np.subtract([*before.predict([text])[0].probabilities.values()], expected)).max() > 1e-3
    assert after.name == str(tmp_path / "adapter")


@pytest.mark.thorough
def test_embeddings_have_factors_in_an_encoder_and_the_changed_model_is_exported_again(tmp_path):
    encoder_folders.write_folder("bert", tmp_path / "base", "ForSequenceClassification", num_labels=3)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "base")
    names = ["word_embeddings", "position_embeddings", "key"]
    theirs = adapted(model, task_type="SEQ_CLS", target_modules=names, r=2, use_rslora=True)
    theirs.save_pretrained(tmp_path / "adapter")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "base")
    with torch.no_grad():
        expected = theirs(**tokenizer(encoder_folders.TEXTS[0], return_tensors="pt")).logits.softmax(-1)[0].tolist()
    assert main(["export", str(tmp_path / "adapter"), str(tmp_path / "merged")]) == 0
    for name in ("adapter", "merged"):
        found = jaxnlp.load_pretrained(tmp_path / name).predict(encoder_folders.TEXTS[0])
        np.testing.assert_allclose([*found.probabilities.values()], expected, atol=1e-5)


@pytest.mark.parametrize(
    ("family", "kind", "labels"),
    [
        ("roberta", "ForMaskedLM", 3),
        pytest.param("distilbert", "ForMaskedLM", 1, marks=pytest.mark.thorough),
        pytest.param("modernbert", "ForMaskedLM", 4, marks=pytest.mark.thorough),
        pytest.param("bert", "ForPreTraining", 2, marks=pytest.mark.thorough),
    ],
)
def test_a_classifier_on_a_base_without_a_head_is_read_with_the_heads_of_the_adapter(family, kind, labels, tmp_path):
    encoder_folders.write_folder(family, tmp_path / "base", kind)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "base", num_labels=labels)
    modules = ["q_lin", "lin1"] if family == "distilbert" else "all-linear"  # PEFT fails at all of its layers
    theirs = adapted(model, task_type="SEQ_CLS", target_modules=modules, r=2)
    theirs.save_pretrained(tmp_path / "adapter")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "base")
    with torch.no_grad():
        logits = theirs(**tokenizer(encoder_folders.TEXTS[0], return_tensors="pt")).logits[0]
    found = jaxnlp.load_pretrained(tmp_path / "adapter").predict(encoder_folders.TEXTS[0])
    if labels == 1:
        np.testing.assert_allclose(found.label, logits.item(), atol=1e-5)
        return
    np.testing.assert_allclose([*found.probabilities.values()], logits.softmax(-1), atol=1e-5)
    assert [*found.probabilities] == [f"LABEL_{index}" for index in range(labels)]


@pytest.mark.parametrize(
    ("model_type", "modules", "changes"),
    [
        ("gpt2", ["c_attn"], {}),
        pytest.param("gpt2", ["wte", "c_attn"], {}, marks=pytest.mark.thorough),  # the output layer stays as it was
        pytest.param("llama", "all-linear", {"tie_word_embeddings": False}, marks=pytest.mark.thorough),
    ],
)
def test_a_classifier_on_a_decoder_with_an_output_layer_has_the_head_of_the_adapter(
    model_type, modules, changes, tmp_path
):
    decoder_folders.write_folder(tmp_path / "base", model_type=model_type, **changes)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "base", num_labels=3)
    theirs = adapted(model, task_type="SEQ_CLS", target_modules=modules, r=2)
    theirs.save_pretrained(tmp_path / "adapter")
    text = encoder_folders.TEXTS[0]
    with torch.no_grad():
        inputs = transformers.AutoTokenizer.from_pretrained(tmp_path / "base")(text, return_tensors="pt")
        expected = theirs(**inputs).logits.softmax(-1)[0]
    found = jaxnlp.load_pretrained(tmp_path / "adapter").predict(text)
    np.testing.assert_allclose([*found.probabilities.values()], expected, atol=1e-5)
    assert np.ptp(expected.numpy()) > 0.01
    assert [*found.probabilities] == ["LABEL_0", "LABEL_1", "LABEL_2"]


@pytest.mark.parametrize("kind", ["TokenClassification", "QuestionAnswering"])
def test_classes_of_tokens_on_a_base_without_a_head_are_read_with_the_heads_of_the_adapter(kind, tmp_path):
    encoder_folders.write_folder("bert", tmp_path / "base")  # with a pooler, which these classes do not have
    model = getattr(transformers, f"AutoModelFor{kind}").from_pretrained(tmp_path / "base")
    task = {"TokenClassification": "TOKEN_CLS", "QuestionAnswering": "QUESTION_ANS"}[kind]
    theirs = adapted(model, task_type=task, target_modules=["query", "dense"], r=2)
    theirs.save_pretrained(tmp_path / "adapter")
    merged = theirs.merge_and_unload()
    assert main(["export", str(tmp_path / "adapter"), str(tmp_path / "out")]) == 0
    again, report = type(merged).from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not any(report.values())
    for name, tensor in merged.state_dict().items():
        torch.testing.assert_close(again.state_dict()[name], tensor, atol=1e-6, rtol=0)


@pytest.mark.thorough
def test_heads_and_embeddings_that_an_adapter_does_not_define_are_refused(tmp_path):
    encoder_folders.write_folder("bert", tmp_path / "base", "ForMaskedLM")  # its class of texts has a random pooler
    model = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "base")
    adapted(model, task_type="SEQ_CLS", target_modules=["query"], r=2).save_pretrained(tmp_path / "adapter")
    with pytest.raises(PretrainedError, match=r"the weights have no pooler, which the head reads; with --ignore"):
        jaxnlp.load_pretrained(tmp_path / "adapter")
    assert jaxnlp.load_pretrained(tmp_path / "adapter", ignore=("classifier.",)).embed("the cat").shape == (8,)
    encoder_decoder_folders.write_folder(tmp_path / "t5")
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "t5")
    adapted(model, task_type="SEQ_2_SEQ_LM", target_modules=["shared"], r=2).save_pretrained(tmp_path / "two")
    with pytest.raises(WeightsError, match=r"shared\.weight: changed embeddings of a T5 are not supported"):
        jaxnlp.load_pretrained(tmp_path / "two")


@pytest.mark.thorough
def test_a_vision_transformer_takes_an_adapter_although_its_modules_have_other_names_in_memory(tmp_path):
    image_folders.write_folder(tmp_path / "base", "ViTForImageClassification")
    theirs = adapted(
        transformers.ViTForImageClassification.from_pretrained(tmp_path / "base"),
        target_modules=["q_proj", "o_proj", "fc1", "fc2"],
        alpha_pattern={"layers.1.mlp.fc1": 2},
    )
    theirs.save_pretrained(tmp_path / "adapter")
    expected, found = theirs.merge_and_unload(), jaxnlp.load_pretrained(tmp_path / "adapter")
    pixels = np.random.default_rng(0).integers(0, 256, (2, 12, 12, 3), np.uint8)
    scaled = (pixels / 255.0 - found.processor.mean) / found.processor.stddev
    with torch.no_grad():
        logits = expected(torch.tensor(np.float32(scaled).transpose(0, 3, 1, 2))).logits.numpy()
    np.testing.assert_allclose(found.model.apply({"params": found.params}, pixels), logits, atol=2e-5)


@pytest.mark.thorough
def test_embeddings_of_new_tokens_are_read_if_the_folder_has_their_config_and_tokenizer(base, tmp_path):
    tokenizer = transformers.AutoTokenizer.from_pretrained(base)
    model = transformers.AutoModelForCausalLM.from_pretrained(base)
    tokenizer.add_tokens(["covidix", "<code>"])
    model.resize_token_embeddings(len(tokenizer))
    theirs = adapted(model, task_type="CAUSAL_LM", target_modules=["c_attn"], trainable_token_indices=[341, 342])
    theirs.save_pretrained(tmp_path)
    with pytest.raises(PretrainedError, match=r"the adapter has 343 embeddings, but its base has 341, .*tokenizer"):
        jaxnlp.load_pretrained(tmp_path)
    model.config.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    ours, text = jaxnlp.load_pretrained(tmp_path), "A covidix cat <code>"
    ids = tokenizer(text, return_tensors="pt")["input_ids"]
    assert ours.processor.encode(text).tolist() == ids[0].tolist()
    with torch.no_grad():
        expected = theirs(ids).logits.numpy()
    np.testing.assert_allclose(ours.model.apply({"params": ours.params}, ids.numpy()), expected, atol=2e-5)


@pytest.mark.parametrize(
    ("made", "options"),
    [
        (encoder_decoder_folders, {"target_modules": ["q"], "trainable_token_indices": {"shared": [7, 40]}}),
        pytest.param(encoder_decoder_folders, {"target_modules": "all-linear"}, marks=pytest.mark.thorough),
        pytest.param(bart_folders, {"target_modules": ["k_proj", "fc2", "out_proj"]}, marks=pytest.mark.thorough),
        pytest.param(marian_folders, {"target_modules": ["q_proj", "fc1"]}, marks=pytest.mark.thorough),
    ],
)
def test_an_encoder_decoder_with_an_adapter_has_the_logits_that_it_has_in_peft(made, options, tmp_path):
    made.write_folder(tmp_path / "base")
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "base")
    theirs = adapted(model, task_type="SEQ_2_SEQ_LM", r=2, **options)
    theirs.save_pretrained(tmp_path / "adapter")
    ours, tokens = jaxnlp.load_pretrained(tmp_path / "adapter"), np.array([[7, 40, 3, 1]])
    with torch.no_grad():
        expected = theirs(torch.tensor(tokens), decoder_input_ids=torch.tensor(tokens)).logits.numpy()
    found = ours.model.apply({"params": ours.params}, tokens, tokens)
    np.testing.assert_allclose(found, expected, atol=2e-5)


def draw(*shape):
    return np.random.default_rng(len(shape) + shape[0]).normal(size=shape).astype(np.float32)


BASE = {"bert.layer.weight": draw(6, 5), "bert.layer.bias": draw(6), "bert.packed.weight": draw(9, 5)}


def changed():
    """The tensors after training: a change of rank 2, one of rank 3, and a new head."""
    after = {name: tensor.copy() for name, tensor in BASE.items()}
    after["bert.layer.weight"] += draw(6, 2) @ draw(2, 5)
    after["bert.packed.weight"] += draw(9, 3) @ draw(3, 5)
    return after | {"classifier.weight": draw(2, 5), "classifier.bias": draw(2)}


def test_a_change_is_factors_where_its_rank_is_low_and_whole_tensors_elsewhere():
    found = factors_of_change(BASE, changed(), rank=2, model_type="bert", task_type="SEQ_CLS")
    assert {name.removeprefix("base_model.model."): x.shape for name, x in found.tensors.items()} == {
        "bert.layer.lora_A.weight": (2, 5),
        "bert.layer.lora_B.weight": (6, 2),
        "bert.packed.lora_A.weight": (6, 5),
        "bert.packed.lora_B.weight": (9, 6),
        "classifier.weight": (2, 5),
        "classifier.bias": (2,),
    }
    assert found.settings["rank_pattern"] == found.settings["alpha_pattern"] == {"bert.packed": 6}
    assert found.settings["target_modules"] == ["bert.layer", "bert.packed"]
    assert found.settings["modules_to_save"] == ["classifier"]
    again = add_factors(BASE, found.tensors, found.settings, "bert")
    assert again.keys() == changed().keys()
    for name, tensor in changed().items():
        np.testing.assert_allclose(again[name], tensor, atol=1e-5, err_msg=name)


def test_a_change_of_any_rank_is_stored_whole_and_names_may_lack_the_prefix_of_the_model():
    base = {name.removeprefix("bert."): tensor for name, tensor in BASE.items()}
    after = changed() | {"bert.layer.weight": draw(6, 5) * 2}
    found = factors_of_change(base, after, rank=1, model_type="bert", task_type="SEQ_CLS")
    assert found.settings["modules_to_save"] == ["bert.layer", "classifier"]
    assert "base_model.model.bert.layer.bias" in found.tensors
    again = add_factors(base, found.tensors, found.settings, "bert")
    np.testing.assert_array_equal(again["layer.weight"], after["bert.layer.weight"])
    np.testing.assert_allclose(again["packed.weight"], after["bert.packed.weight"], atol=1e-5)


def test_rows_of_new_tokens_are_stored_with_their_indices_also_for_a_tied_output_layer():
    base = {"model.embed_tokens.weight": draw(5, 4), "lm_head.bias": draw(5)}
    table = np.concatenate([base["model.embed_tokens.weight"], draw(2, 4)])
    after = base | {"model.embed_tokens.weight": table, "lm_head.weight": table.copy()}
    found = factors_of_change(base, after, rank=1, model_type="llama", task_type="CAUSAL_LM")
    assert found.settings["trainable_token_indices"] == {"model.embed_tokens": [5, 6]}
    assert found.settings["modules_to_save"] is None
    assert [x.shape for x in found.tensors.values()] == [(2, 4)]
    again = add_factors(base, found.tensors, found.settings, "llama")
    for name, tensor in after.items():
        np.testing.assert_array_equal(again[name], tensor)
    with pytest.raises(WeightsError, match=r"^lm_head changes, .*PEFT cannot store it beside new tokens"):
        factors_of_change(base, after | {"lm_head.bias": draw(5) + 1}, rank=1, model_type="llama", task_type=None)
    with pytest.raises(WeightsError, match=r"^bias changes, but is in no module"):
        factors_of_change({"bias": draw(2)}, {"bias": draw(2) + 1}, rank=1, model_type="bart", task_type=None)


@pytest.mark.parametrize(
    ("settings", "tensors", "words"),
    [
        ({"init_lora_weights": "pissa_niter_4"}, {}, r"init_lora_weights 'pissa_niter_4', expected True or False"),
        ({"peft_type": "IA3"}, {}, r"adapter_config\.json: not supported: peft_type 'IA3', expected 'LORA'"),
        ({"use_dora": True}, {}, r"use_dora True, expected False"),
        ({"new": 1}, {}, r"unknown settings: new"),
        ({"base_model_name_or_path": None}, {}, r"expected the folder of a model as base_model_name_or_path, got None"),
        ({"base_model_name_or_path": "/no/where"}, {}, r"base_model_name_or_path: there is no folder /no/where"),
        ({}, {"x": draw(1)}, r"unknown tensor x, expected a name that begins with base_model\.model\."),
        ({}, {"base_model.model.a.lora_A.weight": draw(1, 2)}, r"the model has no tensor a\.weight"),
        ({}, {"base_model.model.h.0.attn.c_attn.lora_A.weight": draw(1, 16)}, r"lora_B\.weight' is missing"),
        ({}, {"base_model.model.wte.lora_embedding_A": draw(1, 2)}, r"lora_embedding_B' is missing"),
        (
            {},
            {
                "base_model.model.h.0.attn.c_attn.lora_A.weight": draw(1, 3, 8, 8),
                "base_model.model.h.0.attn.c_attn.lora_B.weight": draw(16, 1, 1, 1),
            },
            r"lora_A\.weight is not supported, expected factors of a dense layer",
        ),
        ({}, {"base_model.model.wte.lora_magnitude": draw(1)}, r"lora_magnitude is not supported, expected factors"),
        (
            {"trainable_token_indices": [3]},
            {"base_model.model.wte.token_adapter.trainable_tokens_delta": draw(2, 16)},
            r"trainable_tokens_delta has 2 rows, but trainable_token_indices is \[3\]",
        ),
        (
            {"trainable_token_indices": [3]},
            {"base_model.model.wte.token_adapter.trainable_tokens_delta": draw(1, 4)},
            r"rows of new tokens are \(1, 4\), but the table is \(341, 16\)",
        ),
        (
            {},
            {
                "base_model.model.h.0.attn.c_attn.lora_A.weight": draw(1, 3),
                "base_model.model.h.0.attn.c_attn.lora_B.weight": draw(2, 1),
            },
            r"makes \(3, 2\), but transformer\.h\.0\.attn\.c_attn\.weight is \(16, 48\)",
        ),
    ],
)
def test_what_does_not_fit_is_refused_by_name(settings, tensors, words, base, tmp_path):
    given = {"peft_type": "LORA", "base_model_name_or_path": str(base), "r": 1, "lora_alpha": 1} | settings
    (tmp_path / ADAPTER_CONFIG).write_text(json.dumps(given))
    save_file(tensors or {"base_model.model.transformer.ln_f.weight": draw(16)}, tmp_path / ADAPTER)
    with pytest.raises((PretrainedError, WeightsError), match=words):
        jaxnlp.load_pretrained(tmp_path)


def test_an_adapter_without_its_file_of_tensors_names_it(base, tmp_path):
    (tmp_path / ADAPTER_CONFIG).write_text(json.dumps({"peft_type": "LORA", "base_model_name_or_path": str(base)}))
    with pytest.raises(PretrainedError, match=rf"{ADAPTER} is missing"):
        jaxnlp.load_pretrained(tmp_path)


def test_each_setting_that_peft_writes_has_a_rule():
    written = peft.LoraConfig().to_dict().keys() | {"peft_version"}
    assert written <= set(SETTINGS.names)
