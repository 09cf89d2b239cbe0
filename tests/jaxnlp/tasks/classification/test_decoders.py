"""Classifiers of texts with a decoder: those of Transformers, in and out."""

import csv
import dataclasses

import jax
import numpy as np
import pytest
import torch
import transformers
from flax.traverse_util import flatten_dict

import jaxnlp
from jaxnlp.__main__ import main
from jaxnlp.convert import PretrainedError
from jaxnlp.targets import Number
from jaxnlp.tasks.classification.decoders import save_decoder_classifier
from jaxnlp.text.classifier_processor import one_part
from tests import decoder_folders
from tests.decoder_folders import END
from tests.encoder_folders import TEXTS

KIND = "ForSequenceClassification"
SHORT = [text[:30] for text in TEXTS]


def logits_of(folder, texts, **settings):
    """Transformers' logits of texts in one batch, padded on the right."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **settings)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    with torch.no_grad():
        return model(**tokenizer(texts, return_tensors="pt", padding=True)).logits.numpy()


def ours(run, texts, pairs=None):
    batch = run.processor.vocabulary(texts, pairs, max_length=40)
    return np.asarray(run.model.apply({"params": run.params}, batch["tokens"], batch["attention_mask"]))


@pytest.mark.sweep(2)
@pytest.mark.parametrize("family", ["gpt2", "llama", "qwen2", "qwen3"])
def test_a_classifier_has_the_logits_of_transformers_and_its_export_equal_bits(family, tmp_path):
    names = {0: "bad", 1: "good", 2: "so so"}
    model, tokenizer = decoder_folders.write_folder(tmp_path / "theirs", KIND, family, num_labels=3, id2label=names)
    padding = tokenizer.eos_token_id
    model.config.pad_token_id = padding
    model.save_pretrained(tmp_path / "theirs")
    run = jaxnlp.load_pretrained(tmp_path / "theirs")
    texts = [*SHORT, f"The end{tokenizer.eos_token}"]  # the last token is that of padding, and is not the vector
    expected = logits_of(tmp_path / "theirs", texts, pad_token=tokenizer.eos_token)
    np.testing.assert_allclose(ours(run, texts), expected, atol=1e-5)
    found = [[one.probabilities[name] for name in names.values()] for one in run.predict(texts)]
    np.testing.assert_allclose(found, torch.tensor(expected).softmax(-1), atol=1e-5)
    assert main(["export", str(tmp_path / "theirs"), str(tmp_path / "out")]) == 0
    np.testing.assert_allclose(logits_of(tmp_path / "out", texts), expected, atol=1e-6)
    again, report = type(model).from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not any(report.values())
    assert again.config.id2label == names
    for name, tensor in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor), name
    params = jaxnlp.load_pretrained(tmp_path / "out").params
    jax.tree.map(np.testing.assert_array_equal, params, run.params)


@pytest.mark.thorough
def test_a_folder_without_a_padding_token_reads_the_last_token_and_a_head_of_one_output_a_number(tmp_path):
    decoder_folders.write_folder(tmp_path, KIND, "gpt2", num_labels=1)
    run = jaxnlp.load_pretrained(tmp_path)
    expected = [logits_of(tmp_path, [text], pad_token=END)[0, 0] for text in TEXTS[:2]]
    np.testing.assert_allclose([one.label for one in run.predict(TEXTS[:2])], expected, atol=1e-5)
    pair = logits_of(tmp_path, [("The cat", "sat")], pad_token=END)
    np.testing.assert_allclose(ours(run, ["The cat"], ["sat"]), pair, atol=1e-5)


@pytest.mark.thorough
@pytest.mark.parametrize("family", ["gpt2", "qwen3"])
def test_a_language_model_is_trained_as_a_classifier_and_exported_for_transformers(family, tmp_path):
    decoder_folders.write_folder(tmp_path / "base", "", family)
    with (tmp_path / "reviews.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerows([["text", "stars"], *([text, ("bad", "good")[len(text) % 2]] for text in SHORT * 6)])
    words = ["--init-from", tmp_path / "base", "--data.path", tmp_path / "reviews.csv", "--data.text", "text"]
    words += ["--data.label", "stars", "--data.max-length", "40", "--data.batch-size", "4", "--total-steps", "4"]
    words += ["--evaluate-every-steps", "4", "--checkpoint-every-steps", "2", "--workdir", tmp_path / "run"]
    with jax.numpy_dtype_promotion("standard"):  # as users have it
        assert main(["train", "decoder_classify", *map(str, words)]) == 0
    run = jaxnlp.load_run(tmp_path / "run")
    before = flatten_dict(jaxnlp.load_pretrained(tmp_path / "base").params)
    moved = [path for path, x in flatten_dict(run.params["decoder"]).items() if (x != before[path]).any()]
    assert len(moved) > 10
    assert main(["export", str(tmp_path / "run"), str(tmp_path / "out")]) == 0
    logits = torch.tensor(logits_of(tmp_path / "out", SHORT)).softmax(-1)
    for loaded in (run, jaxnlp.load_pretrained(tmp_path / "out")):
        found = [[one.probabilities[name] for name in ("bad", "good")] for one in loaded.predict(SHORT)]
        np.testing.assert_allclose(found, logits, atol=0.02 if loaded is run else 1e-5)  # a run may have bfloat16


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"pad_token_id": -1}, r"pad_token_id must be the id of a token or null, got -1; with --ignore score\."),
        ({"problem_type": "regression"}, r"predicts 2 numbers, expected one; .* read as a language model"),
    ],
)
def test_settings_that_do_not_fit_are_refused_and_the_decoder_is_read_without_the_head(settings, words, tmp_path):
    decoder_folders.write_folder(tmp_path, KIND, "gpt2", num_labels=2, **settings)
    with pytest.raises(PretrainedError, match=words):
        jaxnlp.load_pretrained(tmp_path)
    assert jaxnlp.load_pretrained(tmp_path, ignore="score.").generate("The cat", max_new_tokens=1)


def test_what_no_class_has_is_refused(tmp_path):
    decoder_folders.write_folder(tmp_path / "theirs", KIND, "gpt2", num_labels=1)
    run = jaxnlp.load_pretrained(tmp_path / "theirs")
    processor = dataclasses.replace(run.processor, parts=one_part(Number(1.0, 5.0)), pairs="together")
    with pytest.raises(ValueError, match=r"no bias to predict numbers from 1 on; .* --format jax"):
        save_decoder_classifier(tmp_path / "out", dataclasses.replace(run, processor=processor))
