import gzip
import re
from pathlib import Path

import pytest

from jaxnlp.cli.inputs import (
    blank_rows,
    chunks,
    one_line,
    place_of,
    read_text,
    report_blank,
    report_skipped,
    report_truncated,
    rows_of,
)


def rows(file=None, *, texts=(), pairs=(), count=1):
    return list(rows_of(texts, pairs, file, count=count))


def test_rows_are_texts_or_texts_with_their_pairs():
    assert rows(texts=["a", " b\nc"]) == [("a",), (" b\nc",)]
    assert rows(texts=["a", "b"], pairs=["c", "d"], count=2) == [("a", "c"), ("b", "d")]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"texts": ["a", "caf\udce9"]}, r"text 2 is not UTF-8: 'caf\\udce9'"),
        ({"texts": ["a"], "pairs": ["b"]}, "--pair applies only to pairs of texts; remove it"),
        ({"texts": ["a", "b"], "pairs": ["c"], "count": 2}, "number of texts: 2, after --pair: 1"),
        ({"texts": ["a"], "file": Path("x")}, "give texts or --file, not both"),
        ({"pairs": ["a"], "file": Path("x"), "count": 2}, "give texts or --file, not both"),
    ],
)
def test_texts_that_cannot_be_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        rows(**arguments)


def test_blank_rows_keep_their_places_and_are_reported(tmp_path, capsys):
    assert rows(texts=["a", " \t"]) == [("a",), (" \t",)]
    (tmp_path / "x").write_bytes(b"a\tb\n\nc\t \n")
    found = rows(tmp_path / "x", count=2)
    assert found == [("a", "b"), ("", ""), ("c", " ")]
    assert blank_rows(found, 10) == [12, 13]
    report_blank([12, 13], 13, (), tmp_path / "x")
    note = f"note: 2 of 13 texts are blank and have no answer; the first is {tmp_path / 'x'}, line 12\n"
    assert capsys.readouterr().err == note
    report_blank([], 13, (), None)
    assert capsys.readouterr().err == ""


def test_a_text_that_is_a_dash_is_refused_with_the_option_for_standard_input():
    with pytest.raises(ValueError, match=r"^expected a text, got -; to read standard input, give --file -$"):
        rows(texts=["-"])
    assert rows(texts=["-", "a"]) == [("-",), ("a",)]


def test_a_text_that_is_the_name_of_a_file_is_reported(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("my reviews.csv").write_text("text\n")
    for arguments in ({"texts": ["a", "my reviews.csv"]}, {"texts": ["a"], "pairs": ["my reviews.csv"], "count": 2}):
        assert len(rows(**arguments)) == len(arguments["texts"])
        note = "note: my reviews.csv is read as a text; to read the file, give --file 'my reviews.csv'\n"
        assert capsys.readouterr().err == note
    assert len(rows(texts=["a" * 5000, "reviews.csv", "."])) == 3
    assert capsys.readouterr().err == ""


def test_lines_of_a_file_end_at_line_feeds_alone(tmp_path):
    (tmp_path / "x").write_bytes("\ufeffone\r\ntwo\u2028two\x85\nthrée".encode())
    assert rows(tmp_path / "x") == [("one",), ("two\u2028two\x85",), ("thrée",)]
    (tmp_path / "x").write_bytes(b"a b\tc\nd\te\r\n")
    assert rows(tmp_path / "x", count=2) == [("a b", "c"), ("d", "e")]


@pytest.mark.parametrize(
    ("content", "count", "message"),
    [
        (b"a\tb\nc\n", 2, r"line 2: expected two texts with one tab between them, got 0 tabs"),
        (b"a\tb\tc\n", 2, r"line 1: expected two texts with one tab between them, got 2 tabs"),
        (b"a\nb\xff\n", 1, r"line 2: byte 0xff is not UTF-8; "),
        (b"", 1, r" is empty; (it should have|give texts, or --file with) one text a line"),
    ],
)
def test_lines_that_cannot_be_are_named(tmp_path, on_standard_input, content, count, message):
    file = tmp_path / "x"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=re.escape(str(file)) + ".*" + message):
        rows(file, count=count)
    on_standard_input(content)
    with pytest.raises(ValueError, match=r"standard input.*" + message):
        rows(count=count)


