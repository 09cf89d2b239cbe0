"""Taggers of several kinds of tags, from training to predictions."""

import dataclasses
import json

import jax
import numpy as np
import pytest
import transformers

import jaxnlp
from configs.small_grammar_tagger import get_config
from data.small_grammar import grammar_sentences
from data.tagged_sentences import TaggedSentences
from jaxnlp.__main__ import main
from jaxnlp.corpus import Split
from jaxnlp.models.bert import BertConfig
from jaxnlp.models.tagger import TaggerConfig, only_part
from jaxnlp.tasks import Trained
from jaxnlp.tasks.bert_verbs.word_export import ExportWords
from jaxnlp.tasks.tagging import Tagging
from jaxnlp.tasks.tagging.commands import Predict
from jaxnlp.tasks.tagging.inference import label_sentences
from jaxnlp.text.conllu import parse_conllu, sentence_of, written
from jaxnlp.text.tagger_processor import TaggedSentence, TaggerProcessor
from jaxnlp.text.word_inputs import WordInputs
from tests.jaxnlp.models.test_word_encoder import PIECES
from tests.jaxnlp.tasks.two_devices import train
from tests.random_parameters import random_parameters
from train.config import update
from train.evaluate import main as evaluate

WORDS = ("Ann", "sees", "Rome", ".")
INPUTS = WordInputs.of_sentences([WORDS], pieces=PIECES, max_pieces=12, max_characters=6)
NAMED = (("upos", ("NOUN", "VERB", "PUNCT")), ("feats", ("_", "Number=Sing")))
PROCESSOR = TaggerProcessor(INPUTS, (), "none", parts=NAMED)
CRF = TaggerConfig(word_width=8, character_width=2, character_features=2, recurrent_widths=())
BERT = TaggerConfig(
    bert=True,
    encoder=BertConfig(num_layers=1, num_heads=2, width=8, max_positions=12),
    word_width=0,
    character_features=0,
    recurrent_widths=(),
    crf=False,
)


def tagger(config):
    model = config.build(PROCESSOR)
    return Trained(Tagging(), model, random_parameters(model, *config.inputs(PROCESSOR)), PROCESSOR, name="mine")


@pytest.fixture(scope="module")
def trained():
    return tagger(CRF)


@pytest.mark.parametrize("crf", [False, pytest.param(True, marks=pytest.mark.thorough)])
def test_the_loss_is_the_sum_over_parts_without_sentences_that_have_a_new_tag(crf):
    trained = tagger(dataclasses.replace(CRF, crf=crf))
    labels = (("NOUN", "_"), ("VERB", "_"), ("NOUN", "Number=Sing"), ("PUNCT", "_"))
    new = TaggedSentence("2", WORDS[:2], (("NOUN", "_"), ("VERB", "Mood=Ind")))
    first, both = [TaggedSentence("1", WORDS, labels)], [TaggedSentence("1", WORDS, labels), new]
    batches = [PROCESSOR.batch(list(map(PROCESSOR.encode, one)), 2, 8) for one in (first, both)]
    objective = trained.task.objective(trained.model, None)
    for batch in batches:
        loss, (metrics, _) = jax.jit(lambda p, b: objective.loss(p, b, None, ()))(trained.params, batch)
        assert metrics.keys() == {"loss", "upos/loss", "feats/loss"}
        total = 0.0
        for part in ("upos", "feats"):
            one = only_part(trained, part)
            own = batches[0] | {"labels": batches[0][f"{part}/labels"]}
            alone = one.task.objective(one.model, None).loss
            _, (expected, _) = jax.jit(lambda p, b, alone=alone: alone(p, b, None, ()))(one.params, own)
            np.testing.assert_allclose(metrics[f"{part}/loss"], expected["loss"], rtol=1e-5)
            total += expected["loss"][0]
        np.testing.assert_allclose(metrics["loss"], (total, 4.0), rtol=1e-5)
        np.testing.assert_allclose(loss, total / 4.0, rtol=1e-5)


def test_metrics_are_declared_for_each_part_and_for_all():
    kinds = Tagging().metrics(PROCESSOR, Split(examples=(0,)))
    assert kinds.keys() >= {"loss", "accuracy", "upos/loss", "upos/accuracy", "feats/accuracy", "upos/NOUN/f1"}
    assert kinds["upos/NOUN/f1"].title == "upos NOUN F1"
    assert Tagging().metrics(PROCESSOR, Split()).keys() == {"loss", "upos/loss", "feats/loss"}


