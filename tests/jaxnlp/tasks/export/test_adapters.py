"""A run with LoRA as an adapter of PEFT: both compute the same, and the folder is read back."""

import csv
import dataclasses
import shutil

import jax
import numpy as np
import peft
import pytest
import torch
import transformers
from flax.traverse_util import flatten_dict

import jaxnlp
from jaxnlp.__main__ import main
from jaxnlp.nn.compute import EXACT
from jaxnlp.tasks.language_model.export_command import ExportDecoder
from tests import bart_folders, decoder_folders, encoder_decoder_folders, encoder_folders, image_folders, marian_folders
from tests.encoder_folders import TEXTS
from tests.jaxnlp.tasks.classification.test_export_command import write_classes

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.filterwarnings("ignore:fan_in_fan_out is set to False:UserWarning"),
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"),
]
"""PEFT warns of what it does itself."""
STEPS = ["--total-steps", "4", "--evaluate-every-steps", "4", "--checkpoint-every-steps", "2"]
STEPS += ["--optimizer.schedule.warmup", "0", "--optimizer.learning-rate", "0.01", "--optimizer.lora-rank", "2"]

NEW = ("covidix", "<code>")


def train(*words):
    with jax.numpy_dtype_promotion("standard"):  # as users have it
        assert main(["train", *map(str, words), *STEPS]) == 0


@pytest.fixture(scope="module")
def decoder(tmp_path_factory):
    """Folders of a tiny GPT-2, of a run with LoRA and new tokens on a text, and of its adapter."""
    folder = tmp_path_factory.mktemp("decoder")
    decoder_folders.write_folder(folder / "base")
    (folder / "text.txt").write_text("\n".join(f"{text} {' '.join(NEW)}" for text in TEXTS * 12))
    data = ["--data.path", folder / "text.txt", "--data.sequence-length", "16", "--task.sample-prompt", "None"]
    train(
        "gpt2_finetune", "--init-from", folder / "base", *data, "--init-new-tokens", *NEW, "--workdir", folder / "run"
    )
    assert main(["export", str(folder / "run"), str(folder / "adapter"), "--format", "peft"]) == 0
    return folder


def test_a_decoder_has_the_logits_of_the_run_in_peft_and_here(decoder):
    run = jaxnlp.load_run(decoder / "run")
    again, before = (jaxnlp.load_pretrained(decoder / name) for name in ("adapter", "base"))
    expected = flatten_dict(run.params)
    for path, tensor in flatten_dict(again.params).items():
        np.testing.assert_allclose(tensor, expected[path], atol=1e-6, err_msg="/".join(path))
    tables, rows = flatten_dict(before.params), before.processor.size
    moved = {
        path[-2] for path, x in tables.items() if (x != expected[path][: rows if "tokens" in path else None]).any()
    }
    assert moved == {"qkv", "out", "up", "down"}  # no embedding of the base
    theirs = transformers.AutoModelForCausalLM.from_pretrained(decoder / "base")
    theirs.resize_token_embeddings(rows + len(NEW))
    theirs = peft.PeftModel.from_pretrained(theirs, decoder / "adapter").eval()
    tokens = run.processor.encode(f"{TEXTS[0]} {' '.join(NEW)}")[None]
    assert {rows, rows + 1} < {*tokens[0].tolist()}
    with torch.no_grad():
        logits = theirs(torch.tensor(tokens)).logits.numpy()
    found = jax.jit(again.model.apply)({"params": again.params}, tokens)
    np.testing.assert_allclose(found, logits, atol=2e-5)


def test_the_factors_of_the_run_are_in_the_adapter(decoder):
    config = peft.LoraConfig.from_pretrained(decoder / "adapter")
    assert (config.r, config.task_type, config.fan_in_fan_out) == (2, "CAUSAL_LM", True)
    assert config.modules_to_save is None
    assert config.trainable_token_indices == {"transformer.wte": [341, 342]}
    ranks = {module.rpartition(".")[2]: rank for module, rank in config.rank_pattern.items()}
    assert ranks == {"c_attn": 6}  # queries, keys and values have factors of their own
    assert sum(file.stat().st_size for file in (decoder / "adapter").iterdir()) < 40_000


def test_a_run_without_lora_has_no_adapter(decoder, tmp_path, capsys):
    assert main(["export", str(decoder / "base"), str(tmp_path / "out"), "--format", "peft"]) == 2
    assert "only a run that was trained with LoRA has an adapter: give --optimizer.lora-rank" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("config", [True, False])
def test_a_run_that_began_with_an_adapter_has_none_since_it_would_lack_the_first(decoder, tmp_path, config):
    """PEFT writes no config.json beside an adapter."""
    ignored = () if config else ("config.json",)
    shutil.copytree(decoder / "adapter", tmp_path / "first", ignore=shutil.ignore_patterns(*ignored))
    run = jaxnlp.load_run(decoder / "run")
    run = dataclasses.replace(run, config={**run.config, "init_from": str(tmp_path / "first")})
    with pytest.raises(ValueError, match=r"began with the adapter .*first, .*; give another --format"):
        ExportDecoder(folder=tmp_path / "out", format="peft")(run)
    assert not (tmp_path / "out").exists()


