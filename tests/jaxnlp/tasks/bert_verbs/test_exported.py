"""Exported classifiers as the library reads them back: with their heads."""

import json

import chex
import jax
import numpy as np
import pytest
import torch
import transformers
from safetensors.numpy import load_file, save_file

import jaxnlp
from jaxnlp.__main__ import main
from jaxnlp.convert import PretrainedError
from jaxnlp.convert.folders import EXPORTED
from jaxnlp.models.bert import BertConfig
from jaxnlp.nn.compute import TransformerCompute
from jaxnlp.saving.serialization import ConfigError
from jaxnlp.targets import Number, OneClass, SeveralClasses
from jaxnlp.tasks.bert_verbs.commands import Export
from jaxnlp.tasks.classification import Classification
from jaxnlp.tasks.classification.pretrained import SIMILARITY

TEXTS = ["The cats sat on the mat.", "a big dog", "fish"]
PAIRS = ["a dog", "the cats", "the mat"]
ELECTRA = BertConfig(
    num_layers=2, num_heads=2, width=8, max_positions=40, model_type="electra", pooler_activation="gelu"
)


@pytest.mark.sweep(1)
@pytest.mark.parametrize(
    "fields",
    [
        {"pooling": "pooler"},
        {"pooling": "cls", "texts": 2},
        {"pooling": "pooler", "targets": Number(-2.0, 7.0)},
        {"pooling": "mean", "targets": SeveralClasses(("a", "b", "c"))},
        {"texts": 2, "pairs": "apart", "pair_layer": "separate"},
        {"pooling": "mean", "encoder": ELECTRA},  # the names of its pooler begin as those of the head
    ],
    ids=["pooler", "pairs", "number", "several", "apart", "electra"],
)
def test_every_classifier_predicts_the_same_after_its_export(make_classifier, tmp_path, fields):
    trained = make_classifier(**fields)
    Export(tmp_path / "bert")(trained)
    again = jaxnlp.load_pretrained(tmp_path / "bert")
    chex.assert_trees_all_close(again.params, jax.tree.map(np.asarray, trained.params), atol=1e-6)
    pairs = PAIRS if fields.get("texts") == 2 else None
    for found, expected in zip(again.predict(TEXTS, pairs), trained.predict(TEXTS, pairs), strict=True):
        assert found.label == pytest.approx(expected.label, abs=1e-5)
        assert found.probabilities == pytest.approx(expected.probabilities, abs=1e-5)


def test_a_classifier_that_was_trained_in_bfloat16_predicts_as_transformers_after_its_export(make_classifier, tmp_path):
    trained = make_classifier(pooling="pooler", compute=TransformerCompute(dtype="bfloat16"))
    Export(tmp_path / "bert")(trained)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "bert")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "bert")
    with torch.no_grad():
        expected = model(**tokenizer(TEXTS, padding=True, return_tensors="pt")).logits.softmax(-1).numpy()

    def error(one):
        probabilities = [[*found.probabilities.values()] for found in one.predict(TEXTS)]
        return np.abs(np.array(probabilities) - expected).max()

    assert error(jaxnlp.load_pretrained(tmp_path / "bert")) < 1e-5
    assert error(trained) > 1e-4  # the run itself rounds


@pytest.mark.thorough
def test_the_parts_of_a_model_keep_their_heads(trained, tmp_path):
    Export(tmp_path / "bert")(trained)
    again = jaxnlp.load_pretrained(tmp_path / "bert")
    assert again.processor == trained.processor
    for part in ("sst", "reviews"):
        assert again.predict(TEXTS, part=part) == trained.predict(TEXTS, part=part)
    assert again.predict(TEXTS, PAIRS, part="quora") == trained.predict(TEXTS, PAIRS, part="quora")


def test_without_its_head_an_exported_classifier_is_an_encoder(make_classifier, tmp_path, capsys):
    trained, folder = make_classifier(pooling="pooler"), str(tmp_path / "bert")
    Export(tmp_path / "bert")(trained)
    assert f"{folder}: transformers.BertForSequenceClassification.from_pretrained reads it, and jaxnlp, with its" in (
        capsys.readouterr().out
    )
    again = jaxnlp.load_pretrained(folder, ignore=("classifier.",))
    assert isinstance(again.task, Classification)
    assert [*again.processor.by_part] == [SIMILARITY]
    np.testing.assert_allclose(again.embed(TEXTS, pooling="pooler"), trained.embed(TEXTS), atol=1e-6)
    assert main(["embed", folder, "a dog", "--ignore", "classifier."]) == 0
    assert main(["predict", folder, "a dog", "--ignore", "classifier."]) == 2
    assert "--pair" in capsys.readouterr().err  # without the head, it measures the similarity of two texts
    assert main(["predict", folder, "a dog", "--ignore"]) == 2
    assert "--ignore: expected names of tensors, or their prefixes, got none" in (capsys.readouterr().err)


def test_after_further_training_in_transformers_the_classes_are_those_of_the_folder_or_it_is_refused(
    make_classifier, tmp_path
):
    names = tuple(f"class {index}" for index in range(11))  # Transformers writes 10 between 1 and 2
    Export(tmp_path / "bert")(make_classifier(pooling="pooler", targets=OneClass(names)))
    theirs = transformers.BertForSequenceClassification.from_pretrained(tmp_path / "bert")
    with torch.no_grad():
        theirs.classifier.bias[10] += 100.0
    theirs.save_pretrained(tmp_path / "bert")
    assert jaxnlp.load_pretrained(tmp_path / "bert").predict("fish").label == "class 10"
    theirs.config.id2label = dict(enumerate(reversed(names)))
    theirs.save_pretrained(tmp_path / "bert")
    with pytest.raises(PretrainedError, match=r"classes in config\.json are class 10, .*; remove jaxnlp\.json to read"):
        jaxnlp.load_pretrained(tmp_path / "bert")
    (tmp_path / "bert" / EXPORTED).unlink()
    assert jaxnlp.load_pretrained(tmp_path / "bert").predict("fish").label == "class 0"


def test_a_folder_that_was_changed_is_refused(make_classifier, tmp_path):
    Export(tmp_path / "bert")(make_classifier(texts=2, pairs="apart"))
    heads = tmp_path / "bert" / "heads.safetensors"
    found = load_file(heads)
    save_file({name: x[..., :1].copy() for name, x in found.items()}, heads)
    with pytest.raises(PretrainedError, match=r"head/bias does not fit jaxnlp\.json; export the run again"):
        jaxnlp.load_pretrained(tmp_path / "bert")
    heads.unlink()
    with pytest.raises(PretrainedError, match=r"has neither heads\.safetensors nor the head of jaxnlp.json; export"):
        jaxnlp.load_pretrained(tmp_path / "bert")
    (tmp_path / "bert" / EXPORTED).write_text(json.dumps({"task": {"type": "elsewhere:Task"}}))
    with pytest.raises(ConfigError, match=r"the task of .*elsewhere"):
        jaxnlp.load_pretrained(tmp_path / "bert")
