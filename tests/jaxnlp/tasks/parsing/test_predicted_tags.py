"""A tagger with random parameters, whose tags a parser reads."""

import dataclasses
import json
import re

import jax
import pytest

from jaxnlp.__main__ import main as jaxnlp_main
from jaxnlp.corpus import DataError
from jaxnlp.models.tagger import TaggerConfig
from jaxnlp.runs import load
from jaxnlp.tasks import Trained
from jaxnlp.tasks.parsing.predicted_tags import require_tags, tag_accuracy, with_predicted_tags
from jaxnlp.tasks.tagging import Tagging
from jaxnlp.text.conllu import parse_conllu, sentence_of, written
from jaxnlp.text.parser_processor import ParserProcessor
from jaxnlp.text.tagger_processor import TaggerProcessor
from jaxnlp.text.word_inputs import WordInputs
from tests.random_parameters import random_parameters
from train.evaluate import main as evaluate_main

pytestmark = pytest.mark.thorough

CONFIG = TaggerConfig(word_width=4, character_width=2, character_features=2, recurrent_widths=())
WORDS = ["The", "dog", "sleeps", "."]


@pytest.fixture(scope="module")
def parser(run):
    return load(run)


@pytest.fixture(scope="module")
def make_tagger(parser):
    def make(labels=parser.processor.tags, **fields):
        processor = TaggerProcessor(WordInputs.of_sentences([WORDS], max_length=32), tuple(labels), "none", **fields)
        model, inputs = CONFIG.build(processor), CONFIG.inputs(processor)
        params = jax.device_put(random_parameters(model, *inputs))
        return Trained(Tagging(), model, params, processor, name="tiny")

    return make


def test_sentences_have_the_tags_of_the_tagger_and_keep_all_else(parser, make_tagger):
    sentence = sentence_of(WORDS, ["X", "X", "X", "PUNCT"], [2, 3, 0, 3], ["det", "nsubj", "root", "punct"])
    (found,) = with_predicted_tags(make_tagger(), [sentence], parser.processor)
    assert set(found.upos) <= set(parser.processor.tags)
    assert dataclasses.replace(found, upos=sentence.upos) == sentence


def test_a_tagger_of_several_kinds_of_tags_gives_its_universal_tags(parser, make_tagger):
    upos, xpos = ("upos", parser.processor.tags), ("xpos", ("A", "B"))
    (found,) = with_predicted_tags(make_tagger((), parts=(xpos, upos)), [sentence_of(WORDS)], parser.processor)
    assert set(found.upos) <= set(parser.processor.tags)
    with pytest.raises(ValueError, match="the tagger tiny predicts xpos, and the parser reads"):
        with_predicted_tags(make_tagger((), parts=(xpos,)), [sentence_of(WORDS)], parser.processor)


def test_the_accuracy_of_tags_is_over_words_with_a_tag():
    sentence = sentence_of(WORDS, ["X", "X", "_", "PUNCT"])
    assert tag_accuracy([sentence], [sentence]) == (1.0, 3)
    other = dataclasses.replace(sentence, upos=("X", "A", "B", "C"))
    assert tag_accuracy([sentence], [other]) == (pytest.approx(1 / 3), 3)
    assert tag_accuracy([sentence_of(WORDS)], [other]) == (0.0, 0)


@pytest.mark.parametrize("column", ["xpos", "both", "none"])
def test_parsers_of_other_tags_are_refused(parser, make_tagger, column):
    processor = dataclasses.replace(parser.processor, tag_column=column)
    with pytest.raises(ValueError, match=f"this parser reads data.tags {column}; give a parser"):
        with_predicted_tags(make_tagger(), [], processor)


@pytest.mark.parametrize("text", ["Anna sleeps", ""])
def test_python_takes_only_a_trained_tagger(parser, text):
    with pytest.raises(ValueError, match="small_grammar_parser is not a tagger"):
        parser.parse(text, tagger=parser)
    with pytest.raises(ValueError, match=r"must be a trained tagger, such as .*, got 'runs/tags'"):
        parser.parse(text, tagger="runs/tags")


