import codecs
import gzip
import re
from collections import Counter

import pytest

from data import DataError
from data.text_sources import python_docs, read_text, read_utf8


def written(folder, content):
    path = folder / "text.txt"
    path.write_bytes(content)
    return path


def test_python_docs_is_english_prose_long_enough_to_learn_from():
    text = python_docs()
    words = re.findall(r"[a-z]+", text.lower())
    assert len(text) > 400_000
    assert Counter(words).most_common(1)[0][0] == "the"
    assert Counter(letter for word in words for letter in word).most_common(1)[0][0] == "e"
    assert len(set(text)) < 200


def test_python_docs_holds_the_topics_of_help_in_alphabetical_order():
    text = python_docs()
    places = [text.index(f'The "{keyword}" statement\n*') for keyword in ("assert", "break", "try", "while")]
    assert places == sorted(places)


def test_python_docs_is_the_same_text_each_time():
    assert python_docs() == read_text("python_docs") == python_docs()


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
def test_line_ends_become_lf(tmp_path, line_end):
    assert read_utf8(written(tmp_path, line_end.join([b"one", b"", b"two", b""]))) == "one\n\ntwo\n"


def test_byte_order_mark_is_no_character_of_the_text(tmp_path):
    assert read_utf8(written(tmp_path, codecs.BOM_UTF8 + "naïve\r\n".encode())) == "naïve\n"


def test_characters_beyond_ascii_are_kept(tmp_path):
    text = "zwölf 汉字 \U0001f600 \u2028 end"
    assert read_utf8(written(tmp_path, text.encode())) == text


@pytest.mark.parametrize(
    ("content", "line", "byte"),
    [
        (b"\xff", 1, "0xff"),
        (b"one\ntwo\ncaf\xe9 three\nfour", 3, "0xe9"),
        (b"one\r\ntwo \x80", 2, "0x80"),
        (b"one\n\xe6\xb1", 2, "0xe6"),
        (codecs.BOM_UTF8 + b"ab\n\xe9", 2, "0xe9"),
    ],
    ids=["first byte", "latin-1", "crlf", "cut in a character", "after a byte-order mark"],
)
def test_bytes_that_are_not_utf8_are_named_with_file_and_line(tmp_path, content, line, byte):
    path = written(tmp_path, content)
    with pytest.raises(DataError, match=rf"^{re.escape(str(path))}, line {line}: byte {byte} is not UTF-8; .*iconv"):
        read_utf8(path)


def test_compressed_text_is_read_as_the_text(tmp_path):
    path = tmp_path / "text.txt.gz"
    path.write_bytes(gzip.compress(codecs.BOM_UTF8 + "naïve\r\n".encode()))
    assert read_utf8(path) == "naïve\n"


def test_damaged_compression_is_named(tmp_path):
    path = tmp_path / "text.txt.gz"
    whole = gzip.compress(b"one two three " * 50)
    for content in (b"text", whole[:-9], whole[:12] + b"\xff\xff" + whole[14:]):
        path.write_bytes(content)
        with pytest.raises(DataError, match=re.escape(f"{path} is not a gzip file, or is damaged: ")):
            read_utf8(path)


@pytest.mark.parametrize("content", [b"", codecs.BOM_UTF8])
def test_empty_file_is_refused_by_name(tmp_path, content):
    path = written(tmp_path, content)
    with pytest.raises(DataError, match=re.escape(f"{path} is empty")):
        read_utf8(path)


def test_missing_file_is_named_with_the_option_that_gives_it(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"the text file .*absent\.txt does not exist; .*--data\.path"):
        read_utf8(tmp_path / "absent.txt")


def test_folder_is_no_text_file(tmp_path):
    with pytest.raises(FileNotFoundError, match=re.escape(f"the text file {tmp_path} does not exist;")):
        read_utf8(tmp_path)


@pytest.mark.parametrize("source", ["text_file", "tiny_shakespeare"])
def test_a_given_path_is_read_whatever_the_source(tmp_path, source):
    assert read_text(source, str(written(tmp_path, b"my own text"))) == "my own text"


def test_text_file_without_path_says_which_option_is_missing():
    with pytest.raises(DataError, match=r"text_file needs the file: give it with --data\.path FILE"):
        read_text("text_file")


def test_python_docs_refuses_a_path():
    with pytest.raises(DataError, match=r"python_docs is embedded and takes no path, got my\.txt"):
        read_text("python_docs", "my.txt")


def test_unknown_source_is_named_next_to_the_known_ones():
    with pytest.raises(DataError, match="one of python_docs, tiny_shakespeare, text_file, got 'war_and_peace'"):
        read_text("war_and_peace")


@pytest.mark.realdata
def test_tiny_shakespeare_has_its_published_size():
    text = read_text("tiny_shakespeare")
    assert (len(text), len(set(text))) == (1_115_394, 65)
    assert text.startswith("First Citizen:\nBefore we proceed any further, hear me speak.")
