"""Exported folders, read by Transformers and by the library."""

import dataclasses
import json
from pathlib import Path

import chex
import jax
import numpy as np
import pytest
import torch
import transformers
from safetensors import safe_open
from safetensors.numpy import load_file
from sentence_transformers import SentenceTransformer

from jaxnlp.convert.pretrained_encoder import read_pretrained, save_pretrained
from jaxnlp.convert.tensors import WeightsError
from jaxnlp.models.bert import Bert, BertConfig
from jaxnlp.models.bert_pretraining import BertPretrainingConfig
from jaxnlp.saving.serialization import to_json
from jaxnlp.targets import Number, OneClass, SeveralClasses
from jaxnlp.tasks import Trained
from jaxnlp.tasks.bert_verbs.commands import Export
from jaxnlp.tasks.bert_verbs.encodings import embed_texts, max_length_of
from jaxnlp.tasks.classification import Classification
from jaxnlp.tasks.masked_language_model import MaskedLanguageModel
from tests.random_parameters import random_parameters

TEXTS = ["The cats sat on the mat.", "a big dog"]
PAIRS = [["The cats sat on the mat.", "a dog"], ["a big dog ate a fish on the mat.", "the fish"]]


@pytest.fixture
def exported(trained, tmp_path):
    Export(tmp_path / "out" / "bert")(trained)
    return tmp_path / "out" / "bert"


def test_transformers_reads_the_encoder_and_its_tokenizer(trained, exported):
    model = transformers.BertModel.from_pretrained(exported).eval()
    inputs = transformers.AutoTokenizer.from_pretrained(exported)(TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        expected = model(**inputs)
    mask = inputs["attention_mask"].numpy().astype(bool)
    encoder = Bert(trained.model.config.encoder, model.config.vocab_size)
    params = {"params": trained.params["encoder"]}
    found = jax.jit(encoder.apply)(params, inputs["input_ids"].numpy().astype(np.int32), None, mask)
    np.testing.assert_allclose(np.asarray(found.hidden)[mask], expected.last_hidden_state.numpy()[mask], atol=1e-5)
    np.testing.assert_allclose(found.pooled, expected.pooler_output.numpy(), atol=1e-5)


def test_the_library_reads_the_same_bits_and_computes_the_same_embeddings(trained, exported):
    found = read_pretrained(exported)
    assert found.vocabulary == trained.processor.vocabulary
    chex.assert_trees_all_equal(found.params, jax.tree.map(np.asarray, trained.params["encoder"]))
    again = Classification.from_pretrained(exported)
    np.testing.assert_array_equal(embed_texts(again, TEXTS).values, embed_texts(trained, TEXTS).values)


def test_other_heads_are_saved_separately_with_the_models_config(capsys, trained, exported):
    heads = load_file(exported / "heads.safetensors")
    names = {"heads_sst", "heads_reviews", "heads_quora"}
    assert heads.keys() == {f"{name}.{leaf}" for name in names for leaf in ("kernel", "bias")}
    for name in names:
        for leaf in ("kernel", "bias"):
            np.testing.assert_array_equal(heads[f"{name}.{leaf}"], trained.params[name][leaf])
    with safe_open(exported / "heads.safetensors", "np") as file:
        assert json.loads(file.metadata()["model"]) == json.loads(json.dumps(to_json(trained.model.config)))
    shown = capsys.readouterr().out
    assert f"{exported}: transformers.BertModel.from_pretrained reads it" in shown
    assert "heads_quora, heads_reviews, heads_sst: not part of any Transformers BERT class" in shown
    assert sorted(path.name for path in exported.parent.iterdir()) == ["bert"]


def test_a_model_without_heads_has_no_file_of_them(make_trained, tmp_path, capsys):
    Export(tmp_path / "bert")(make_trained("sts"))
    assert not (tmp_path / "bert" / "heads.safetensors").exists()
    assert capsys.readouterr().out.count("\n") == 1


@pytest.mark.thorough
def test_the_folder_pools_and_truncates_as_the_model(make_trained, tmp_path):
    before = make_trained("sts", max_length=6, pooling="cls")
    Export(tmp_path / "bert")(before)
    after = Classification.from_pretrained(tmp_path / "bert")
    assert (after.model.config.pooling, max_length_of(after)) == ("cls", 6)
    assert after.processor.embeddings.normalize is False

    def similarities(model):
        return np.array([one.label for one in model.predict(*PAIRS)])

    expected = similarities(before)
    np.testing.assert_allclose(5.0 * similarities(after), expected, rtol=1e-6)  # from 0 to 1, not 5
    for wrong in (make_trained("sts", max_length=6), make_trained("sts", pooling="cls")):
        assert np.abs(similarities(wrong) - expected).max() > 1e-3


LONG = [*TEXTS, "the fish ate the mat . " * 20]


@pytest.mark.sweep(1)
@pytest.mark.parametrize(("pooling", "max_length"), [("mean", 6), ("cls", 40)])
def test_sentence_transformers_computes_the_same_vectors(make_trained, tmp_path, pooling, max_length):
    trained = make_trained("sts", max_length=max_length, pooling=pooling)
    Export(tmp_path / "bert")(trained)
    theirs = SentenceTransformer(str(tmp_path / "bert"), device="cpu")
    assert theirs.max_seq_length == max_length
    own = transformers.AutoTokenizer.from_pretrained(tmp_path / "bert")("the cat sat " * 40, truncation=True)
    assert len(own["input_ids"]) == max_length
    found = theirs.encode(LONG, show_progress_bar=False)
    np.testing.assert_allclose(found, embed_texts(trained, LONG).values, atol=1e-5)
    assert np.ptp(found, axis=0).max() > 1e-2


def test_sentence_transformers_normalizes_where_the_weights_say_so(make_trained, tmp_path):
    Export(tmp_path / "bert")(make_trained("sts"))
    save_pretrained(
        tmp_path / "again", read_pretrained(tmp_path / "bert")._replace(modules_after_pooling=("Normalize",))
    )
    found = SentenceTransformer(str(tmp_path / "again"), device="cpu").encode(LONG, show_progress_bar=False)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1.0, atol=1e-5)
    again = Classification.from_pretrained(tmp_path / "again")
    np.testing.assert_allclose(found, again.embed(LONG), atol=1e-5)


