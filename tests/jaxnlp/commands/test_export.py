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
from jaxnlp.convert.pretrained import load_pretrained
from jaxnlp.encoders import load_text_model
from jaxnlp.models.bert import Bert
from jaxnlp.serialization import to_json
from jaxnlp.texts import embed_texts

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
    assert f"{exported / 'heads.safetensors'}: heads_cfimdb, heads_quora, heads_sst, which Transformers has no" in shown
    assert sorted(path.name for path in exported.parent.iterdir()) == ["bert"]


def test_a_run_without_heads_leaves_no_file_of_them(text_tasks_run, tmp_path, save_run, pieces, capsys):
    config = dataclasses.replace(text_tasks_run.config, tasks=("sts",))
    save_run(tmp_path / "run", config, pieces)
    assert main(["export", str(tmp_path / "run"), str(tmp_path / "bert")]) == 0
    assert not (tmp_path / "bert" / "heads.safetensors").exists()
    assert capsys.readouterr().out.count("\n") == 1


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
