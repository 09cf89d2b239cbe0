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
from jaxnlp.encoders import encoder_of, load_text_model
from jaxnlp.text.tasks import TASKS
from jaxnlp.texts import embed_texts, predict_texts
from safetensors import safe_open
from safetensors.numpy import load_file

from jaxnlp.__main__ import main
from jaxnlp.convert.bert import WeightsError
from jaxnlp.convert.pretrained import load_pretrained
from jaxnlp.models.bert import Bert
from jaxnlp.runs import load_run
from jaxnlp.serialization import to_json

TEXTS = ["The cats sat on the mat.", "a big dog"]


@pytest.fixture
def exported(text_tasks_run, tmp_path):
    assert main(["export", str(text_tasks_run.folder), str(tmp_path / "out" / "bert")]) == 0
    return tmp_path / "out" / "bert"


def test_transformers_reads_the_encoder_and_its_tokenizer(text_tasks_run, exported):
    model = transformers.BertModel.from_pretrained(exported).eval()
    inputs = transformers.AutoTokenizer.from_pretrained(exported)(TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        expected = model(**inputs)
    mask = inputs["attention_mask"].numpy().astype(bool)
    encoder = Bert(text_tasks_run.config.encoder, model.config.vocab_size)
    params = {"params": text_tasks_run.params["encoder"]}
    found = jax.jit(encoder.apply)(params, inputs["input_ids"].numpy().astype(np.int32), None, mask)
    np.testing.assert_allclose(np.asarray(found.hidden)[mask], expected.last_hidden_state.numpy()[mask], atol=1e-5)
    np.testing.assert_allclose(found.pooled, expected.pooler_output.numpy(), atol=1e-5)


def test_we_read_the_same_bits_and_make_the_same_vectors(text_tasks_run, exported, pieces):
    held = load_pretrained(exported)
    assert held.vocabulary == pieces
    chex.assert_trees_all_equal(held.params, jax.tree.map(np.asarray, text_tasks_run.params["encoder"]))
    ours, theirs = (embed_texts(load_text_model(place), TEXTS) for place in (text_tasks_run.folder, exported))
    np.testing.assert_array_equal(ours.values, theirs.values)


def test_heads_lie_beside_with_the_models_config(capsys, text_tasks_run, exported):
    heads = load_file(exported / "heads.safetensors")
    params = text_tasks_run.params
    names = {"heads_sst", "heads_cfimdb", "heads_quora"}
    assert heads.keys() == {f"{name}.{part}" for name in names for part in ("kernel", "bias")}
    for name in names:
        for part in ("kernel", "bias"):
            np.testing.assert_array_equal(heads[f"{name}.{part}"], params[name][part])
    with safe_open(exported / "heads.safetensors", "np") as held:
        shape = to_json(text_tasks_run.config)
        assert json.loads(held.metadata()["model"]) == {n: x for n, x in shape.items() if n[:10] != "pretrained"}
    shown = capsys.readouterr().out
    assert f"{exported}: transformers.BertModel.from_pretrained reads it" in shown
    assert f"{exported / 'heads.safetensors'}: heads_cfimdb, heads_quora, heads_sst, which no one BERT of" in shown
    assert sorted(path.name for path in exported.parent.iterdir()) == ["bert"]


def test_a_run_without_heads_leaves_no_file_of_them(text_tasks_run, tmp_path, save_run, pieces, capsys):
    config = dataclasses.replace(text_tasks_run.config, tasks=("sts",))
    save_run(tmp_path / "run", config, pieces)
    assert main(["export", str(tmp_path / "run"), str(tmp_path / "bert")]) == 0
    assert not (tmp_path / "bert" / "heads.safetensors").exists()
    assert capsys.readouterr().out.count("\n") == 1


@pytest.fixture
def save_short_run(text_tasks_run, tmp_path, save_run, pieces):
    """Saves a run whose config differs in fields, and that cuts texts after six tokens."""

    def save(**changes):
        folder = tmp_path / "run"
        save_run(folder, dataclasses.replace(text_tasks_run.config, **changes), pieces)
        config = json.loads((folder / "config.json").read_text()) | {"data": {"longest_tokens": 6}}
        (folder / "config.json").write_text(json.dumps(config))
        return folder

    return save


def test_texts_are_pooled_and_cut_in_the_folder_as_in_the_run(save_short_run, tmp_path, capsys):
    run = save_short_run(pooling="cls", tasks=("sts",))
    assert main(["export", str(run), str(tmp_path / "bert")]) == 0
    before, after = load_text_model(run), load_text_model(tmp_path / "bert")
    assert (after.model.config.pooling, after.longest, after.unit_vectors) == ("cls", 6, False)
    pairs = [["The cats sat on the mat.", "a dog"], ["a big dog ate a fish on the mat.", "the fish"]]
    found, expected = (predict_texts(held, *pairs, task="sts") for held in (after, before))
    np.testing.assert_array_equal(found.values, expected.values)
    assert found.truncated == expected.truncated == 2
    wrong = (load_text_model(run, pooling="mean"), before._replace(longest=40))
    assert all(np.abs(predict_texts(held, *pairs, task="sts").values - found.values).max() > 1e-3 for held in wrong)
    assert capsys.readouterr().out.count("\n") == 1


def test_vectors_of_a_pooler_are_said_to_have_no_place(save_short_run, tmp_path, capsys):
    run = save_short_run(pooling="pooler", tasks=("sst", "sts"))
    assert main(["export", str(run), str(tmp_path / "bert")]) == 0
    assert "no file here says so: give embed --pooling pooler\n" in capsys.readouterr().out
    assert not (tmp_path / "bert" / "modules.json").exists()
    assert (tmp_path / "bert" / "heads.safetensors").exists()
    before, after = load_text_model(run), load_text_model(tmp_path / "bert", pooling="pooler")
    assert after.longest == 6
    np.testing.assert_array_equal(embed_texts(after, TEXTS).values, embed_texts(before, TEXTS).values)


@pytest.mark.parametrize("task", ["sst", "cfimdb"])
def test_one_classification_by_the_pooler_is_transformers_own(save_short_run, tmp_path, capsys, task):
    run, folder = save_short_run(pooling="pooler", tasks=(task,), head_dropout_rate=0.25), tmp_path / "bert"
    assert main(["export", str(run), str(folder)]) == 0
    shown = capsys.readouterr().out
    assert f"{folder}: transformers.BertForSequenceClassification.from_pretrained reads it" in shown
    assert not (folder / "heads.safetensors").exists()
    model, report = transformers.BertForSequenceClassification.from_pretrained(folder, output_loading_info=True)
    assert not any(report.values())
    assert model.config.num_labels == TASKS[task].labels
    assert model.config.label2id == {name: number for number, name in model.config.id2label.items()}
    assert (model.dropout.p, model.training) == (0.25, False)
    inputs = transformers.AutoTokenizer.from_pretrained(folder)(TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        expected = model(**inputs).logits.numpy()
    held = load_text_model(run)._replace(longest=40)
    mask = inputs["attention_mask"].numpy().astype(bool)
    ours = jax.jit(held.model.apply)({"params": held.params}, inputs["input_ids"].numpy().astype(np.int32), mask)
    np.testing.assert_allclose(ours[task], expected, atol=1e-5)
    with pytest.raises(WeightsError, match=r"--ignore classifier\."):
        load_pretrained(folder)
    chex.assert_trees_all_equal(
        load_pretrained(folder, ignore=("classifier.",)).params, encoder_of(load_run(run)).params
    )


def test_a_classification_by_another_pooling_is_not(save_short_run, tmp_path):
    assert main(["export", str(save_short_run(pooling="cls", tasks=("sst",))), str(tmp_path / "bert")]) == 0
    assert json.loads((tmp_path / "bert" / "config.json").read_text())["architectures"] == ["BertModel"]
    assert load_file(tmp_path / "bert" / "heads.safetensors").keys() == {"heads_sst.kernel", "heads_sst.bias"}


def test_a_failed_export_leaves_nothing(text_tasks_run, tmp_path, capsys, monkeypatch):
    def full(*_):
        raise OSError("no space left")

    monkeypatch.setattr(Path, "write_bytes", full)
    assert main(["export", str(text_tasks_run.folder), str(tmp_path / "bert")]) == 2
    assert capsys.readouterr() == ("", "error: no space left\n")
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_exported_is_said(text_tasks_run, finished_run, tmp_path, save_run, pieces, capsys):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("mine")
    encoder = dataclasses.replace(text_tasks_run.config.encoder, pre_norm=True)
    save_run(tmp_path / "run", dataclasses.replace(text_tasks_run.config, encoder=encoder), pieces)
    for run, folder, message in (
        (finished_run.folder, tmp_path / "new", "has no BERT: its model is a GPT"),
        (text_tasks_run.folder, tmp_path / "full", "exists and is not empty; choose another, or move it away"),
        (tmp_path / "run", tmp_path / "new", "Transformers' BERT has no pre_norm = True"),
        (tmp_path, tmp_path / "new", "is not a run's folder: it has no config.json"),
    ):
        assert main(["export", str(run), str(folder)]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert re.fullmatch(f"error: .*{re.escape(message)}.*\n", err)
    assert not (tmp_path / "new").exists()