@pytest.mark.thorough
def test_a_classifier_has_the_predictions_of_the_run_in_peft(tmp_path):
    # The base has three classes of other names.
    encoder_folders.write_folder("roberta", tmp_path / "base", "ForSequenceClassification", num_labels=3)
    with (tmp_path / "reviews.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerows(
            [["text", "stars"], *([text, ("bad", "good", "so so")[index % 3]] for index, text in enumerate(TEXTS * 6))]
        )
    data = ["--data.path", tmp_path / "reviews.csv", "--data.text", "text", "--data.label", "stars"]
    data += ["--data.max-length", "40", "--data.batch-size", "4", "--model.pooling", "pooler"]
    train("bert_classify", "--init-from", tmp_path / "base", *data, "--workdir", tmp_path / "run")
    assert main(["export", str(tmp_path / "run"), str(tmp_path / "adapter"), "--format", "peft"]) == 0
    run = jaxnlp.load_run(tmp_path / "run")
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "base", num_labels=3)
    theirs = peft.PeftModel.from_pretrained(theirs, tmp_path / "adapter").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "base")
    again = jaxnlp.load_pretrained(tmp_path / "adapter").predict(TEXTS)
    assert [one.label for one in again] == [one.label for one in run.predict(TEXTS)]
    assert set(again[0].probabilities) == {"bad", "good", "so so"}
    for text, one in zip(TEXTS, run.predict(TEXTS), strict=True):
        with torch.no_grad():
            logits = theirs(**tokenizer(text, return_tensors="pt", truncation=True, max_length=40)).logits
        np.testing.assert_allclose([*one.probabilities.values()], logits.softmax(-1)[0], atol=1e-4)


def test_a_tagger_is_read_back_though_its_base_has_a_pooler(tmp_path):
    encoder_folders.write_folder("bert", tmp_path / "base", "Model")
    words = "Ann B-PER\nmet O\nBob B-PER\nin O\nOslo B-LOC\n\n"
    (tmp_path / "words.txt").write_text(words * 12)
    data = ["--data.source", "files", "--data.train", tmp_path / "words.txt", "--data.batch-size", "4"]
    data += ["--data.max-pieces", "40"]
    parts = ["--model.no-crf", "--model.recurrent-widths", "--model.character-features", "0", "--model.word-width", "0"]
    train("conll_tagger", "--init-from", tmp_path / "base", *data, *parts, "--workdir", tmp_path / "run")
    assert main(["export", str(tmp_path / "run"), str(tmp_path / "adapter"), "--format", "peft"]) == 0
    ours, again = jaxnlp.load_run(tmp_path / "run"), jaxnlp.load_pretrained(tmp_path / "adapter")
    expected, found = (flatten_dict(one.params) for one in (ours, again))
    assert {path[-2] for path in expected.keys() ^ found.keys()} == {"pooler"}
    for path, tensor in found.items():
        np.testing.assert_allclose(tensor, expected[path], atol=1e-6, err_msg="/".join(path))


