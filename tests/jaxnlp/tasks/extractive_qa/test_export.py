import json
import shutil

import jax
import numpy as np
import pytest
import torch
import transformers
from safetensors.numpy import load_file, save_file

import jaxnlp
from jaxnlp.models.extractive_qa import BertSpanConfig
from jaxnlp.tasks.extractive_qa.export import ExportSpans

CONTEXT, QUESTION = "Ann was born in Lima.", "Where was Ann born?"


@pytest.fixture(scope="module")
def exported(bert, tmp_path_factory):
    folder = tmp_path_factory.mktemp("export") / "model"
    ExportSpans(folder)(bert)
    return folder


def test_transformers_computes_the_same_scores_and_jaxnlp_reads_the_model_back(bert, exported):
    theirs = transformers.AutoModelForQuestionAnswering.from_pretrained(exported).eval()
    assert type(theirs).__name__ == "BertForQuestionAnswering"
    tokenizer = transformers.AutoTokenizer.from_pretrained(exported)
    inputs = tokenizer(QUESTION, CONTEXT, return_tensors="pt")
    with torch.no_grad():
        found = theirs(**inputs)
    names = ("input_ids", "token_type_ids", "attention_mask")
    scores = bert.model.apply({"params": bert.params}, *(inputs[name].numpy() for name in names[:2]), None)
    for side, logits in enumerate((found.start_logits, found.end_logits)):
        np.testing.assert_allclose(scores[..., side], logits.numpy(), rtol=1e-3, atol=1e-4)
    back = jaxnlp.load_pretrained(exported)
    assert back.processor == bert.processor
    params = {**bert.params, "encoder": {name: x for name, x in bert.params["encoder"].items() if name != "pooler"}}
    jax.tree.map(np.testing.assert_array_equal, dict(back.params), params)
    assert back.ask(QUESTION, CONTEXT, n_best=3) == bert.ask(QUESTION, CONTEXT, n_best=3)


def test_a_question_answering_bert_of_transformers_answers(bert, exported, tmp_path):
    theirs = transformers.AutoModelForQuestionAnswering.from_pretrained(exported)
    theirs.save_pretrained(tmp_path)
    transformers.AutoTokenizer.from_pretrained(exported).save_pretrained(tmp_path)
    found = jaxnlp.load_pretrained(tmp_path)
    assert isinstance(found.model.config, BertSpanConfig)
    expected = bert.ask(QUESTION, CONTEXT, n_best=3)
    assert [answer.text for answer in found.ask(QUESTION, CONTEXT, n_best=3)] == [answer.text for answer in expected]
    encoder = jaxnlp.load_pretrained(tmp_path, ignore=("qa_outputs.",))  # as a BERT for other tasks
    assert encoder.embed("Ann").shape == (8,)


def test_a_model_without_a_bert_is_not_exported(trained, tmp_path):
    with pytest.raises(ValueError, match="Transformers has no class for its model, a RecurrentSpan; give --format jax"):
        ExportSpans(tmp_path / "new")(trained)
    assert not (tmp_path / "new").exists()


def test_a_changed_export_is_refused(exported, tmp_path, bert):
    folder = tmp_path / "model"
    ExportSpans(folder)(bert)
    parts = json.loads((folder / "jaxnlp.json").read_text())
    (folder / "jaxnlp.json").write_text(json.dumps(parts | {"head": None}))
    with pytest.raises(jaxnlp.convert.PretrainedError, match="export the run again"):
        jaxnlp.load_pretrained(folder)


def test_weights_without_the_head_and_other_heads_are_refused(exported, tmp_path):
    folder = shutil.copytree(exported, tmp_path / "model")
    (folder / "jaxnlp.json").unlink()
    tensors = load_file(folder / "model.safetensors")
    save_file(tensors | {"qa_outputs.bias": np.zeros(3, np.float32)}, folder / "model.safetensors")
    with pytest.raises(jaxnlp.convert.PretrainedError, match="expected 2 outputs of qa_outputs, got 3"):
        jaxnlp.load_pretrained(folder)
    del tensors["qa_outputs.weight"]
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(jaxnlp.convert.PretrainedError, match="not have the tensor 'qa_outputs"):
        jaxnlp.load_pretrained(folder)
