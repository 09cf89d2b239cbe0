"""The task on numbers in words: one small model of each kind is trained for some steps, and the tests score and use it.

Most tests need no good translations. A longer run, of a thorough test, has them.
"""

import dataclasses
import json
import re
import types
import xml.etree.ElementTree

import jax
import numpy as np
import pytest
import sacrebleu
import scipy.special
from num2words import num2words

from configs import number_words
from data.span_corruption import CorruptedText
from jaxnlp.__main__ import main as jaxnlp_main
from jaxnlp.corpus import Split
from jaxnlp.models.attention_lstm import AttentionLSTMConfig
from jaxnlp.models.encoder_decoder import EncoderDecoderConfig
from jaxnlp.models.gpt import GPTConfig
from jaxnlp.ops.losses import cross_entropy
from jaxnlp.runs import load_run
from jaxnlp.tasks.text_to_text import TextToText
from jaxnlp.tasks.translation import Translation, commands
from jaxnlp.tasks.translation.commands import Translate
from jaxnlp.tasks.translation.evaluators import alignment
from jaxnlp.tasks.translation.search import SearchOptions, Translator, padded_sources
from jaxnlp.text.subwords import END, START
from jaxnlp.text.translation import SentencePair
from tests.jaxnlp.tasks.two_devices import train as train_on_two_devices
from tests.processors import translating
from tests.random_parameters import random_parameters
from train.config import update
from train.evaluate import main as evaluate_main
from train.report import write_report

STEPS = 40
SMALL = {
    "model.num_layers": 1,
    "model.width": 64,
    "data.highest": 200,
    "data.held_out_pairs": 10,
    "data.training_pairs": 200,
    "data.batch_tokens": 512,
    "data.batch_size": 64,
    "data.lengths": (48,),
    "data.vocabulary_size": 320,
    "data.evaluation_batch_tokens": 512,
    "optimizer.learning_rate": 5e-3,
    "optimizer.schedule.warmup": 5,
}


OTHER_VOCABULARIES = {"data.shared_vocabulary": False, "data.vocabulary_size": 8_000}
"""One for each language, of different sizes."""


