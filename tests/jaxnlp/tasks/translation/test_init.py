"""The task on numbers in words: a small model is trained once, killed by nobody, and scored and used by all tests."""

import dataclasses
import json
import re
import types
import xml.etree.ElementTree

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from num2words import num2words
from rich.console import Console

from configs import number_words
from data.span_corruption import CorruptedText
from jaxnlp.__main__ import main as jaxnlp_main
from jaxnlp.corpus import Split
from jaxnlp.models.encoder_decoder import EncoderDecoderConfig
from jaxnlp.models.gpt import GPTConfig
from jaxnlp.ops.losses import cross_entropy
from jaxnlp.runs import load_run
from jaxnlp.tasks.text_to_text import TextToText
from jaxnlp.tasks.translation import Translation
from jaxnlp.tasks.translation.commands import Translate
from jaxnlp.tasks.translation.search import SearchOptions, Translator, padded
from jaxnlp.text.subwords import END, START
from train.config import update
from train.evaluate import main as evaluate_main
from train.loop import fit

SMALL = {
    "model.num_layers": 1,
    "model.width": 64,
    "data.highest": 200,
    "data.held_out_pairs": 10,
    "data.epoch_pairs": 200,
    "data.batch_tokens": 512,
    "data.batch_size": 64,
    "data.lengths": (16, 32),
    "data.evaluation_batch_tokens": 512,
    "optimizer.learning_rate": 5e-3,
    "optimizer.warmup_steps": 10,
}


