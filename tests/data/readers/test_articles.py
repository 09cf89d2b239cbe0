import csv
import gzip
import os
import re
from pathlib import Path

import numpy as np
import pytest

from data import DataError
from data.readers.articles import checked_ids, read_articles
from data.readers.object_arrays import read_array
from jaxnlp.text.words import EOL, UNK, WordVocabulary

FIRST = ["", "= First Title =", "", "a b a", "= = Part one = =", "a = b", "= Second =", "b b"]
WIKITEXT = "".join(f" {line} \n" for line in [*FIRST, "= The Third One =", "c"])
WORDS = ["=", EOL, UNK, "a", "b"]


def as_words(vocabulary, part):
    return [[vocabulary.words[i] for i in article] for article in part]


def write_wikitext(folder, train=WIKITEXT, valid=WIKITEXT):
    (folder / "train.txt").write_text(train, encoding="utf-8")
    (folder / "valid.txt").write_text(valid, encoding="utf-8")
    return str(folder)


def write_homework(folder, *, train=([0, 3, 1],), valid=([4, 2], [3]), dtype=np.int32, words=WORDS):
    (folder / "dataset").mkdir()
    with (folder / "dataset" / "vocab.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("Id", "Token"), *enumerate(words)])
    for name, part in (("train", train), ("valid", valid)):
        articles = np.empty(len(part), object)
        articles[:] = [np.array(article, dtype) for article in part]
        np.save(folder / "dataset" / f"wiki.{name}.npy", articles)
    return folder


def write_text(folder, text):
    path = folder / "text.txt"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_wikitext_articles_begin_at_titles_of_two_words_and_every_line_ends(tmp_path):
    articles = read_articles("wikitext2", write_wikitext(tmp_path))
    expected = ["".join(f"{line} {EOL} " for line in FIRST).split(), f"= The Third One = {EOL} c {EOL}".split()]
    assert as_words(articles.vocabulary, articles.train) == expected
    assert as_words(articles.vocabulary, articles.validation) == expected
    assert {article.dtype for article in articles.train} == {np.dtype(np.int32)}


def test_wikitext_vocabulary_is_that_of_the_training_part_in_code_point_order(tmp_path):
    articles = read_articles("wikitext2", write_wikitext(tmp_path, "b a\nB\n", "a c\n"))
    assert articles.vocabulary.words == (EOL, UNK, "B", "a", "b")
    assert articles.vocabulary.unknown == UNK
    assert as_words(articles.vocabulary, articles.validation) == [["a", UNK, EOL]]


@pytest.mark.parametrize("suffix", [".txt", ".txt.gz", ".tokens"])
def test_wikitext_files_may_be_compressed_or_as_released(tmp_path, suffix):
    write_wikitext(tmp_path)
    expected = read_articles("wikitext2", str(tmp_path)).fingerprint
    for name in ("train", "valid"):
        content = (tmp_path / f"{name}.txt").read_bytes()
        (tmp_path / f"{name}.txt").unlink()
        path = tmp_path / (f"wiki.{name}.tokens" if suffix == ".tokens" else f"{name}{suffix}")
        path.write_bytes(gzip.compress(content) if suffix.endswith("gz") else content)
    assert read_articles("wikitext2", str(tmp_path)).fingerprint == expected


def test_homework_articles_are_its_arrays(tmp_path):
    articles = read_articles("cmu_hw4p1", str(write_homework(tmp_path)))
    assert (articles.vocabulary.words, articles.vocabulary.unknown) == (tuple(WORDS), UNK)
    assert [article.tolist() for article in articles.train] == [[0, 3, 1]]
    assert [article.tolist() for article in articles.validation] == [[4, 2], [3]]
    assert {article.dtype for article in articles.train} == {np.dtype(np.int32)}


def test_a_given_vocabulary_must_be_the_homeworks(tmp_path):
    folder = write_homework(tmp_path)
    own = read_articles("cmu_hw4p1", str(folder)).vocabulary
    assert read_articles("cmu_hw4p1", str(folder), vocabulary=own).vocabulary == own
    with pytest.raises(
        DataError, match=r"vocabularies differ: the model's has 1 words, that of data.source cmu_hw4p1 has 5"
    ):
        read_articles("cmu_hw4p1", str(folder), vocabulary=WordVocabulary(["a"]))


@pytest.mark.parametrize("compressed", [False, True])
def test_homework_vocabulary_may_be_an_array(tmp_path, compressed):
    folder = write_homework(tmp_path) / "dataset"
    (folder / "vocab.csv").unlink()
    path = folder / ("vocab.npy.gz" if compressed else "vocab.npy")
    with (gzip.open if compressed else open)(path, "wb") as stream:
        np.save(stream, np.array(WORDS))
    assert read_articles("cmu_hw4p1", str(tmp_path)).vocabulary.words == tuple(WORDS)


def test_a_homework_vocabulary_need_not_know_the_unknown(tmp_path):
    folder = write_homework(tmp_path, words=["v", "w", "x", "y", '"'])
    vocabulary = read_articles("cmu_hw4p1", str(folder)).vocabulary
    assert (vocabulary.words[-1], vocabulary.unknown) == ('"', None)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train": [[0, 1], [1, 2, 5, 9]]}, "wiki.train.npy: article[1][2] is 5, outside the vocabulary of 5 words"),
        ({"valid": [[0], [-1]]}, "wiki.valid.npy: article[1][0] is -1, outside the vocabulary of 5 words"),
        ({"valid": [[0], []]}, "wiki.valid.npy: article[1] is empty; expected at least one id"),
        ({"train": []}, "wiki.train.npy contains no articles"),
        ({"dtype": np.float32}, "wiki.train.npy: article[0] is of dtype float32, expected integers: the ids of words"),
        ({"train": [[[0, 1], [2, 3]]]}, "wiki.train.npy: article[0] is of shape [2, 2], expected [N]"),
        ({"words": [*WORDS, "a"]}, "vocab.csv: words[5] and words[3] are both 'a'"),
        ({"words": [*WORDS, "b c"]}, "vocab.csv: words[5] must not be empty or contain white space, got 'b c'"),
    ],
)
def test_homework_files_that_do_not_fit_are_named_with_the_place(tmp_path, changes, message):
    folder = write_homework(tmp_path, **changes)
    with pytest.raises(DataError, match=re.escape(str(folder / "dataset" / message))):
        read_articles("cmu_hw4p1", str(folder))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("0,a\n1,b\n", "row 1: expected Id,Token, got '0,a'"),
        ("Id,Token\n0,a\n2,b\n", "row 3: expected 1,the word, got '2,b'"),
        ("Id,Token\n0,a,b\n", "row 2: expected 0,the word, got '0,a,b'"),
        ("Id,Token\n", "a vocabulary needs at least one word, got none"),
    ],
)
def test_a_table_that_is_no_vocabulary_is_refused_with_its_row(tmp_path, content, message):
    path = write_homework(tmp_path) / "dataset" / "vocab.csv"
    path.write_text(content)
    with pytest.raises(DataError, match=f"^{re.escape(str(path))}.*{re.escape(message)}"):
        read_articles("cmu_hw4p1", str(tmp_path))


