import dataclasses
import json
import re
from pathlib import Path

import chex
import jax
import numpy as np
import pytest
import torch
import transformers
from safetensors import safe_open
from safetensors.numpy import load_file

from jaxnlp.__main__ import main
from jaxnlp.convert.bert import WeightsError
from jaxnlp.convert.pretrained import load_pretrained
from jaxnlp.models.bert import Bert
from jaxnlp.runs import load
from jaxnlp.serialization import to_json
from jaxnlp.tasks.text_tasks.commands import pretrained_of
from jaxnlp.tasks.text_tasks.predictions import embed_texts, predict_texts
from jaxnlp.text.labels import Labels

TEXTS = ["The cats sat on the mat.", "a big dog"]


@pytest.fixture
def exported(trained, tmp_path):
    assert main(["export", str(trained.folder), str(tmp_path / "out" / "bert")]) == 0
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


def test_an_exported_model_is_read_to_the_same_bits_and_embeddings(trained, exported):
    held = load_pretrained(exported)
    assert held.vocabulary == trained.processor.vocabulary
    chex.assert_trees_all_equal(held.params, jax.tree.map(np.asarray, trained.params["encoder"]))
    ours, theirs = (embed_texts(load(place), TEXTS) for place in (trained.folder, exported))
    np.testing.assert_array_equal(ours.values, theirs.values)


def test_heads_are_saved_separately_with_the_config_of_the_model(capsys, trained, exported):
    heads = load_file(exported / "heads.safetensors")
    params = trained.params
    names = {"heads_sst", "heads_cfimdb", "heads_quora"}
    assert heads.keys() == {f"{name}.{part}" for name in names for part in ("kernel", "bias")}
    for name in names:
        for part in ("kernel", "bias"):
            np.testing.assert_array_equal(heads[f"{name}.{part}"], params[name][part])
    with safe_open(exported / "heads.safetensors", "np") as held:
        assert json.loads(held.metadata()["model"]) == to_json(trained.model.config)
    shown = capsys.readouterr().out
    assert f"{exported}: transformers.BertModel.from_pretrained reads it" in shown
    assert f"{exported / 'heads.safetensors'}: heads_cfimdb, heads_quora, heads_sst: not part of any" in shown
    assert sorted(path.name for path in exported.parent.iterdir()) == ["bert"]


def test_a_run_without_heads_has_no_file_of_heads(make_trained, tmp_path, save_run, capsys):
    save_run(tmp_path / "run", make_trained(("sts",)))
    assert main(["export", str(tmp_path / "run"), str(tmp_path / "bert")]) == 0
    assert not (tmp_path / "bert" / "heads.safetensors").exists()
    assert capsys.readouterr().out.count("\n") == 1


@pytest.fixture
def save_short_run(make_trained, save_run, tmp_path):
    """Saves a run that truncates texts to six tokens; returns it as it is read."""

    def save(*parts, **changes):
        return save_run(tmp_path / "run", make_trained(parts, 6, **changes))

    return save


def test_texts_are_pooled_and_truncated_in_the_folder_as_in_the_run(save_short_run, tmp_path, capsys):
    before = save_short_run("sts", pooling="cls")
    assert main(["export", str(before.folder), str(tmp_path / "bert")]) == 0
    after = load(tmp_path / "bert")
    assert (after.model.config.pooling, after.processor.max_length) == ("cls", 6)
    assert not after.task.normalize_embeddings
    pairs = [["The cats sat on the mat.", "a dog"], ["a big dog ate a fish on the mat.", "the fish"]]
    found, expected = predict_texts(after, *pairs, part="similarity"), predict_texts(before, *pairs, part="sts")
    np.testing.assert_allclose(5.0 * found.values, expected.values, rtol=1e-6)
    assert found.truncated == expected.truncated == 2
    longer = dataclasses.replace(before, processor=dataclasses.replace(before.processor, max_length=40))
    assert np.abs(predict_texts(longer, *pairs, part="sts").values - expected.values).max() > 1e-3
    mean = embed_texts(before, TEXTS, pooling="mean").values
    assert np.abs(mean - embed_texts(after, TEXTS).values).max() > 1e-3
    assert capsys.readouterr().out.count("\n") == 1