@pytest.mark.thorough
def test_embeddings_by_the_pooler_are_announced_as_not_supported_by_others(make_trained, tmp_path, capsys):
    before = make_trained("sst", "sts", max_length=6, pooling="pooler")
    Export(tmp_path / "bert")(before)
    assert "use jaxnlp embed --pooling pooler\n" in capsys.readouterr().out
    assert not (tmp_path / "bert" / "modules.json").exists()
    assert (tmp_path / "bert" / "heads.safetensors").exists()
    after = Classification.from_pretrained(tmp_path / "bert")
    assert max_length_of(after) == 6
    found = embed_texts(after, TEXTS, pooling="pooler").values
    np.testing.assert_array_equal(found, embed_texts(before, TEXTS).values)


@pytest.mark.parametrize("part", ["sst", "reviews"])
def test_one_classification_by_the_pooler_is_transformers_own(make_trained, tmp_path, capsys, part):
    trained, folder = make_trained(part, pooling="pooler", head_dropout_rate=0.25), tmp_path / "bert"
    Export(folder)(trained)
    shown = capsys.readouterr().out
    assert f"{folder}: transformers.BertForSequenceClassification.from_pretrained reads it" in shown
    assert not (folder / "heads.safetensors").exists()
    model, report = transformers.BertForSequenceClassification.from_pretrained(folder, output_loading_info=True)
    assert not any(report.values())
    assert model.config.num_labels == trained.processor.outputs
    assert model.config.label2id == {name: number for number, name in model.config.id2label.items()}
    assert (model.dropout.p, model.training) == (0.25, False)
    inputs = transformers.AutoTokenizer.from_pretrained(folder)(TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        expected = model(**inputs).logits.numpy()
    tokens, mask = inputs["input_ids"].numpy().astype(np.int32), inputs["attention_mask"].numpy().astype(bool)
    ours = jax.jit(trained.model.apply)({"params": trained.params}, tokens, mask, np.zeros_like(tokens))
    np.testing.assert_allclose(ours, expected, atol=1e-5)
    with pytest.raises(WeightsError, match=r"--ignore classifier\."):
        read_pretrained(folder)
    chex.assert_trees_all_equal(
        read_pretrained(folder, ignore=("classifier.",)).params, jax.tree.map(np.asarray, trained.params["encoder"])
    )


@pytest.mark.sweep(1)
@pytest.mark.parametrize("texts", [1, 2])
def test_a_classifier_by_the_pooler_is_transformers_own_also_of_pairs_read_together(
    make_classifier, tmp_path, capsys, texts
):
    trained, folder = make_classifier(texts=texts, pooling="pooler", head_dropout_rate=0.25), tmp_path / "bert"
    Export(folder)(trained)
    assert "transformers.BertForSequenceClassification.from_pretrained reads it" in capsys.readouterr().out
    assert not (folder / "heads.safetensors").exists()
    model, report = transformers.BertForSequenceClassification.from_pretrained(folder, output_loading_info=True)
    assert not any(report.values())
    assert model.config.id2label == dict(enumerate(trained.processor.targets.names))
    rows = [(text, "a dog ate")[:texts] for text in TEXTS]
    inputs = transformers.AutoTokenizer.from_pretrained(folder)(
        *zip(*rows, strict=True), padding=True, return_tensors="pt"
    )
    with torch.no_grad():
        expected = model.eval()(**inputs).logits.numpy()
    found = trained.processor.tokenize(rows)
    batch = trained.processor.batch(found.tokens, found.segments, len(rows), inputs["input_ids"].shape[1])
    ours = jax.jit(trained.model.apply)(
        {"params": trained.params}, *(batch[name] for name in trained.model.config.reads)
    )
    np.testing.assert_allclose(ours, expected, atol=1e-5)
    assert np.ptp(expected, axis=0).max() > 1e-2


@pytest.mark.sweep(1)
@pytest.mark.parametrize("texts", [1, 2])
@pytest.mark.parametrize(
    ("targets", "problem", "names"),
    [
        (OneClass(("arts", "sport")), "single_label_classification", {0: "arts", 1: "sport"}),
        (SeveralClasses(("a", "b", "c")), "multi_label_classification", {0: "a", 1: "b", 2: "c"}),
        (Number(-2.0, 7.0), "regression", {0: "number"}),
    ],
    ids=["one", "several", "number"],
)
def test_a_head_on_the_pooler_predicts_the_same_in_transformers(
    make_classifier, tmp_path, capsys, texts, targets, problem, names
):
    trained = make_classifier(texts=texts, targets=targets, pooling="pooler")
    Export(tmp_path / "bert")(trained)
    model, report = transformers.AutoModelForSequenceClassification.from_pretrained(
        tmp_path / "bert", output_loading_info=True
    )
    assert not any(report.values())
    limited = "jaxnlp limits its numbers to the scale of the labels, from -2 to 7" in capsys.readouterr().out
    assert limited == (problem == "regression")
    assert (model.config.problem_type, model.config.id2label) == (problem, names)
    rows = [(text, "a dog ate")[:texts] for text in TEXTS]
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "bert")
    with torch.no_grad():
        scores = model.eval()(
            **tokenizer(*map(list, zip(*rows, strict=True)), padding=True, return_tensors="pt")
        ).logits
    found = [trained.predict(*row) for row in rows]
    if problem == "regression":
        expected = [[one.label] for one in found]
        np.testing.assert_allclose(scores.clamp(-2.0, 7.0), expected, atol=1e-4)
        assert np.ptp(expected) > 1e-3
        return
    values = torch.sigmoid(scores) if problem.startswith("multi") else torch.softmax(scores, dim=-1)
    np.testing.assert_allclose(values, [list(one.probabilities.values()) for one in found], atol=1e-5)