def test_an_array_that_is_no_vocabulary_is_refused(tmp_path):
    path = write_homework(tmp_path) / "dataset" / "vocab.npy"
    np.save(path, np.arange(5))
    with pytest.raises(DataError, match=re.escape(f"{path}: expected words [V], got int64 [5]")):
        read_articles("cmu_hw4p1", str(tmp_path))


def test_a_text_is_split_by_position_and_rare_words_of_its_training_part_are_unknown(tmp_path):
    text = "a b a\nc b  a\n" * 3 + "d c d\n"
    path = write_text(tmp_path, text)
    articles = read_articles("text_file", path, minimum_count=4, validation_fraction=0.14)
    part = f"a b a {EOL} {UNK} b a {EOL}".split()
    assert as_words(articles.vocabulary, articles.train) == [part * 3]
    assert as_words(articles.vocabulary, articles.validation) == [[UNK, UNK, UNK, EOL]]
    assert articles.vocabulary.words == (EOL, UNK, "a", "b")
    everything = read_articles("text_file", path, validation_fraction=0.14)
    assert everything.vocabulary.words == (EOL, UNK, "a", "b", "c")
    assert as_words(everything.vocabulary, everything.validation) == [[UNK, "c", UNK, EOL]]


def test_python_docs_need_no_file(monkeypatch):
    monkeypatch.delenv("JAXNLP_DATA", raising=False)
    articles = read_articles("python_docs", minimum_count=3)
    assert 1000 < articles.vocabulary.size < 10_000
    train, validation = (len(part[0]) for part in (articles.train, articles.validation))
    assert train == int(0.9 * (train + validation))