@pytest.mark.thorough
def test_each_word_has_the_tags_of_all_parts(trained, capsys):
    found = label_sentences(trained, [WORDS, WORDS[:1]])
    for index, part in enumerate(("upos", "feats")):
        alone = label_sentences(only_part(trained, part), [WORDS, WORDS[:1]])
        for one, other in zip(found, alone, strict=True):
            assert [tags[index] for tags in one.labels] == other.labels
            assert (np.array(one.confidence) <= np.array(other.confidence) + 1e-6).all()
    first, *_ = trained.tag("Ann sees Rome.")
    tags = found[0].labels[0]
    assert (first.start, first.stop, first.text) == (0, 3, "Ann")
    assert first.type == dict(zip(("upos", "feats"), tags, strict=True))
    Predict(("Ann sees Rome.",))(trained)
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == f"  {tags[0]}\t{tags[1]}\t0-3\t{first.confidence:.2f}\tAnn"
    Predict(("Ann sees Rome.",), json=True)(trained)
    assert json.loads(capsys.readouterr().out)["words"][0]["type"] == first.type
    Predict(("Ann sees Rome.",), part="feats")(trained)
    assert capsys.readouterr().out.splitlines()[1].startswith(f"  {tags[1]}\t0-3\t")


@pytest.mark.thorough
def test_a_conllu_file_gets_the_tags_in_its_columns(trained, tmp_path, capsys):
    path, out = tmp_path / "x.conllu", tmp_path / "y.conllu"
    words = "1-2\tAnn sees" + "\t_" * 8 + "\n"
    sentence = written([sentence_of(WORDS, ["X"] * 4, [2, 0, 2, 2], ["nsubj", "root", "obj", "punct"])])
    text = sentence.replace("1\tAnn", f"{words}1\tAnn") + "# only a comment\n\n"
    path.write_text(text)
    Predict(conllu=path)(trained)
    printed = capsys.readouterr().out
    first, blank = parse_conllu(printed, "printed")
    (labelled,) = label_sentences(trained, [WORDS])
    assert list(zip(first.upos, first.feats, strict=True)) == labelled.labels
    assert blank.lines == ("# only a comment",)
    assert written([first.with_tags({"upos": ["X"] * 4, "feats": ["_"] * 4}), blank]) == text
    Predict(conllu=path, out=out, part="upos")(trained)
    assert capsys.readouterr().out == f"{out}\n"
    assert out.read_text() == written([first.with_tags({"feats": ["_"] * 4}), blank])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"conll": "x"}, "--conll and --html show one kind of tags: choose one with --part: upos, feats"),
        ({"inputs": ("a",), "html": "x.html"}, "--conll and --html show one kind of tags: choose one with --part"),
        ({"inputs": ("a",), "part": "xpos"}, "mine does not have the part 'xpos'; it has: upos, feats"),
        ({"conllu": "x", "inputs": ("a",)}, "--conll excludes texts, --file, --json and --html; so does --conllu"),
        ({"conllu": "x", "conll": "y", "part": "upos"}, "give --conll or --conllu, not both"),
        ({"conllu": "x", "word_column": 1}, "--out and --word-column apply only to --conll, and --out to --conllu"),
    ],
)
def test_options_that_do_not_fit_are_refused(trained, fields, message):
    with pytest.raises(ValueError, match=message):
        Predict(**fields)(trained)


def test_a_tagger_of_one_kind_of_label_has_no_parts_and_no_columns(trained):
    one = only_part(trained, "upos")
    with pytest.raises(ValueError, match="--conllu needs a model of several kinds of tags, or of feats; give --conll"):
        Predict(conllu="x")(one)
    with pytest.raises(ValueError, match="mine does not have the part 'upos'; it has: no parts"):
        Predict(("a",), part="upos")(one)


@pytest.mark.thorough
def test_transformers_reads_one_part_and_the_library_all(tmp_path):
    trained = tagger(BERT)
    ExportWords(tmp_path / "all")(trained)
    again = jaxnlp.load_pretrained(tmp_path / "all")
    assert again.processor == PROCESSOR
    expected, found = (label_sentences(one, [WORDS])[0] for one in (trained, again))
    assert found.labels == expected.labels
    np.testing.assert_allclose(found.confidence, expected.confidence, atol=1e-5)
    with pytest.raises(RuntimeError):  # it would add random scores
        transformers.AutoModelForTokenClassification.from_pretrained(tmp_path / "all")
    ExportWords(tmp_path / "upos", part="upos")(trained)
    model = transformers.AutoModelForTokenClassification.from_pretrained(tmp_path / "upos")
    assert tuple(model.config.id2label.values()) == NAMED[0][1]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """CoNLL-U files of the small grammar; a word with a capital has a feature."""
    folder = tmp_path_factory.mktemp("trees")
    held_out = grammar_sentences(40, seed=0)
    for name, sentences in (("train", grammar_sentences(400, seed=1, without=held_out)), ("dev", held_out)):
        trees = []
        for number, one in enumerate(sentences, 1):
            feats = ["Case=Up" if word.istitle() else "_" for word in one.words]
            trees.append(sentence_of(one.words, one.tags, name=f"s{number}").with_tags({"feats": feats}))
        (folder / f"{name}.conllu").write_text(written(trees))
    return folder