@pytest.mark.parametrize(
    ("fields", "heads"),
    [
        ({"texts": 2, "pairs": "apart"}, {"head"}),
        ({"texts": 2, "pairs": "apart", "pair_layer": "separate"}, {"head", "pair_layer"}),
        ({"texts": 2, "pairs": "apart", "targets": Number(0.0, 5.0), "similarity": "cosine"}, set()),
    ],
    ids=["apart", "layer", "cosine"],
)
def test_heads_of_other_classifiers_are_saved_separately(make_classifier, tmp_path, capsys, fields, heads):
    trained = make_classifier(**fields)
    Export(tmp_path / "bert")(trained)
    assert "transformers.BertModel.from_pretrained reads it" in capsys.readouterr().out
    assert (tmp_path / "bert" / "heads.safetensors").exists() == bool(heads)
    if heads:
        found = load_file(tmp_path / "bert" / "heads.safetensors")
        assert found.keys() == {f"{name}.{leaf}" for name in heads for leaf in ("kernel", "bias")}
        np.testing.assert_array_equal(found["head.kernel"], trained.params["head"]["kernel"])
    chex.assert_trees_all_equal(
        read_pretrained(tmp_path / "bert").params, jax.tree.map(np.asarray, trained.params["encoder"])
    )


def test_a_classification_by_another_pooling_has_its_own_program(make_trained, tmp_path):
    trained = make_trained("sst", pooling="cls")
    Export(tmp_path / "bert")(trained)
    settings = json.loads((tmp_path / "bert" / "config.json").read_text())
    assert settings["auto_map"] == {"AutoModelForSequenceClassification": "classify.BertForSequenceClassification"}
    assert not (tmp_path / "bert" / "heads.safetensors").exists()
    head, found = trained.params["heads_sst"], load_file(tmp_path / "bert" / "model.safetensors")
    np.testing.assert_array_equal(found["classifier.weight"], head["kernel"].T)
    np.testing.assert_array_equal(found["classifier.bias"], [head["bias"]])
    chex.assert_trees_all_equal(
        read_pretrained(tmp_path / "bert", ignore=("classifier.",)).params,
        jax.tree.map(np.asarray, trained.params["encoder"]),
    )


