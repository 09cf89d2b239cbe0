"""Examples of validation that are also in training are counted, and names that look alike are warned of."""

import json
import logging
import unicodedata

import numpy as np
import pytest

from data.squad import QuestionContexts
from data.tagged_sentences import TaggedSentences
from data.text_table import TextTable
from data.translation import ParallelText
from data.treebank import Treebank
from jaxnlp.text.subword_training import train_subwords
from jaxnlp.text.word_inputs import WordInputs

NFD = "NFD"


def table(texts, labels=("a", "b")):
    return "text,label\n" + "".join(f"{text},{labels[k % 2]}\n" for k, text in enumerate(texts))


def tags(texts, kind="LOC"):
    return "".join("".join(f"{word} B-{kind}\n" for word in text.split()) + "\n" for text in texts)


def trees(texts, relation="dep"):
    """Each word after the first depends on the one before."""
    return "".join(
        "".join(
            f"{number + 1}\t{word}\t_\tX\tX\t_\t{number}\t{relation if number else 'root'}\t_\t_\n"
            for number, word in enumerate(text.split())
        )
        + "\n"
        for text in texts
    )


def pairs(texts):
    return "".join(f"{text}\t{text} too\n" for text in texts)


def questions(texts):
    answers = [{"text": "Lima", "answer_start": 3}]
    return json.dumps([{"id": text, "question": text, "context": "in Lima", "answers": answers} for text in texts])


KINDS = {
    "rows": (table, lambda a, b: TextTable(source="table", path=a, validation_path=b, batch_size=2)),
    "sentences": (tags, lambda a, b: TaggedSentences(source="files", train=a, validation=b, batch_size=2)),
    "sentences with trees": (trees, lambda a, b: Treebank(source="files", train=a, validation=b, batch_size=2)),
    "sources": (pairs, lambda a, b: ParallelText(train=(a,), validation=(b,), vocabulary_size=400, batch_size=2)),
    "questions": (questions, lambda a, b: QuestionContexts(source="files", train=a, validation=b, batch_size=2)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_validation_examples_that_are_also_in_training_are_counted(kind, tmp_path):
    write, config = KINDS[kind]
    texts = ["one café is here", "two cats sleep", "three dogs are in Rome", "four", "five birds sing now", "six fish"]
    paths = [tmp_path / f"{name}.txt" for name in ("train", "validation")]
    again = [unicodedata.normalize(NFD, texts[0]), texts[2], "other words"]
    for path, rows in zip(paths, (texts, again), strict=True):
        path.write_text(write(rows), encoding="utf-8")
    noun = {"rows": "texts", "sentences with trees": "sentences"}.get(kind, kind)
    lines = config(*map(str, paths)).load(0).description.splitlines()
    assert [line for line in lines if "also in training" in line] == [
        f"{noun} of validation that are also in training: 2"
    ]


def test_rows_that_look_like_those_of_validation_are_removed_from_training(tmp_path):
    texts = [f"Le café numéro {number} était là" for number in range(6)]
    paths = [tmp_path / f"{name}.csv" for name in ("train", "validation")]
    paths[0].write_text(table(texts), encoding="utf-8")
    paths[1].write_text(table([unicodedata.normalize(NFD, texts[0]), texts[1].upper()]), encoding="utf-8")
    config = TextTable(
        source="table", path=str(paths[0]), validation_path=str(paths[1]), drop_duplicates=True, batch_size=2
    )
    description = config.load(0).description
    assert "training rows that are also in validation or test, removed: 2" in description
    assert "also in training" not in description


@pytest.mark.parametrize(("kind", "noun"), [("sentences", "types"), ("sentences with trees", "relations")])
def test_types_and_relations_that_look_alike_are_warned_of(kind, noun, tmp_path, caplog):
    write, config = KINDS[kind]
    path = tmp_path / "train.txt"
    path.write_text(write(["a b", "c d e", "f g"], "loc") + write(["a c", "d e", "g h"], "Loc"), encoding="utf-8")
    with caplog.at_level(logging.WARNING):
        config(str(path), str(path)).load(0)
    assert f"{path}: Loc and loc are different {noun}; they differ only in case" in caplog.messages


def test_words_and_subwords_are_the_same_in_nfc_and_nfd():
    words = ["Zürich", "Zoë", "läuft", "nach", "Café"]
    other = [unicodedata.normalize(NFD, word) for word in words]
    assert words != other
    of_one, of_other = (WordInputs.of_sentences([one], max_characters=5) for one in (words, other))
    assert of_one == of_other
    for name, array in of_one.encode(words).items():
        np.testing.assert_array_equal(of_one.encode(other)[name], array)
    for kind in ("bpe", "unigram", "characters", "words"):
        subwords, same = (train_subwords([" ".join(one)] * 3, kind, 300) for one in (words, other))
        assert subwords == same
        assert subwords.encode(" ".join(other)) == subwords.encode(" ".join(words))
        assert subwords.decode(subwords.encode(" ".join(other))) == " ".join(words)