@pytest.fixture(scope="module")
def run(files, tmp_path_factory):
    """The folder of a run of two kinds of tags."""
    lengths = {"length_multiple": 24, "max_length": 24, "max_characters": 8}
    places = {"train": files / "train.conllu", "validation": files / "dev.conllu"}
    data = TaggedSentences(source="files", tags=("upos", "feats"), batch_size=16, **lengths, **places)
    small = {"word_width": 24, "character_features": 8, "recurrent_widths": (24,), "input_dropout_rate": 0.1}
    fields = {f"model.{name}": value for name, value in small.items()} | {"model.output_dropout_rate": 0.0}
    fields |= {"optimizer.learning_rate": 3e-2, "optimizer.schedule.warmup": 5, "best_metric": "accuracy"}
    fields |= dict.fromkeys(("total_steps", "evaluate_every_steps", "checkpoint_every_steps"), 100)
    return train(update(get_config(), data=data, **fields), tmp_path_factory.mktemp("tags") / "run")


@pytest.mark.thorough
def test_a_run_learns_all_parts_and_its_report_has_their_sections(run):
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    last = [row for row in rows if row["split"] == "validation"][-1]
    assert last["upos/accuracy"] > 0.8
    assert last["feats/accuracy"] > 0.9
    lowest = last["upos/accuracy"] + last["feats/accuracy"] - 1.0
    assert lowest - 1e-6 <= last["accuracy"] <= min(last["upos/accuracy"], last["feats/accuracy"])
    np.testing.assert_allclose(last["loss"], last["upos/loss"] + last["feats/loss"], rtol=1e-5)
    sections = {json.loads(line)["name"] for line in (run / "sections.jsonl").read_text().splitlines()}
    assert sections >= {f"{part}: {name}" for part in ("upos", "feats") for name in ("Learnt transitions",)}
    assert {"upos: Scores of each type", "feats: Sentences with most errors"} <= sections


@pytest.mark.thorough
def test_files_are_scored_and_predicted_as_conllu(run, files, tmp_path, capsys, caplog):
    path, out = tmp_path / "x.conllu", tmp_path / "out.conllu"
    text = (files / "dev.conllu").read_text()
    path.write_text(text.replace("Case=Up", "Case=New", 1))
    caplog.set_level("INFO", logger="train")
    assert evaluate([str(run), "--file", str(path), "--predictions", str(out)]) == 0
    assert "1 word has a tag that no training sentence has" in caplog.text
    assert "feats/accuracy" in capsys.readouterr().out
    assert main(["predict", str(run), "--conllu", str(path)]) == 0
    assert capsys.readouterr().out == out.read_text()
    columns = [[line.split("\t") for line in one.splitlines() if "\t" in line] for one in (text, out.read_text())]
    for before, after in zip(*columns, strict=True):
        assert [*before[:3], before[4], *before[6:]] == [*after[:3], after[4], *after[6:]]
    path.write_text("1\tAnna" + "\t_" * 8 + "\n2\tsleeps" + "\t_" * 8 + "\n")
    assert evaluate([str(run), "--file", str(path), "--predictions", str(out)]) == 0
    (found,) = parse_conllu(out.read_text(), "out", trees=False)
    assert (found.upos[0], found.feats[0]) == ("PROPN", "Case=Up")
    without = path.read_text()
    path.write_text(f"# first\n{without}\n{text}")
    caplog.clear()
    assert evaluate([str(run), "--file", str(path), "--predictions", str(out)]) == 0
    assert "1 sentence is without a label of each word and not scored" in caplog.text
    capsys.readouterr()
    assert main(["predict", str(run), "--conllu", str(path)]) == 0
    assert capsys.readouterr().out == out.read_text()


@pytest.mark.thorough
def test_a_run_of_other_tags_begins_from_a_run_with_the_heads_that_both_have(run, files):
    found = jaxnlp.load_run(run)
    data = TaggedSentences(
        source="files", tags=("upos",), max_length=24, max_characters=8, train=files / "train.conllu", batch_size=16
    )
    processor = data.load(0, found.processor).processor
    assert (processor.parts, processor.inputs.words) == ((), found.processor.inputs.words)
    adopted = found.model.config.adopt(found)
    assert adopted.matching_heads(processor) == {}
    assert set(adopted.matching_heads(found.processor)) == {*found.params} - {"encoder"}
