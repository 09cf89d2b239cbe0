import dataclasses
import gzip
import os
from pathlib import Path

import numpy as np
import pytest

from data import DataError
from data.treebank import Treebank
from jaxnlp.text.conllu import sentence_of, written
from jaxnlp.text.word_inputs import UNKNOWN_ID
from jaxnlp.text.wordpiece import SPECIAL, WordPieceVocabulary

DRAWN = Treebank(sentences=60, held_out_sentences=20)


def sentence(words, heads, relations=None, name="1"):
    relations = relations or ["root" if head == 0 else "dep" for head in heads]
    return sentence_of(words.split(), ["X"] * len(heads), heads, relations, name=name)


@pytest.fixture
def files(tmp_path):
    """Writes sentences, and returns a config that reads them."""

    def make(train, validation=None, **fields):
        for name, sentences in (("train", train), ("validation", validation or train)):
            text = sentences if isinstance(sentences, str) else written(sentences)
            (tmp_path / f"{name}.conllu").write_text(text)
        paths = {name: str(tmp_path / f"{name}.conllu") for name in ("train", "validation")}
        return Treebank(source="files", minimum_count=1, **paths, **fields)

    return make


PLAIN = [sentence("a b c", [2, 0, 2]), sentence("d e", [0, 1], name="2")]
CROSSED = sentence("a b c d", [3, 4, 0, 3], name="3")


def test_the_small_grammar_needs_no_files_and_its_splits_have_no_sentence_in_common():
    corpus, other = DRAWN.load(0), DRAWN.load(1)
    assert "60 trees for training, 20 for validation (0 not projective" in corpus.description
    held = [one.words for one in corpus.splits["validation"].examples]
    assert held == [one.words for one in other.splits["validation"].examples]
    assert corpus.fingerprint != other.fingerprint
    assert corpus.fingerprint == DRAWN.load(0).fingerprint
    assert DRAWN.max_length == corpus.processor.max_length == 256


def test_trees_that_are_not_projective_are_left_out_of_training_and_counted_and_stay_elsewhere(files):
    corpus = files([*PLAIN, CROSSED], [*PLAIN, CROSSED]).load(0)
    assert "2 trees for training (1 that are not projective were left out)" in corpus.description
    assert "3 for validation (1 not projective" in corpus.description
    assert len(corpus.splits["validation"].examples) == 3
    assert corpus.splits["validation"].notes == ("1 of 3 trees are not projective",)


def test_a_graph_parser_is_trained_on_trees_that_are_not_projective_too(files):
    corpus = files([*PLAIN, CROSSED], system="graph").load(0)
    assert corpus.description.startswith("3 trees for training, 3 for validation (1 not projective")
    assert "transitions" not in corpus.description
    heads = [row.tolist() for row in next(iter(corpus.train))["heads"]]
    assert [3, 4, 0, 3] in [row[:4] for row in heads]


def test_long_sentences_are_left_out_of_training_and_refused_elsewhere(files):
    long = sentence("w " * 9, [0, *range(1, 9)], name="long")
    corpus = files([*PLAIN, long], PLAIN, max_length=8).load(0)
    assert "1 of more than 8 words were left out" in corpus.description
    with pytest.raises(DataError, match=r"validation.conllu, line 7, sentence long: a sentence of 9 words exceeds"):
        files(PLAIN, [PLAIN[0], long], max_length=8).load(0)


def test_no_training_sentence_is_an_error(files):
    with pytest.raises(DataError, match="no training sentence is left"):
        files([CROSSED], PLAIN).load(0)


def test_wrong_files_are_named_with_line_and_sentence(files):
    with pytest.raises(DataError, match=r"train.conllu, line 1, sentence 1: expected CoNLL-U, 10 columns .*, got 1"):
        files("1 a\n").load(0)
    two_roots = written([PLAIN[0], sentence("a b", [0, 0], name="s")])
    with pytest.raises(DataError, match=r"validation.conllu, line 10, sentence s: expected one root, got 2"):
        files(PLAIN, two_roots).load(0)
    with pytest.raises(DataError, match=r"train.conllu, line 1, sentence n: no tree; expected HEAD and DEPREL"):
        files([sentence_of(["a"], name="n")]).load(0)
    with pytest.raises(FileNotFoundError):
        dataclasses.replace(files(PLAIN), train="nowhere.conllu").load(0)


def test_a_training_file_is_required():
    with pytest.raises(DataError, match=r"data.source files needs your training file: give it with --data.train FILE"):
        Treebank(source="files").load(0)