def test_a_wrong_line_of_a_file_is_found_before_the_first_row_and_one_of_standard_input_after_it(
    tmp_path, on_standard_input
):
    (tmp_path / "x").write_bytes(b"a\n\xff\n")
    with pytest.raises(ValueError, match="line 2: byte 0xff is not UTF-8"):
        next(rows_of((), (), tmp_path / "x", count=1))
    on_standard_input(b"a\n\xff\n")
    found = rows_of((), (), None, count=1)
    assert next(found) == ("a",)
    with pytest.raises(ValueError, match="line 2: byte 0xff is not UTF-8"):
        next(found)


def test_standard_input_is_read_where_nothing_else_is_given(on_standard_input):
    for file in (None, Path("-")):
        on_standard_input(b"one\ntwo\n")
        assert rows(file) == [("one",), ("two",)]


def test_a_terminal_is_not_waited_for(monkeypatch):
    class Terminal:
        def isatty(self):
            return True

    monkeypatch.setattr("sys.stdin", Terminal())
    with pytest.raises(ValueError, match="give texts, or --file with one text a line, or such lines on standard input"):
        rows()


def test_chunks_are_read_one_after_the_other():
    read = []
    lists = chunks((read.append(i) or i for i in range(5)), 2)
    assert (next(lists), read) == ([0, 1], [0, 1])
    assert list(lists) == [[2, 3], [4]]


def test_a_line_is_one_line():
    assert one_line("a\r\nb\tc\u2028d\x85e  f\\n") == "a b c d e  f\\n"


def test_truncated_texts_are_reported_when_there_are_some(capsys):
    report_truncated([], 3, 128)
    report_truncated(range(1150, 2350), 3000, 128)
    message = "note: 1,200 of 3,000 texts were truncated to 128 tokens; the first is text 1,151\n"
    assert capsys.readouterr() == ("", message)
    report_truncated([1], 2, 128)
    assert capsys.readouterr().err == "note: 1 of 2 texts was truncated to 128 tokens; the first is text 2\n"
    report_truncated([0], 1, 128)
    assert capsys.readouterr().err == "note: the text was truncated to 128 tokens\n"


def test_inputs_without_a_result_are_reported_with_the_place_of_the_first(capsys):
    report_skipped([], 3, "texts", "labels")
    report_skipped([f"{place_of((), Path('x'), 2)}: long"], 3, "texts", "labels")
    report_skipped([f"{place_of(['a'], None, 1)}: long", "text 2: long"], 3, "sentences", "tree")
    assert capsys.readouterr().err.splitlines() == [
        "note: 1 of 3 texts has no labels; x, line 2: long",
        "note: 2 of 3 sentences have no tree; the first: text 1: long",
    ]
    assert place_of((), None, 4) == "standard input, line 4"


def test_a_whole_file_may_be_compressed_and_have_other_line_ends(tmp_path):
    for name, raw in (("a.txt", b"\xef\xbb\xbfa\r\nb\n"), ("a.gz", gzip.compress(b"a\rb\n"))):
        (tmp_path / name).write_bytes(raw)
        assert read_text(tmp_path / name) == "a\nb\n"


def test_a_whole_file_may_come_from_standard_input(on_standard_input):
    on_standard_input(b"a\r\nb\n")
    assert read_text(Path("-")) == "a\nb\n"
    on_standard_input(b"\xff")
    with pytest.raises(ValueError, match=r"standard input, line 1, offset 0: byte 0xff is not UTF-8"):
        read_text(Path("-"))


def test_a_damaged_file_is_named(tmp_path):
    whole = gzip.compress(b"abc" * 100)
    damaged = whole[:12] + bytes([whole[12] ^ 0xFF]) + whole[13:]
    for name, raw in (("a.gz", b"plain"), ("a.gz", whole[:-9]), ("a.gz", damaged), ("a.txt", b"\xff")):
        (tmp_path / name).write_bytes(raw)
        with pytest.raises(ValueError, match=rf"{name}( is not a gzip file, or is damaged: |, line 1, offset 0: byte)"):
            read_text(tmp_path / name)