@pytest.fixture(scope="module", autouse=True)
def standard_promotion():
    """As users have it."""
    with jax.numpy_dtype_promotion("standard"):
        yield


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of a short run of the recipe."""
    folder = tmp_path_factory.mktemp("translation") / "run"
    config = update(number_words.get_config(), total_steps=60, evaluate_every_steps=30, log_every_steps=5, **SMALL)
    fit(config, folder, console=Console(quiet=True))
    return folder


def rows(run, split):
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [row for row in map(json.loads, lines) if row["split"] == split]


def test_the_loss_falls_and_every_declared_metric_is_measured(run):
    losses = [row["loss"] for row in rows(run, "train")]
    assert losses[-1] < 0.5 * losses[0]
    declared = {"loss", "perplexity", "bleu", "chrf", "exact_match"}
    assert all(declared <= row.keys() for row in rows(run, "validation"))
    assert "Translations" in (run / "report.html").read_text()


def test_the_loss_is_the_cross_entropy_of_the_logits_and_padding_counts_nothing():
    model = EncoderDecoderConfig(num_layers=1, num_heads=2, width=8, context_length=8, dropout_rate=0.0).build(11)
    generator = np.random.default_rng(0)
    batch = {name: generator.integers(1, 11, (3, 6)) for name in ("source", "inputs", "targets")}
    batch |= {"source_mask": np.arange(6)[None] < np.array([[6], [2], [1]])}
    batch["loss_mask"] = np.arange(6)[None] < np.array([[4], [6], [0]])
    params = model.init(jax.random.key(0), batch["source"], batch["inputs"])["params"]
    objective = Translation(label_smoothing=0.2).objective(model, None)
    logits = model.apply({"params": params}, batch["source"], batch["inputs"], batch["source_mask"])
    for key, smoothing in ((None, 0.0), (jax.random.key(1), 0.2)):
        loss, (metrics, _) = objective.loss(params, batch, key, ())
        expected = cross_entropy(logits, batch["targets"], batch["loss_mask"], label_smoothing=smoothing)
        np.testing.assert_allclose(loss, expected.objective / 10.0, rtol=1e-5)
        np.testing.assert_allclose(metrics["loss"], (expected.nll, 10.0), rtol=1e-5)
        assert ("objective" in metrics) == (key is not None)
    other = batch | {"targets": np.where(batch["loss_mask"], batch["targets"], 3), "inputs": batch["inputs"].copy()}
    other["inputs"][2] = 1
    np.testing.assert_allclose(objective.loss(params, other, None, ())[0], objective.loss(params, batch, None, ())[0])


def test_the_evaluator_writes_the_translations_in_the_order_of_the_examples(run, tmp_path, capsys):
    assert evaluate_main([str(run), "translation", "--num-beams", "2", "--predictions", str(tmp_path / "out.txt")]) == 0
    assert "validation bleu" in capsys.readouterr().out
    lines = (tmp_path / "out.txt").read_text().splitlines()
    trained = load_run(run)
    examples = number_words_split(run).examples
    assert len(lines) == len(examples) == 10
    Translate(texts=tuple(example.source for example in examples), num_beams=2)(trained)
    assert capsys.readouterr().out.splitlines() == lines


def number_words_split(run) -> Split:
    config = update(number_words.get_config(), **SMALL)
    return config.data.load(config.seed, load_run(run).processor).split("validation")


def test_metrics_are_those_of_sacrebleu_and_the_ledger_has_their_signatures(run, tmp_path):
    ledger = tmp_path / "ledger.json"
    assert evaluate_main([str(run), "translation", "--num-beams", "1", "--record", str(ledger)]) == 0
    entries = {entry["metric"]: entry for entry in json.loads(ledger.read_text())}
    assert entries["bleu"]["signatures"]["bleu"].startswith("nrefs:1|case:mixed|eff:no|tok:13a")
    assert entries["bleu"]["num_beams"] == 1
    assert entries["exact_match"]["examples"] == 10


def test_a_file_without_references_is_translated(run, tmp_path, capsys):
    (tmp_path / "numbers.txt").write_text("twelve\none hundred and seven\n")
    assert evaluate_main([str(run), "translation", "--file", str(tmp_path / "numbers.txt")]) == 0
    first = capsys.readouterr().out
    assert jaxnlp_main(["translate", str(run), "twelve", "one hundred and seven"]) == 0
    assert capsys.readouterr().out == first
    assert len(first.splitlines()) == 2


def test_the_n_best_translations_are_distinct_and_their_scores_fall(run, capsys):
    Translate(texts=("forty-two",), num_beams=3, n_best=3)(load_run(run))
    found = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    scores = [float(score) for score, _ in found]
    assert len({text for _, text in found}) == 3
    assert scores == sorted(scores, reverse=True)


def test_a_score_is_the_log_probability_of_the_whole_translation(run):
    trained = load_run(run)
    source, mask = padded([trained.processor.encode_source("ninety-one")], 96)
    tokens, scores = Translator.of(trained.model)(
        trained.params, source, mask, SearchOptions(num_beams=2, length_penalty=0.0)
    )
    for ids, score in zip(np.asarray(tokens[0]), np.asarray(scores[0]), strict=True):
        length = ids.tolist().index(END) + 1
        inputs = np.array([[START, *ids[: length - 1]]])
        logits = trained.model.apply({"params": trained.params}, source, inputs, mask)
        expected = jax.nn.log_softmax(logits)[0, jnp.arange(length), ids[:length]].sum()
        np.testing.assert_allclose(score, expected, rtol=1e-3)


def test_empty_lines_stay_empty_and_in_order(run, tmp_path, capsys):
    (tmp_path / "numbers.txt").write_text("twelve\n\nninety-one\n  \n")
    assert jaxnlp_main(["translate", str(run), "--file", str(tmp_path / "numbers.txt")]) == 0
    first, second, third, fourth = capsys.readouterr().out.splitlines()
    assert (second, fourth) == ("", "")
    assert jaxnlp_main(["translate", str(run), "twelve", "ninety-one"]) == 0
    assert capsys.readouterr().out.splitlines() == [first, third]


def test_the_page_of_attention_shows_each_text_with_its_tokens(run, tmp_path, capsys):
    page = tmp_path / "new" / "page.html"
    assert jaxnlp_main(["translate", str(run), "ninety-one", "", "<b>", "--alignment", str(page)]) == 0
    text = page.read_text()
    assert text.count("<section>") == 2
    assert '<h2 dir="auto">ninety-one</h2>' in text
    assert "&lt;b&gt;" in text
    assert "<b>" not in text
    assert f"attention in {page}" in capsys.readouterr().err
    xml.etree.ElementTree.fromstring(re.sub(r"(<meta [^>]*)>", r"\1/>", text.partition("\n")[2]))


def test_the_report_has_the_bleu_of_short_and_long_sentences_and_the_attention(run):
    text = (run / "report.html").read_text()
    assert "BLEU by length" in text
    assert "Attention" in text


def test_a_translator_may_begin_with_a_model_of_span_corruption(run, tmp_path):
    recipe = update(number_words.get_config(), total_steps=4, evaluate_every_steps=2, **SMALL)
    lines = [num2words(number, lang=language) for number in range(200) for language in ("en", "de")]
    (tmp_path / "numbers.txt").write_text("\n".join(lines))
    data = CorruptedText(
        files=(str(tmp_path / "numbers.txt"),), vocabulary_size=400, lengths=(16, 32), batch_tokens=512, sentinels=9
    )
    before = dataclasses.replace(recipe, data=data, task=TextToText(), best_metric="loss")
    fit(before, tmp_path / "before", console=Console(quiet=True))
    assert {"loss", "perplexity"} <= rows(tmp_path / "before", "validation")[-1].keys()
    after = dataclasses.replace(recipe, init_from=str(tmp_path / "before"), total_steps=2)
    fit(after, tmp_path / "after", console=Console(quiet=True))
    assert load_run(tmp_path / "after").processor == load_run(tmp_path / "before").processor
    assert json.loads((tmp_path / "after" / "environment.json").read_text())["pretrained_sha256"]


def test_what_does_not_fit_is_refused():
    facts = types.SimpleNamespace(max_length=8, parts=(), together=False, carries=False)
    Translation().check(EncoderDecoderConfig(), facts)
    with pytest.raises(ValueError, match="this task needs a model that reads a source, got GPTConfig"):
        Translation().check(GPTConfig(), facts)
    with pytest.raises(ValueError, match=r"task.label_smoothing must lie in \[0, 1\), got 1.0"):
        Translation(label_smoothing=1.0)
    with pytest.raises(ValueError, match="n_best must lie in 1 to num_beams, 2, got 3"):
        Translate(num_beams=2, n_best=3)
