"""What `jaxnlp parse` reads; test_init.py runs it."""

import gzip
from pathlib import Path

import pytest

from jaxnlp.tasks.parsing.commands import Parse, read_conllu
from jaxnlp.text.conllu import sentence_of, written


def test_files_may_be_compressed_and_have_windows_line_ends(tmp_path):
    sentence = sentence_of(["a"], ["X"], [0], ["root"])
    text = written([sentence])
    (tmp_path / "a.conllu").write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    (tmp_path / "a.conllu.gz").write_bytes(gzip.compress(text.encode()))
    assert read_conllu(tmp_path / "a.conllu") == read_conllu(tmp_path / "a.conllu.gz") == [sentence]


@pytest.mark.parametrize(("name", "content"), [("a.conllu.gz", b"plain"), ("a.conllu", b"\xff")])
def test_damaged_files_are_named(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=rf"{name} cannot be read: "):
        read_conllu(tmp_path / name)


def test_sentences_come_from_one_place():
    with pytest.raises(ValueError, match="from --conllu, or from texts and --file, not from both"):
        Parse(texts=("a",), conllu=Path("b"))
    with pytest.raises(ValueError, match="--num-beams must be at least 1, got 0"):
        Parse(num_beams=0)


def test_words_of_texts_are_split_and_numbered():
    first, second = Parse(texts=("It's red.", "No"))._sentences()
    assert (first.words, first.name, first.line) == (("It", "'s", "red", "."), "1", 1)
    assert (second.words, second.name, second.line) == (("No",), "2", 2)