def test_a_tenth_is_held_out_without_a_validation_file_and_does_not_depend_on_the_seed(files):
    trees = [sentence(f"a{number} b c", [2, 0, 2], name=f"s{number}") for number in range(20)]
    config = dataclasses.replace(files(trees), validation=None)
    first, second = (config.load(seed) for seed in (0, 1))
    held_out = [one.name for one in first.splits["validation"].examples]
    assert len(held_out) == 2
    assert held_out == [one.name for one in second.splits["validation"].examples]
    assert "18 trees for training" in first.description
    assert not {f"a{name[1:]}" for name in held_out} & {*first.processor.inputs.words}
    note = f"held out for validation: 2 of the 20 sentences of {config.train}, because"
    assert note in first.description.splitlines()[-1]
    assert "held out for" not in files(trees).load(0).description


def test_long_sentences_are_not_held_out_and_change_no_other_choice(files):
    trees = [sentence(f"a{number} b c", [2, 0, 2], name=f"s{number}") for number in range(30)]
    config = dataclasses.replace(files(trees), validation=None)
    held_out = [one.name for one in config.load(0).splits["validation"].examples]
    assert len(held_out) == 3
    trees[int(held_out[1][1:])] = sentence("w " * 9, [0, *range(1, 9)], name="long")
    corpus = dataclasses.replace(files(trees), validation=None, max_length=8).load(0)
    assert [one.name for one in corpus.splits["validation"].examples] == [held_out[0], held_out[2]]
    assert "27 trees for training (1 of more than 8 words were left out)" in corpus.description
    with pytest.raises(DataError, match=r"all 3 sentences that are held out have more than 2 words; raise data.max_"):
        dataclasses.replace(config, max_length=2).load(0)


def test_a_run_that_starts_from_an_earlier_one_does_not_score_what_that_has_learned(files):
    config = files(PLAIN)
    config.check_after(config)
    config.check_after(DRAWN)
    with pytest.raises(DataError, match=r"the earlier run was trained on .*train.conllu, which has sent"):
        dataclasses.replace(config, validation=None).check_after(config)


def test_a_file_is_read_with_and_without_trees_and_sentences_without_words_are_skipped(files, tmp_path, caplog):
    config = files(PLAIN)
    processor = config.load(0).processor
    path = tmp_path / "new.conllu"
    path.write_text(written([sentence_of(["a", "z"], ["X", "X"])]))
    split = config.read_file(path, processor)
    assert not split.scored
    path.write_text(written([PLAIN[0], CROSSED]))
    split = config.read_file(path, processor)
    assert split.scored
    assert split.notes == ("1 of 2 trees are not projective",)
    path.write_text("# sent_id = empty\n\n" + written([PLAIN[0]]))
    assert len(config.read_file(path, processor).examples) == 1
    assert caplog.messages == [f"{path}: sentences without words, which are skipped: 1 of 2, the first in line 1"]
    caplog.clear()
    path.write_text(written([PLAIN[0], sentence_of(["a"])]))
    split = config.read_file(path, processor)
    assert split.scored
    assert len(split.examples) == 1
    assert caplog.messages == [f"{path}: sentences without a tree, which are not scored: 1 of 2, the first in line 7"]
    assert [one.words for one in split.unlabelled.examples] == [("a",)]
    assert (split.source.indices, split.unlabelled.source.indices) == ([0], [1])
    trained = dataclasses.replace(config, train=str(path), validation=str(path)).load(0)
    assert len(trained.splits["validation"].examples) == 1


def test_the_processor_of_an_earlier_run_is_used_and_must_have_the_same_options(files):
    config = files(PLAIN)
    processor = config.load(0).processor
    other = files([sentence("new words", [2, 0])]).load(0, processor)
    assert other.processor.inputs.words == processor.inputs.words
    assert dataclasses.replace(config, max_length=40).load(0, processor).processor.max_length == 40
    for field, value in (("system", "arc_eager"), ("tags", "none"), ("subtypes", False), ("minimum_count", 2)):
        with pytest.raises(DataError, match=f"data.{field} "):
            dataclasses.replace(config, **{field: value}).load(0, processor)
    with pytest.raises(DataError, match="needs the class EncoderVocabulary"):
        config.load(0, object())


def test_the_tokenizer_of_a_bert_becomes_part_of_the_processor(files):
    pieces = WordPieceVocabulary.of_pieces([*SPECIAL, "a", "b"])
    corpus = files(PLAIN).load(0, pieces)
    assert corpus.processor.inputs.pieces == pieces
    assert corpus.splits["validation"].batches[0]["pieces"].shape[0] > 1


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"lengths": (8, 8)}, "data.lengths must increase"),
        ({"lengths": (0, 8)}, "data.lengths must increase and be at least 1"),
        ({"max_length": 0}, "data.max_length must be at least 1, got 0"),
        ({"max_pieces": 2}, "data.max_pieces must be at least 3, got 2"),
        ({"tags": "xpos"}, "data.tags xpos needs a treebank"),
        ({"train": "a.conllu"}, "data.train applies only to data.source files"),
        ({"source": "ud_en_ewt", "sentences": 7}, "data.sentences applies only to data.source small_grammar"),
    ],
)
def test_wrong_fields_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        Treebank(**fields)