def test_other_models_and_other_labels_are_refused(parser, make_tagger):
    with pytest.raises(ValueError, match="small_grammar_parser is not a tagger; give --tagger a run of a tagger"):
        with_predicted_tags(parser, [], parser.processor)
    with pytest.raises(ValueError, match="the tagger tiny predicts B-PER, O, and the parser reads"):
        with_predicted_tags(make_tagger(("B-PER", "O")), [], parser.processor)


@pytest.mark.parametrize(("column", "known"), [("upos", "X"), ("xpos", "Y"), ("both", "X Y")])
def test_sentences_without_the_tags_that_a_parser_reads_are_refused(column, known):
    inputs = WordInputs.of_sentences([WORDS])
    processor = ParserProcessor(inputs, (known,), ("root",), tag_column=column)
    one = sentence_of(["a"], ["X"])  # its XPOS is _
    if column == "upos":
        require_tags([one], processor)
        one = sentence_of(["a"])
    # A tagger serves only parsers of Universal POS tags.
    first = "--tagger RUN" if column == "upos" else "a parser that was trained with --data.tags upos, together with --"
    message = rf"sentence 1: this parser reads tags \({column}\), and the words have none; give {first}"
    with pytest.raises(ValueError, match=message):
        require_tags([one], processor)
    some = dataclasses.replace(one, words=("a", "b"), upos=("_", "X"), xpos=("_", "Y"))
    require_tags([some], processor)  # the first word has the unknown tag
    require_tags([one, some], processor)
    require_tags([one], dataclasses.replace(processor, tags=("_", "X _")))  # a treebank without XPOS
    require_tags([one], dataclasses.replace(processor, tags=(), tag_column="none"))


@pytest.fixture
def tagger_is_found(monkeypatch, make_tagger):
    """Loading the place TAGGER gives the tagger."""
    for module in ("jaxnlp.cli.verbs", "train.evaluation.scoring"):
        loaded = __import__(module, fromlist=["load"]).load
        found = lambda place, loaded=loaded, **options: make_tagger() if place == "TAGGER" else loaded(place, **options)  # noqa: E731
        monkeypatch.setattr(f"{module}.load", found)


@pytest.mark.usefixtures("tagger_is_found")
def test_texts_are_parsed_with_the_tags_of_a_tagger(run, parser, tmp_path, capsys):
    out = tmp_path / "out.conllu"
    assert (
        jaxnlp_main(["parse", str(run), "The dog sleeps.", "It can't.", "--tagger", "TAGGER", "--out", str(out)]) == 0
    )
    assert len(capsys.readouterr().out.split("\n\n")) == 2
    sentences = parse_conllu(out.read_text(encoding="utf-8"), "out")
    assert [one.words for one in sentences] == [("The", "dog", "sleeps", "."), ("It", "ca", "n't", ".")]
    assert [one.lines[1] for one in sentences] == ["# text = The dog sleeps.", "# text = It can't."]
    assert all(set(one.upos) <= set(parser.processor.tags) for one in sentences)


