"""What `jaxnlp parse` reads; test_init.py runs it."""

import gzip
from pathlib import Path

import pytest

from jaxnlp.input_files.rows import TextColumns
from jaxnlp.tasks.parsing.commands import Parse
from jaxnlp.text.conllu import sentence_of, written


def test_a_file_may_be_compressed_or_standard_input(tmp_path, on_standard_input):
    sentence = sentence_of(["a"], ["X"])
    path = tmp_path / "a.conllu.gz"
    path.write_bytes(gzip.compress(written([sentence]).encode()))
    assert list(Parse(conllu=path)._sentences(TextColumns())) == [sentence]
    on_standard_input(gzip.decompress(path.read_bytes()))
    assert [one.words for one in Parse(conllu=Path("-"))._sentences(TextColumns())] == [sentence.words]


def test_a_file_of_words_has_the_encoding_of_files_of_texts(tmp_path):
    columns = TextColumns.of_run({"data": {"encoding": "cp1252"}})
    sentence = sentence_of(["Zoë"], ["X"])
    path = tmp_path / "a.conllu"
    path.write_bytes(written([sentence]).encode("cp1252"))
    assert [one.words for one in Parse(conllu=path)._sentences(columns)] == [sentence.words]
    assert Parse(conllu=path).further_files() == (path,)


def test_sentences_come_from_one_place():
    with pytest.raises(ValueError, match="from --conllu, or from texts and --file, not from both"):
        Parse(texts=("a",), conllu=Path("b"))
    with pytest.raises(ValueError, match="num_beams must be at least 1, got 0"):
        Parse(num_beams=0)


def test_words_of_texts_are_split_and_numbered():
    first, second = Parse(texts=("It's red.", "No"))._sentences(TextColumns())
    assert (first.words, first.name, first.line) == (("It", "'s", "red", "."), "1", 1)
    assert (second.words, second.name, second.line) == (("No",), "2", 2)


def test_messages_name_the_file_of_texts(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("It's red.\nNo\n")
    assert [one.where for one in Parse(file=path)._sentences(TextColumns())][1] == f"{path}, line 2, sentence 2"
