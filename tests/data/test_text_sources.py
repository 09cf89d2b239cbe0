import codecs
import gzip
import re
from collections import Counter

import pytest

from data import DataError
from data.text_sources import python_docs, read_documents, read_text, read_utf8, text_files


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


def test_what_a_spreadsheet_calls_unicode_text_is_told_how_to_convert(tmp_path):
    message = r"line 1: byte 0xff is not UTF-8; .* iconv -f utf-16 -t utf-8 \(the byte's offset is 0\)$"
    with pytest.raises(DataError, match=message):
        read_utf8(written(tmp_path, codecs.BOM_UTF16_LE + "text\tlabel\n".encode("utf-16-le")))


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
    with pytest.raises(
        DataError, match=r"python_docs takes no path, got my\.txt; for your own text, set --data.source text_file"
    ):
        read_text("python_docs", "my.txt")


def test_unknown_source_is_named_next_to_the_known_ones():
    with pytest.raises(DataError, match="one of python_docs, tiny_shakespeare, text_file, got 'war_and_peace'"):
        read_text("war_and_peace")


@pytest.mark.realdata
def test_tiny_shakespeare_has_its_published_size():
    text = read_text("tiny_shakespeare")
    assert (len(text), len(set(text))) == (1_115_394, 65)
    assert text.startswith("First Citizen:\nBefore we proceed any further, hear me speak.")


@pytest.mark.parametrize("mark", [b"", codecs.BOM_UTF8])
def test_the_offset_of_a_bad_byte_is_that_in_the_file(tmp_path, mark):
    path = written(tmp_path, mark + "ä\nb".encode() + b"\xe9")
    with pytest.raises(DataError, match=rf"the byte's offset is {len(mark) + 4}\)$"):
        read_utf8(path)
    assert path.read_bytes()[len(mark) + 4] == 0xE9


def test_utf16_is_recognised_by_its_mark(tmp_path):
    with pytest.raises(DataError, match="iconv -f utf-16 -t utf-8"):
        read_utf8(written(tmp_path, "text".encode("utf-16")))


@pytest.fixture
def poems(tmp_path, monkeypatch):
    """A folder of texts, other files, and a subfolder; it is the current folder."""
    for name in ("b.txt", "a.txt", "notes.md", "deep/c.txt", "deep/.x.png"):
        path = tmp_path / "poems" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{name}\n")
    (tmp_path / "poems" / "d.txt.gz").write_bytes(gzip.compress(b"d\n"))
    (tmp_path / "poems" / "folder.txt").mkdir()
    monkeypatch.chdir(tmp_path / "poems")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["."], ["a.txt", "b.txt", "d.txt.gz", "deep/c.txt"]),
        (["b.txt", "a.txt"], ["a.txt", "b.txt"]),
        (["*.txt"], ["a.txt", "b.txt"]),
        (["*"], ["a.txt", "b.txt", "d.txt.gz", "notes.md"]),
        (["**/*.txt"], ["a.txt", "b.txt", "deep/c.txt"]),
        (["notes.md", "deep", "[a]*"], ["a.txt", "deep/c.txt", "notes.md"]),
    ],
)
def test_files_folders_and_patterns_are_sorted_files(poems, given, expected):
    assert [path.as_posix() for path in text_files(given)] == expected


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (["a.txt", "a.txt"], DataError, "a.txt is given twice, by a.txt and by a.txt"),
        (["a.txt", "../poems/*.txt"], DataError, "../poems/a.txt is given twice, by a.txt and by ../poems/*.txt"),
        (["folder.txt"], DataError, 'the folder folder.txt has no .txt files; give others by a pattern: --data.path "'),
        (["*.rst"], DataError, "no file fits the pattern *.rst"),
        (["c.txt"], FileNotFoundError, "there is no text file at c.txt; give UTF-8 files, a folder or a pattern with"),
    ],
)
def test_files_that_cannot_be_meant_are_refused(poems, given, error, message):
    with pytest.raises(error, match=f"^{re.escape(message)}"):
        text_files(given)


def test_each_file_of_the_users_is_a_document(poems):
    assert read_documents("text_file", ("b.txt", "d.txt.gz", "a.txt")) == ["a.txt\n", "b.txt\n", "d\n"]
    assert read_documents("text_file", "a.txt") == ["a.txt\n"]
    assert read_documents("python_docs") == [python_docs()]


@pytest.mark.parametrize(
    ("source", "path", "message"),
    [
        ("text_file", None, "needs the text: give files, a folder or a pattern with --data.path"),
        ("text_file", (), "needs the text: give files, a folder or a pattern with --data.path"),
        ("tiny_shakespeare", ("a.txt", "b.txt"), "data.source tiny_shakespeare takes one path, got a.txt, b.txt"),
        ("python_docs", "a.txt", "python_docs takes no path, got a.txt; for your own text"),
    ],
)
def test_paths_that_a_source_does_not_take_are_refused(poems, source, path, message):
    with pytest.raises(DataError, match=re.escape(message)):
        read_documents(source, path)


def test_a_binary_file_is_refused_with_the_offset_of_its_first_zero_byte(tmp_path):
    path = written(tmp_path, "ä1\0".encode())
    with pytest.raises(
        DataError, match=rf"^{re.escape(str(path))} is a binary file, not a text: byte 0x00 at offset 3$"
    ):
        read_documents("text_file", str(path))