@pytest.mark.usefixtures("tagger_is_found")
def test_a_blank_line_of_a_file_is_a_sentence_without_words(run, tmp_path, capsys):
    path, out, svg = (tmp_path / name for name in ("texts.txt", "out.conllu", "out.svg"))
    path.write_text("Anna sleeps.\n\u200b\nThe dog sleeps.\n")
    options = ["--file", str(path), "--out", str(out), "--svg", str(svg), "--tagger", "TAGGER"]
    assert jaxnlp_main(["parse", str(run), *options, "--json"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [len(one["heads"]) for one in found] == [3, 0, 4]
    assert [one.name for one in parse_conllu(out.read_text(), "out")] == ["1", "3"]
    assert jaxnlp_main(["parse", str(run), *options]) == 0
    assert len(capsys.readouterr().out.split("\n\n")) == 3
    path.write_text("\n")
    assert jaxnlp_main(["parse", str(run), *options]) == 0
    printed, error = capsys.readouterr()
    assert (out.read_text(), printed) == ("", "\n")
    assert f"note: 1 of 1 texts is blank and has no answer; {path}, line 1\n" in error
    path.write_bytes(b"Anna sleeps.\n\n\xff\n")
    assert jaxnlp_main(["parse", str(run), *options]) == 2
    printed, error = capsys.readouterr()
    assert (printed, f"{path}, line 3: byte 0xff is not UTF-8" in error) == ("", True)


@pytest.mark.usefixtures("tagger_is_found")
def test_a_word_that_is_too_long_for_the_tagger_costs_one_tree(run, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(WordInputs, "problem", lambda self, words: "a long word" if "sees" in words else None)
    (tmp_path / "texts.txt").write_text("Anna sleeps.\nAnna sees it.\n")
    command = ["parse", str(run), "--file", str(tmp_path / "texts.txt"), "--tagger", "TAGGER", "--json"]
    assert jaxnlp_main(command) == 0
    printed, error = capsys.readouterr()
    assert [json.loads(line)["heads"] is None for line in printed.splitlines()] == [False, True]
    assert f"{tmp_path / 'texts.txt'}, line 2, sentence 2: a long word" in error


@pytest.mark.usefixtures("tagger_is_found")
def test_scores_with_predicted_tags_stand_beside_those_with_gold_tags(run, tmp_path, capsys):
    path = tmp_path / "gold.conllu"
    path.write_text(
        written([sentence_of(WORDS, ["DET", "NOUN", "VERB", "PUNCT"], [2, 3, 0, 3], ["det", "nsubj", "root", "punct"])])
    )
    predictions, parsed = tmp_path / "predictions.conllu", tmp_path / "parsed.conllu"
    command = [str(run), "--file", str(path), "--tagger", "TAGGER"]
    with jax.numpy_dtype_promotion("standard"):
        assert evaluate_main([*command, "--predictions", str(predictions)]) == 0
    out = capsys.readouterr().out
    assert jaxnlp_main(["parse", str(run), "--conllu", str(path), "--tagger", "TAGGER", "--out", str(parsed)]) == 0
    assert predictions.read_text() == parsed.read_text() != path.read_text()
    with pytest.raises(DataError, match=r"gold\.conllu is a file of the data, which it would replace"):
        evaluate_main([*command, "--predictions", str(path)])
    for name in ("uas", "las", "uas_predicted_tags", "las_predicted_tags", "tag_accuracy"):
        assert f" {name} " in out


@pytest.mark.usefixtures("tagger_is_found")
def test_a_file_of_trees_without_tags_is_scored_with_predicted_tags_only(run, tmp_path, capsys):
    path = tmp_path / "gold.conllu"
    path.write_text(written([sentence_of(WORDS, [], [2, 3, 0, 3], ["det", "nsubj", "root", "punct"])]))
    with jax.numpy_dtype_promotion("standard"):
        assert evaluate_main([str(run), "--file", str(path), "--tagger", "TAGGER"]) == 0
    out = capsys.readouterr().out
    assert len(set(re.findall(r" uas(?:_predicted_tags)? ([\d.]+)", out))) == 1, out
    assert "tag_accuracy 0.0000  (0 words)" in out


def test_in_python_a_sentence_has_its_tree(parser, make_tagger):
    several = parser.parse(["The dog sleeps.", "The dog sleeps."], tagger=make_tagger())
    one = parser.parse("The dog sleeps.", tagger=make_tagger())
    assert several == [one, one] == parser.parse([WORDS, tuple(WORDS)], tagger=make_tagger())
    assert one.words == tuple(WORDS)
    assert set(one.tags) <= set(parser.processor.tags)
    assert one.heads.count(0) == 1
    assert one.relations[one.heads.index(0)] == "root"
    with pytest.raises(ValueError, match="this parser reads tags"):
        parser.parse("The dog sleeps.")
    assert parser.parse(["The dog sleeps.", " "], tagger=make_tagger()) == [one, ((), (), (), ())]
    assert parser.parse([]) == []