def test_the_last_length_is_the_maximum():
    config = dataclasses.replace(DRAWN, max_length=44)
    processor = config.load(0).processor
    assert config.buckets([3, 43], 43, processor).lengths == (8, 16, 24, 32, 44)
    assert config.buckets([3], 9, processor).lengths == (8, 16)
    assert dataclasses.replace(config, lengths=()).buckets([3], 9, processor).lengths == (44,)


def test_a_sentence_is_as_long_as_its_tokens_of_bert(files):
    pieces = WordPieceVocabulary.of_pieces([*SPECIAL, "a", "##b"])
    corpus = files([sentence("abbb a", [2, 0])], lengths=(4, 8), max_pieces=24).load(0, pieces)
    (batch,) = corpus.split("validation").batches
    assert batch["words"].shape[1] == batch["pieces"].shape[1] == 8  # seven tokens


def tagged(upos, xpos, relation="dep"):
    one = sentence_of(["a", "b"], upos, [0, 1], ["root", relation])
    lines = [
        "\t".join([*line.split("\t")[:4], xpos[int(line[0]) - 1], *line.split("\t")[5:]]) if line[0].isdigit() else line
        for line in one.lines
    ]
    return dataclasses.replace(one, xpos=tuple(xpos), lines=tuple(lines))


@pytest.mark.parametrize("tags", ["upos", "xpos", "both"])
def test_a_word_of_any_split_without_a_tag_has_the_unknown_tag_and_is_counted(files, tags):
    whole, part = tagged(["X", "Z"], ["Y", "Q"]), tagged(["_", "X"], ["_", "Y"])
    corpus = files([whole], [whole, part], tags=tags).load(0)
    split = corpus.splits["validation"]
    (note,) = split.notes
    assert note.startswith("1 of 4 words have no known tag and are read with the unknown tag (first: ")
    assert note.endswith("validation.conllu, line 6, sentence 1)")
    assert (split.batches[0]["tags"] == UNKNOWN_ID).sum() == 1
    learned = files([whole, part], [whole], tags=tags).load(0)
    assert "training: 1 of 4 words have no known tag" in learned.description
    assert {*learned.processor.tags} == {*corpus.processor.tags}
    (note,) = files([whole], [tagged(["X", "NEW"], ["Y", "NEW"])], tags=tags).load(0).splits["validation"].notes
    assert note.startswith("1 of 2 words have no known tag")


@pytest.mark.parametrize(
    ("tags", "train", "validation", "message"),
    [
        ("xpos", ["X"], ["_"], r"train.conllu: data.tags is xpos, and no word has .* XPOS; set --data.tags upos, or"),
        ("both", ["X"], ["_"], r"train.conllu: data.tags is both, and no word has .* XPOS; set --data.tags upos, or"),
        ("upos", ["_"], ["Y"], r"train.conllu: data.tags is upos, and no word has .* UPOS; set --data.tags xpos, or"),
        ("upos", ["_"], ["_"], r"train.conllu: data.tags is upos, and no word has .* UPOS; set --data.tags none, or"),
    ],
)
def test_a_treebank_without_the_tags_that_the_parser_reads_is_refused(files, tags, train, validation, message):
    without, whole = tagged(train * 2, validation * 2), tagged(["X", "X"], ["Y", "Y"])
    with pytest.raises(DataError, match=message):
        files([without], [whole], tags=tags).load(0)
    with pytest.raises(DataError, match=message.replace("train", "validation")):
        files([whole], [without], tags=tags).load(0)
    assert files([without], [whole], tags="none").load(0).processor.tags == ()


def test_relations_that_training_does_not_have_are_counted(files):
    corpus = files(PLAIN, [*PLAIN, tagged(["X", "X"], ["_", "_"], "new")]).load(0)
    (note,) = corpus.splits["validation"].notes
    assert note.startswith("1 of 7 words have a relation that no training sentence has")


@pytest.mark.realdata
def test_ud_english_has_the_sentences_that_it_says(tmp_path):
    folder = Path(os.environ["JAXNLP_DATA"]) / "ud_en_ewt"
    dev = folder / "en_ewt-ud-dev.conllu"
    small = "\n\n".join(dev.read_text(encoding="utf-8").split("\n\n")[:200]) + "\n\n"
    (tmp_path / "en_ewt-ud-dev.conllu").write_text(small, encoding="utf-8")
    (tmp_path / "en_ewt-ud-train.conllu.gz").write_bytes(gzip.compress(small.encode()))
    corpus = Treebank(source="ud_en_ewt", path=str(tmp_path), tags="both").load(0)
    assert len(corpus.splits["validation"].examples) == 200
    assert any(" " in tag for tag in corpus.processor.tags)
    assert "nsubj:pass" in corpus.processor.relations
    words = sum(int(batch["word_mask"].sum()) for batch in corpus.splits["validation"].batches)
    assert words == sum(len(one.words) for one in corpus.splits["validation"].examples)
    assert np.isin("PROPN NNP", corpus.processor.tags)