@pytest.fixture(scope="module", autouse=True)
def standard_promotion():
    """The setting of users; other tests are stricter."""
    with jax.numpy_dtype_promotion("standard"):
        yield


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of a short run of the recipe."""
    return train(tmp_path_factory.mktemp("translation") / "run", STEPS)


def train(folder, steps, **changes):
    each = {"total_steps": steps, "evaluate_every_steps": steps, "log_every_steps": 10}
    config = update(number_words.get_config(), **SMALL | each | changes)
    return train_on_two_devices(config, folder)


@pytest.fixture(scope="module")
def lstm_run(tmp_path_factory):
    """The folder of a few steps of a tiny LSTM with attention, with a vocabulary for each language."""
    folder = tmp_path_factory.mktemp("translation") / "lstm"
    small = {name: value for name, value in SMALL.items() if not name.startswith("model.")}
    small |= OTHER_VOCABULARIES | {"task.bleu_tokenizer": "char"}
    recipe = update(number_words.get_config(), total_steps=5, evaluate_every_steps=5, log_every_steps=1, **small)
    config = dataclasses.replace(recipe, model=AttentionLSTMConfig(embedding_width=16, width=16))
    return train_on_two_devices(config, folder)


def rows(run, split):
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [row for row in map(json.loads, lines) if row["split"] == split]


def test_the_loss_falls_and_every_declared_metric_is_measured(run):
    declared = {"loss", "perplexity", "bleu", "chrf", "exact_match"}
    assert declared <= rows(run, "validation")[-1].keys()
    first, *_, last = [row["loss"] for row in rows(run, "train")]
    assert last < 0.7 * first


@pytest.mark.thorough
def test_the_report_is_drawn(run):
    page = write_report(run).read_text()
    assert all(f"<h2>{title} " in page for title in ("Translations", "BLEU by length", "Attention"))


@pytest.mark.thorough
def test_most_numbers_are_translated_right_after_a_longer_run(tmp_path, capsys):
    # Shorter batches have more sentences. Above this learning rate, some seeds and machines end with a high loss.
    steady = {"data.lengths": (24, 48), "optimizer.schedule.warmup": 10, "optimizer.learning_rate": 2.5e-3}
    run = train(tmp_path / "run", 400, **steady)
    assert rows(run, "validation")[-1]["exact_match"] >= 0.2  # numbers that training does not have
    expected = [num2words(number, lang="de") for number in range(100)]
    (tmp_path / "numbers.txt").write_text("\n".join(num2words(number, lang="en") for number in range(100)))
    assert jaxnlp_main(["translate", str(run), "--file", str(tmp_path / "numbers.txt"), "--num-beams", "1"]) == 0
    found = capsys.readouterr().out.splitlines()
    assert sum(one == other for one, other in zip(found, expected, strict=True)) >= 70


@pytest.mark.thorough
def test_an_lstm_translator_is_trained_scored_and_used(lstm_run, tmp_path, capsys):
    losses = [row["loss"] for row in rows(lstm_run, "train")]
    assert losses[-1] < losses[0]
    declared = {"loss", "perplexity", "bleu", "chrf", "exact_match"}
    assert declared <= rows(lstm_run, "validation")[-1].keys()
    trained = load_run(lstm_run)
    assert trained.model.config.width == 16
    source, target = trained.processor.source, trained.processor.target
    assert not trained.processor.shared
    assert source.size != target.size
    sizes = [len(trained.params[name]["embedding"]) for name in ("source_tokens", "target_tokens")]
    assert sizes == [source.size, target.size]

    options = ["--num-beams", "2", "--coverage-penalty", "0.2", "--predictions", str(tmp_path / "out.txt")]
    options += ["--record", str(tmp_path / "ledger.json")]
    assert evaluate_main([str(lstm_run), "translation", *options]) == 0
    assert re.search(r"validation bleu +\d", capsys.readouterr().out)
    lines = (tmp_path / "out.txt").read_text().splitlines()
    entries = {entry["metric"]: entry for entry in json.loads((tmp_path / "ledger.json").read_text())}
    assert "tok:char" in entries["bleu"]["signatures"]["bleu"]
    config = update(number_words.get_config(), **SMALL | OTHER_VOCABULARIES)
    examples = config.data.load(config.seed, trained.processor).split("validation").examples
    read = padded_sources([trained.processor.encode_source(example.source) for example in examples], 48)
    search = SearchOptions(num_beams=2, coverage_penalty=0.2)
    ids, _ = Translator.of(trained.model)(trained.params, *read, search)
    assert lines == [target.decode(row[: row.index(END)] if END in row else row) for row in ids[:, 0].tolist()]

    page = tmp_path / "page.html"
    assert jaxnlp_main(["translate", str(lstm_run), "ninety-one", "twelve", "--alignment", str(page)]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    weights = [
        float(cell) for cell in re.findall(r'title="[^"]*: ([0-9.]+)"', page.read_text().partition("</section>")[0])
    ]
    columns = len(load_run(lstm_run).processor.encode_source("ninety-one"))
    np.testing.assert_allclose(np.reshape(weights, (-1, columns)).sum(axis=1), 1.0, atol=0.05)


@pytest.mark.thorough
def test_the_loss_is_the_cross_entropy_of_the_logits_and_padding_counts_nothing():
    model = EncoderDecoderConfig(num_layers=1, num_heads=2, width=8, context_length=8, dropout_rate=0.0).build(
        translating(11)
    )
    generator = np.random.default_rng(0)
    batch = {name: generator.integers(1, 11, (3, 6)) for name in ("source", "inputs", "targets")}
    batch |= {"source_mask": np.arange(6)[None] < np.array([[6], [2], [1]])}
    batch["loss_mask"] = np.arange(6)[None] < np.array([[4], [6], [0]])
    params = random_parameters(model, batch["source"], batch["inputs"])
    loss_of = jax.jit(Translation(label_smoothing=0.2).objective(model, None).loss)
    logits = jax.jit(model.apply)({"params": params}, batch["source"], batch["inputs"], batch["source_mask"])
    measured = jax.jit(cross_entropy, static_argnames="label_smoothing")
    for key, smoothing in ((None, 0.0), (jax.random.key(1), 0.2)):
        loss, (metrics, _) = loss_of(params, batch, key, ())
        expected = measured(logits, batch["targets"], batch["loss_mask"], label_smoothing=smoothing)
        np.testing.assert_allclose(loss, expected.objective / 10.0, rtol=1e-5)
        np.testing.assert_allclose(metrics["loss"], (expected.nll, 10.0), rtol=1e-5)
        assert ("objective" in metrics) == (key is not None)
    other = batch | {"targets": np.where(batch["loss_mask"], batch["targets"], 3), "inputs": batch["inputs"].copy()}
    other["inputs"][2] = 1
    np.testing.assert_allclose(loss_of(params, other, None, ())[0], loss_of(params, batch, None, ())[0])


@pytest.mark.thorough
def test_the_evaluator_writes_the_translations_in_the_order_of_the_examples(run, tmp_path, capsys):
    assert evaluate_main([str(run), "translation", "--num-beams", "1", "--predictions", str(tmp_path / "out.txt")]) == 0
    assert "validation bleu" in capsys.readouterr().out
    lines = (tmp_path / "out.txt").read_text().splitlines()
    trained = load_run(run)
    examples = number_words_split(run).examples
    assert len(lines) == len(examples) == 10
    Translate(texts=tuple(example.source for example in examples), num_beams=1)(trained)
    assert capsys.readouterr().out.splitlines() == lines


def number_words_split(run) -> Split:
    config = update(number_words.get_config(), **SMALL)
    return config.data.load(config.seed, load_run(run).processor).split("validation")


def test_metrics_are_those_of_sacrebleu_and_the_ledger_has_their_signatures(run, tmp_path):
    ledger = tmp_path / "ledger.json"
    predictions = tmp_path / "out.txt"
    options = ["--num-beams", "1", "--record", str(ledger), "--predictions", str(predictions)]
    assert evaluate_main([str(run), "translation", *options]) == 0
    entries = {entry["metric"]: entry for entry in json.loads(ledger.read_text())}
    assert entries["bleu"]["signatures"]["bleu"].startswith("nrefs:1|case:mixed|eff:no|tok:13a")
    assert entries["bleu"]["num_beams"] == 1
    assert entries["exact_match"]["examples"] == 10
    references = [str(example.reference) for example in number_words_split(run).examples]
    chrf = sacrebleu.corpus_chrf(predictions.read_text().splitlines(), [references]).score
    assert chrf > 0.0
    np.testing.assert_allclose(entries["chrf"]["value"], chrf, rtol=1e-6)


@pytest.mark.thorough
def test_a_file_without_references_is_translated_and_blank_lines_keep_their_places(run, tmp_path, capsys):
    (tmp_path / "numbers.txt").write_text("twelve\n\none hundred and seven\n")
    assert evaluate_main([str(run), "translation", "--file", str(tmp_path / "numbers.txt")]) == 0
    lines = capsys.readouterr().out.splitlines(keepends=True)
    assert lines[1] == "\n"
    first = lines[0] + lines[2]
    assert jaxnlp_main(["translate", str(run), "twelve", "one hundred and seven"]) == 0
    assert capsys.readouterr().out == first
    assert len(first.splitlines()) == 2
    trained = load_run(run)
    assert trained.translate(["twelve", " ", "one hundred and seven"]) == [
        first.splitlines()[0],
        "",
        first.splitlines()[1],
    ]
    assert trained.translate("twelve") == first.splitlines()[0]


@pytest.mark.thorough
def test_sources_without_a_reference_are_translated_but_not_scored(run, tmp_path, capsys):
    (tmp_path / "numbers.tsv").write_text("twelve\t12\nforty-two\t\n\t7\nninety\t90\n")
    written = ["--file", str(tmp_path / "numbers.tsv"), "--predictions", str(tmp_path / "out.txt")]
    assert evaluate_main([str(run), *written]) == 0
    assert " exact_match " in (shown := capsys.readouterr().out)
    assert "(2 " in shown
    texts = ["twelve", "forty-two", "", "ninety"]
    expected = load_run(run).translate(texts, num_beams=1)
    assert (tmp_path / "out.txt").read_text().splitlines() == expected
    assert expected[1]


@pytest.mark.thorough
def test_the_n_best_translations_are_distinct_and_their_scores_fall(run, capsys):
    Translate(texts=("forty-two",), num_beams=3, n_best=3)(load_run(run))
    found = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    scores = [float(score) for score, _ in found]
    assert len({text for _, text in found}) == 3
    assert scores == sorted(scores, reverse=True)


@pytest.mark.thorough
def test_a_score_is_the_log_probability_of_the_whole_translation(run):
    trained = load_run(run)
    source, mask = padded_sources([trained.processor.encode_source("ninety-one")], 96)
    tokens, scores = Translator.of(trained.model)(
        trained.params, source, mask, SearchOptions(num_beams=2, length_penalty=0.0)
    )
    forward = jax.jit(trained.model.apply)
    for ids, score in zip(np.asarray(tokens[0]), np.asarray(scores[0]), strict=True):
        length = ids.tolist().index(END) + 1
        inputs = np.array([[START, *ids[:-1]]])  # no logit depends on later positions
        logits = forward({"params": trained.params}, source, inputs, mask)
        expected = scipy.special.log_softmax(logits[0], axis=-1)[np.arange(length), ids[:length]].sum()
        np.testing.assert_allclose(score, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.thorough
def test_empty_lines_stay_empty_and_in_order(run, tmp_path, capsys):
    (tmp_path / "numbers.txt").write_text("twelve\n\nninety-one\n  \n")
    assert jaxnlp_main(["translate", str(run), "--file", str(tmp_path / "numbers.txt")]) == 0
    first, second, third, fourth = capsys.readouterr().out.splitlines()
    assert (second, fourth) == ("", "")
    assert jaxnlp_main(["translate", str(run), "twelve", "ninety-one"]) == 0
    assert capsys.readouterr().out.splitlines() == [first, third]


@pytest.mark.thorough
def test_the_page_of_attention_shows_each_text_with_its_tokens(run, tmp_path, capsys, monkeypatch):
    page = tmp_path / "new" / "page.html"
    assert jaxnlp_main(["translate", str(run), "ninety-one", "", "<b>", "--alignment", str(page)]) == 0
    text = page.read_text()
    assert text.count("<section>") == 2
    assert '<h2 dir="auto">ninety-one</h2>' in text
    assert "&lt;b&gt;" in text
    assert "<b>" not in text
    assert f"attention in {page}" in capsys.readouterr().err
    monkeypatch.setattr(commands, "MAX_ALIGNED", 1)
    assert jaxnlp_main(["translate", str(run), "ninety-one", "", "two", "--alignment", str(page)]) == 0
    assert page.read_text().count("<section>") == 1
    assert f"attention of the first 1 of 2 texts in {page}" in capsys.readouterr().err
    xml.etree.ElementTree.fromstring(re.sub(r"(<meta [^>]*)>", r"\1/>", text.partition("\n")[2]))


@pytest.mark.thorough
def test_the_page_of_attention_has_the_texts_before_a_failure(run, tmp_path, capsys, monkeypatch):
    def until_failure(*arguments, **options):
        yield ("twelve",)
        raise OSError("the disk is gone")

    monkeypatch.setattr(commands, "CHUNK", 1)
    monkeypatch.setattr(commands, "rows_of", until_failure)
    page = tmp_path / "page.partial.html"
    assert jaxnlp_main(["translate", str(run), "--alignment", str(tmp_path / "page.html")]) == 2
    error = capsys.readouterr().err
    assert "the disk is gone" in error
    assert f"note: {page} has only texts before the failure" in error
    assert page.read_text().count("<section>") == 1


@pytest.mark.thorough
def test_the_report_has_the_translations_the_bleu_by_length_and_the_attention(run, capsys):
    text = write_report(run).read_text()
    trained, examples = load_run(run), number_words_split(run).examples
    Translate(texts=tuple(example.source for example in examples), num_beams=1)(trained)
    translations = capsys.readouterr().out.splitlines()
    assert any(translations)
    for example, translation in zip(examples, translations, strict=True):
        row = f"<tr><td>{example.source}</td><td>{translation}</td><td>{example.reference}</td></tr>"
        assert row in text
    lengths = np.sort([len(trained.processor.encode_source(example.source)) - 1 for example in examples])
    for shortest, longest in lengths.reshape(5, 2):
        assert f'<td>{shortest} to {longest}</td><td class="number">2</td>' in text

    sections = [json.loads(line) for line in (run / "sections.jsonl").read_text().splitlines()]
    maps = [section["content"] for section in sections if section["name"] == "Attention" and section["step"] == STEPS]
    translator = Translator.of(trained.model)
    for example, found in zip((examples[0], examples[-1]), maps, strict=True):
        read = trained.processor.encode_source(example.source)
        ids, _ = translator(trained.params, *padded_sources([read], 96), SearchOptions(num_beams=1))
        expected = alignment(translator, trained.params, trained.processor, read, ids[0, 0].tolist(), title="")
        assert (found["title"], found["columns"]) == (example.source, trained.processor.source.tokens(read))
        assert f"<caption>{example.source}</caption>" in text
        np.testing.assert_allclose(found["weights"], expected.weights, atol=1e-3)


@pytest.mark.thorough
def test_a_translator_starts_with_the_parameters_of_a_model_of_span_corruption(run, tmp_path):
    recipe = update(number_words.get_config(), total_steps=4, evaluate_every_steps=2, **SMALL)
    lines = [num2words(number, lang=language) for number in range(200) for language in ("en", "de")]
    (tmp_path / "numbers.txt").write_text("\n".join(lines))
    data = CorruptedText(
        files=(str(tmp_path / "numbers.txt"),), vocabulary_size=400, lengths=(16, 32), batch_tokens=512, sentinels=9
    )
    before = dataclasses.replace(recipe, data=data, task=TextToText(), best_metric="loss", seed=1)
    train_on_two_devices(before, tmp_path / "before")
    assert {"loss", "perplexity"} <= rows(tmp_path / "before", "validation")[-1].keys()
    unread = {"data.vocabulary_size": number_words.get_config().data.vocabulary_size}  # `before` has a tokenizer
    start = {"init_from": str(tmp_path / "before"), "total_steps": 1, "optimizer.learning_rate": 1e-9}
    after = update(recipe, **start, **unread)
    train_on_two_devices(after, tmp_path / "after")
    first, second = (load_run(tmp_path / name) for name in ("before", "after"))
    assert second.processor == first.processor
    # The seeds differ, so that initial parameters would too; the learning rate is too small to change them.
    jax.tree.map(lambda old, new: np.testing.assert_allclose(new, old, atol=1e-6), first.params, second.params)
    assert json.loads((tmp_path / "after" / "environment.json").read_text())["pretrained_sha256"]


@pytest.mark.parametrize(("references", "warned"), [(("猫在睡觉。", "好"), True), (("Katze", "cat"), False)])
def test_a_tokenizer_that_takes_chinese_sentences_for_words_is_reported(references, warned, caplog):
    examples = [SentencePair("a cat", reference) for reference in references]
    corpus = types.SimpleNamespace(splits={"validation": types.SimpleNamespace(examples=examples)})
    Translation().check_corpus(EncoderDecoderConfig(embeddings="tied"), corpus)
    assert ("--task.bleu-tokenizer zh" in caplog.text) == warned
    caplog.clear()
    Translation(bleu_tokenizer="zh").check_corpus(EncoderDecoderConfig(embeddings="tied"), corpus)
    assert caplog.text == ""


def test_what_does_not_fit_is_refused():
    facts = types.SimpleNamespace(max_length=8, parts=(), joint=False, stateful=False)
    Translation().check(EncoderDecoderConfig(), facts)
    with pytest.raises(
        ValueError, match="needs a model that reads a source, such as EncoderDecoderConfig, got GPTConfig"
    ):
        Translation().check(GPTConfig(), facts)
    with pytest.raises(ValueError, match=r"task.label_smoothing must be in \[0, 1\), got 1.0"):
        Translation(label_smoothing=1.0)
    with pytest.raises(ValueError, match=r"n.best must be from 1 to --num-beams, which is 2, got 3"):
        Translate(num_beams=2, n_best=3)