def test_a_text_of_one_word_is_too_short(tmp_path):
    with pytest.raises(DataError, match=re.escape("the text has too few words to hold out 0.1 of them: 1")):
        read_articles("text_file", write_text(tmp_path, "word"))


def test_the_fingerprint_changes_with_words_and_with_where_articles_begin(tmp_path):
    def fingerprint(text):
        return read_articles("wikitext2", write_wikitext(tmp_path, text)).fingerprint

    texts = [WIKITEXT, WIKITEXT.replace(" a = b", " b = a"), WIKITEXT.replace(" = Second =", " = Second = =")]
    assert len({*map(fingerprint, [*texts, WIKITEXT])}) == 3


@pytest.mark.parametrize("source", ["cmu_hw4p1", "wikitext2"])
def test_without_data_the_message_names_all_ways_to_some(monkeypatch, tmp_path, source):
    monkeypatch.delenv("JAXNLP_DATA", raising=False)
    monkeypatch.setenv("JAXNLP_CACHE", str(tmp_path / "cache"))
    with pytest.raises(
        FileNotFoundError, match=r"JAXNLP_DATA is not set.*its folder with --data\.path.*--data\.source python_docs"
    ):
        read_articles(source)
    with pytest.raises(FileNotFoundError, match=r"does not have .* or .*; add it, or .*--data\.source python_docs"):
        read_articles(source, str(tmp_path))


@pytest.mark.parametrize(
    ("ids", "axes", "message"),
    [
        ([[0, 1], [2, 3]], "N", "x is of shape [2, 2], expected [N]"),
        ([0, 1], "NT", "x is of shape [2], expected [N, T]"),
        ([[0, 1], [2, 3]], "NT", "x[1, 1] is 3, outside the vocabulary of 3 words"),
        ([True], "N", "x is of dtype bool, expected integers"),
        ([], "N", "x is of dtype float64, expected integers"),
    ],
)
def test_ids_that_are_none_are_refused(ids, axes, message):
    with pytest.raises(DataError, match=re.escape(message)):
        checked_ids(np.array(ids), "x", 3, axes=axes)


@pytest.mark.thorough
@pytest.mark.realdata
def test_the_homework_and_wikitext2_hold_the_same_words():
    homework, wikitext = read_articles("cmu_hw4p1"), read_articles("wikitext2")
    assert homework.vocabulary == wikitext.vocabulary
    assert homework.vocabulary.size == 33_278
    assert (len(homework.train), sum(map(len, homework.train))) == (579, 2_075_677)
    assert (len(homework.validation), sum(map(len, homework.validation))) == (59, 216_347)
    assert sum(map(len, wikitext.train)) == 2_088_628
    assert sum(map(len, wikitext.validation)) == 217_646
    eol = wikitext.vocabulary.encode_words([EOL])[0]
    for ours, theirs in ((wikitext.train, homework.train), (wikitext.validation, homework.validation)):
        for article, expected in zip(ours, theirs, strict=True):
            blank = (article == eol) & (np.concatenate([[eol], article[:-1]]) == eol)
            np.testing.assert_array_equal(article[~blank], expected)


@pytest.mark.realdata
def test_the_homeworks_two_vocabularies_are_the_same(tmp_path):
    dataset = Path(os.environ["JAXNLP_DATA"]) / "cmu11785_hw4p1" / "dataset"
    folder = write_homework(tmp_path) / "dataset"
    (folder / "vocab.csv").write_bytes((dataset / "vocab.csv").read_bytes())
    words = read_articles("cmu_hw4p1", str(tmp_path)).vocabulary.words
    assert words == tuple(read_array(dataset / "vocab.npy.gz").tolist())