def test_a_number_of_mean_vectors_is_that_of_the_run_in_peft_by_the_code_that_is_printed(tmp_path, monkeypatch, capsys):
    encoder_folders.write_folder("bert", tmp_path / "base", "Model")
    lines = [f"{text}\t{index}" for index, text in enumerate(TEXTS * 4)]
    (tmp_path / "ratings.tsv").write_text("\n".join(["text\tstars", *lines]))
    data = ["--data.path", tmp_path / "ratings.tsv", "--data.text", "text", "--data.label", "stars"]
    data += ["--data.predict", "number", "--best-metric", "pearson", "--task.label-smoothing", "0"]
    data += ["--data.max-length", "40", "--data.batch-size", "4"]
    train("bert_classify", "--init-from", tmp_path / "base", *data, "--workdir", tmp_path / "run")
    capsys.readouterr()
    assert main(["export", str(tmp_path / "run"), str(tmp_path / "adapter"), "--format", "peft"]) == 0
    code = capsys.readouterr().out.split("from this folder: ")[1]
    monkeypatch.chdir(tmp_path / "adapter")
    monkeypatch.syspath_prepend(tmp_path / "adapter")
    names = {"transformers": transformers, "peft": peft}
    exec(code, names)
    tokenizer = transformers.AutoTokenizer.from_pretrained(".")
    with torch.no_grad():
        found = [float(names["model"].eval()(**tokenizer(text, return_tensors="pt")).logits[0, 0]) for text in TEXTS]
    numbers = [one.label for one in jaxnlp.load_run(tmp_path / "run").predict(TEXTS)]
    np.testing.assert_allclose(np.clip(found, 0, len(TEXTS) * 4 - 1), numbers, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("made", [encoder_decoder_folders, bart_folders, marian_folders])
def test_an_encoder_decoder_has_the_logits_of_the_run_in_peft(made, tmp_path):
    made.write_folder(tmp_path / "base")
    pairs = [f"{one} {other}\t{other} {one}" for one in TEXTS[0].split() for other in TEXTS[1].split()]
    (tmp_path / "pairs.tsv").write_text("\n".join(pairs))
    data = ["--data.train", tmp_path / "pairs.tsv", "--data.lengths", "24"]
    train("t5_finetune", "--init-from", tmp_path / "base", *data, "--workdir", tmp_path / "run")
    assert main(["export", str(tmp_path / "run"), str(tmp_path / "adapter"), "--format", "peft"]) == 0
    run, again = jaxnlp.load_run(tmp_path / "run"), jaxnlp.load_pretrained(tmp_path / "adapter")
    base = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "base")
    source, target = np.array([[7, 9, 11, 3]]), np.array([[5, 8, 13]])
    with torch.no_grad():
        before = base(torch.tensor(source), decoder_input_ids=torch.tensor(target)).logits.numpy()
        theirs = peft.PeftModel.from_pretrained(base, tmp_path / "adapter").eval()
        expected = theirs(torch.tensor(source), decoder_input_ids=torch.tensor(target)).logits.numpy()
    assert np.abs(before - expected).max() > 1e-3
    for trained in (run, again):
        exact = dataclasses.replace(trained.model.config, compute=EXACT).build(trained.processor)
        np.testing.assert_allclose(exact.apply({"params": trained.params}, source, target), expected, atol=2e-5)


@pytest.mark.thorough
def test_a_vision_transformer_has_the_predictions_of_the_run_in_peft(tmp_path):
    image_folders.write_folder(tmp_path / "base", "ViTForImageClassification")
    images = write_classes(tmp_path / "images")
    data = ["--data.path", images, "--data.batch-size", "8"]
    train("vit_finetune", "--init-from", tmp_path / "base", *data, "--workdir", tmp_path / "run")
    assert main(["export", str(tmp_path / "run"), str(tmp_path / "adapter"), "--format", "peft"]) == 0
    run, files = jaxnlp.load_run(tmp_path / "run"), sorted(images.rglob("*.png"))[:3]
    names = dict(enumerate(run.processor.classes))
    theirs = transformers.ViTForImageClassification.from_pretrained(
        tmp_path / "base", id2label=names, num_labels=len(names), ignore_mismatched_sizes=True
    )
    theirs = peft.PeftModel.from_pretrained(theirs, tmp_path / "adapter").eval()
    processor = transformers.AutoImageProcessor.from_pretrained(tmp_path / "base", backend="pil")
    with torch.no_grad():
        expected = theirs(**processor([str(file) for file in files], return_tensors="pt")).logits.softmax(-1)
    for found in (run, jaxnlp.load_pretrained(tmp_path / "adapter")):
        shares = [[one.probabilities[name] for name in names.values()] for one in found.predict(files)]
        np.testing.assert_allclose(shares, expected, atol=1e-4)


@pytest.mark.thorough
def test_a_classifier_with_a_decoder_and_new_tokens_has_the_predictions_of_its_adapter_in_peft(tmp_path):
    decoder_folders.write_folder(tmp_path / "base")
    texts = [f"{text[:30]} covidix" for text in TEXTS]
    with (tmp_path / "reviews.csv").open("w", newline="") as file:
        rows = [[text, ("bad", "good")[index % 2]] for index, text in enumerate(texts * 6)]
        csv.writer(file).writerows([["text", "stars"], *rows])
    data = ["--data.path", tmp_path / "reviews.csv", "--data.text", "text", "--data.label", "stars"]
    data += ["--data.max-length", "40", "--data.batch-size", "4", "--init-new-tokens", "covidix"]
    train("decoder_classify", "--init-from", tmp_path / "base", *data, "--workdir", tmp_path / "run")
    assert main(["export", str(tmp_path / "run"), str(tmp_path / "adapter"), "--format", "peft"]) == 0
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "adapter")
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "base", num_labels=2)
    theirs.resize_token_embeddings(len(tokenizer))
    theirs.config.pad_token_id = tokenizer.pad_token_id
    theirs = peft.PeftModel.from_pretrained(theirs, tmp_path / "adapter").eval()
    with torch.no_grad():
        expected = theirs(**tokenizer(texts, return_tensors="pt", padding=True)).logits.softmax(-1)
    found = jaxnlp.load_pretrained(tmp_path / "adapter").predict(texts)
    np.testing.assert_allclose(
        [[one.probabilities[name] for name in ("bad", "good")] for one in found], expected, atol=1e-5
    )