def test_pretraining_heads_are_exported_with_their_encoder(trained, tmp_path):
    vocabulary, task = trained.processor.vocabulary, MaskedLanguageModel()
    encoder = BertConfig(num_layers=1, num_heads=2, width=8, max_positions=40)
    config = BertPretrainingConfig(encoder=encoder)
    model, inputs = config.build(vocabulary), config.inputs(vocabulary)
    params = jax.device_put(random_parameters(model, *inputs))
    Export(tmp_path / "bert")(Trained(task, model, params, vocabulary, name="pretrained"))
    found = read_pretrained(tmp_path / "bert")
    chex.assert_trees_all_equal(found.heads, jax.tree.map(np.asarray, params["heads"]))
    chex.assert_trees_all_equal(found.params, jax.tree.map(np.asarray, params["encoder"]))
    report = transformers.BertForPreTraining.from_pretrained(tmp_path / "bert", output_loading_info=True)[1]
    assert not any(report.values())


def test_a_failed_export_leaves_nothing(trained, tmp_path, monkeypatch):
    def full(*_):
        raise OSError("no space left")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="no space left"):
        Export(tmp_path / "bert")(trained)
    assert list(tmp_path.iterdir()) == []


def test_variants_that_transformers_does_not_have_and_full_folders_are_refused(trained, make_trained, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("mine")
    with pytest.raises(OSError, match="not empty"):
        Export(tmp_path / "full")(trained)
    encoder = dataclasses.replace(trained.model.config.encoder, pre_norm=True)
    with pytest.raises(WeightsError, match="pre_norm"):
        Export(tmp_path / "new")(make_trained("sst", encoder=encoder))
    assert not (tmp_path / "new").exists()