def test_embeddings_of_a_pooler_are_reported_as_unsupported_by_sentence_transformers(save_short_run, tmp_path, capsys):
    before = save_short_run("sst", "sts", pooling="pooler")
    assert main(["export", str(before.folder), str(tmp_path / "bert")]) == 0
    assert "sentence-transformers does not support; use jaxnlp embed --pooling pooler\n" in capsys.readouterr().out
    assert not (tmp_path / "bert" / "modules.json").exists()
    assert (tmp_path / "bert" / "heads.safetensors").exists()
    after = load(tmp_path / "bert")
    assert after.processor.max_length == 6
    found = embed_texts(after, TEXTS, pooling="pooler").values
    np.testing.assert_array_equal(found, embed_texts(before, TEXTS).values)


@pytest.mark.parametrize("names", [("0", "1", "2", "3", "4"), ("bad film", "good film")])
def test_a_single_classification_by_the_pooler_is_one_of_transformers(save_short_run, tmp_path, capsys, names):
    part = ("text", Labels("classification", 1, names))
    trained, folder = save_short_run(part, pooling="pooler", head_dropout_rate=0.25), tmp_path / "bert"
    assert main(["export", str(trained.folder), str(folder)]) == 0
    shown = capsys.readouterr().out
    assert f"{folder}: transformers.BertForSequenceClassification.from_pretrained reads it" in shown
    assert not (folder / "heads.safetensors").exists()
    model, report = transformers.BertForSequenceClassification.from_pretrained(folder, output_loading_info=True)
    assert not any(report.values())
    assert model.config.num_labels == len(names)
    assert model.config.id2label == dict(enumerate(names))
    assert model.config.label2id == {name: number for number, name in enumerate(names)}
    assert (model.dropout.p, model.training) == (0.25, False)
    inputs = transformers.AutoTokenizer.from_pretrained(folder)(TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        expected = model(**inputs).logits.numpy()
    mask = inputs["attention_mask"].numpy().astype(bool)[:, None]
    tokens = inputs["input_ids"].numpy().astype(np.int32)[:, None]
    ours = jax.jit(trained.model.apply)({"params": trained.params}, tokens, mask)
    np.testing.assert_allclose(ours["text"], expected, atol=1e-5)
    with pytest.raises(WeightsError, match=r"--ignore classifier\."):
        load_pretrained(folder)
    params = load_pretrained(folder, ignore=("classifier.",)).params
    chex.assert_trees_all_equal(params, pretrained_of(trained).params)
    assert main(["embed", str(folder), "a dog", "--ignore", "classifier."]) == 0


def test_a_classification_by_another_pooling_has_its_head_saved_separately(save_short_run, tmp_path):
    assert main(["export", str(save_short_run("sst", pooling="cls").folder), str(tmp_path / "bert")]) == 0
    assert json.loads((tmp_path / "bert" / "config.json").read_text())["architectures"] == ["BertModel"]
    assert load_file(tmp_path / "bert" / "heads.safetensors").keys() == {"heads_sst.kernel", "heads_sst.bias"}


def test_a_failed_export_leaves_nothing(trained, tmp_path, capsys, monkeypatch):
    def full(*_):
        raise OSError("no space left")

    monkeypatch.setattr(Path, "write_bytes", full)
    assert main(["export", str(trained.folder), str(tmp_path / "bert")]) == 2
    assert capsys.readouterr() == ("", "error: no space left\n")
    assert list(tmp_path.iterdir()) == []


def test_an_impossible_export_is_refused(trained, finished_run, tmp_path, save_run, make_trained, capsys):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("mine")
    encoder = dataclasses.replace(trained.model.config.encoder, pre_norm=True)
    save_run(tmp_path / "run", make_trained(encoder=encoder))
    (tmp_path / "empty").mkdir()
    for run, folder, message in (
        (finished_run.folder, tmp_path / "new", "cannot export; it has: generate"),
        (trained.folder, tmp_path / "full", "exists and is not empty; choose another, or move it away"),
        (tmp_path / "run", tmp_path / "new", "Transformers' BERT does not support pre_norm = True"),
        (
            tmp_path / "empty",
            tmp_path / "new",
            "is neither a training run nor pretrained weights",
        ),
    ):
        assert main(["export", str(run), str(folder)]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert re.fullmatch(f"error: .*{re.escape(message)}.*\n", err)
    assert not (tmp_path / "new").exists()
