import gzip
import io
import re
from pathlib import Path

import pytest

from jaxnlp.corpus import DataError
from jaxnlp.input_files.rows import TextColumns, chunks, position_of, read_text, rows_of, table_rows
from jaxnlp.input_files.tables import Dialect


def rows(file=None, *, texts=(), pairs=(), count=1):
    return list(rows_of(texts, pairs, file, count=count))


def test_rows_are_texts_or_texts_with_their_pairs():
    assert rows(texts=["a", " b\nc"]) == [("a",), (" b\nc",)]
    assert rows(texts=["a", "b"], pairs=["c", "d"], count=2) == [("a", "c"), ("b", "d")]


def test_the_first_row_decides_on_pairs_if_they_are_optional(tmp_path):
    assert rows(texts=["a", "b"], count=None) == [("a",), ("b",)]
    assert rows(texts=["a", "b"], pairs=["c", "d"], count=None) == [("a", "c"), ("b", "d")]
    contents = {
        "singles.txt": ("a\n\nb\tc\n", [("a",), ("",), ("b\tc",)]),
        "pairs.txt": ("\na\tb\n\nc\td\n", [("",), ("a", "b"), ("", ""), ("c", "d")]),
        "tabs.txt": ("a\tb\tc\n", [("a\tb\tc",)]),
        "pairs.csv": ("pair,text\nb,a\n", [("a", "b")]),
        "singles.csv": ("text,label\na,1\n", [("a",)]),
    }
    for name, (content, expected) in contents.items():
        (tmp_path / name).write_text(content)
        assert rows(tmp_path / name, count=None) == expected, name
    (tmp_path / "mixed.txt").write_text("a\tb\nc\n")
    with pytest.raises(ValueError, match=r"line 2: expected two texts with one tab between them, got 0 tabs"):
        rows(tmp_path / "mixed.txt", count=None)
    (tmp_path / "none.csv").write_text("name,label\na,1\n")
    with pytest.raises(DataError, match="expected the column text between"):
        rows(tmp_path / "none.csv", count=None)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"texts": ["a", "caf\udce9"]}, r"text 2 is not UTF-8: 'caf\\udce9'"),
        ({"texts": ["a"], "pairs": ["b"]}, "--pair applies only to pairs of texts; remove it"),
        ({"texts": ["a", "b"], "pairs": ["c"], "count": 2}, "got 2 texts, and 1 after --pair"),
        ({"texts": ["a"], "file": Path("x")}, "give texts or --file, not both"),
        ({"pairs": ["a"], "file": Path("x"), "count": 2}, "give texts or --file, not both"),
    ],
)
def test_texts_that_cannot_be_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        rows(**arguments)


def test_blank_rows_keep_their_places(tmp_path):
    assert rows(texts=["a", " \t"]) == [("a",), (" \t",)]
    (tmp_path / "x").write_bytes(b"a\tb\n\nc\t \n")
    assert rows(tmp_path / "x", count=2) == [("a", "b"), ("", ""), ("c", " ")]


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
        (b"a\nb\xff\n", 1, r"line 2: byte 0xff is not UTF-8; .* convert it: iconv"),
        (b"\xef\xbb\xbfa\xff\n", 1, r"line 1: byte 0xff is not UTF-8"),
        (b"a\nb\0 and more\n", 1, r"line 2: byte 0x00 is not text"),
        ("no mark\n".encode("utf-16-le"), 1, r"line 1: byte 0x00 is not UTF-8; the file is probably UTF-16-LE"),
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


def test_all_bytes_of_a_file_decide_which_encoding_it_probably_has(tmp_path):
    (tmp_path / "x").write_bytes("café three\n\u201cnice\u201d\n".encode("cp1252"))
    with pytest.raises(
        ValueError, match=r"line 1: byte 0xe9 is not UTF-8; .* Windows-1252, as of Excel; set --data.encoding cp1252,"
    ):
        rows(tmp_path / "x")


def test_a_compressed_file_has_the_rows_of_the_file_that_was_compressed(tmp_path):
    raw = "a\r\n\ncafé".encode()
    for name in ("x.txt.gz", "x"):
        (tmp_path / name).write_bytes(gzip.compress(raw))
        assert rows(tmp_path / name) == [("a",), ("",), ("café",)]
    (tmp_path / "x.gz").write_bytes(gzip.compress(b"a\nb\xe9\n"))
    with pytest.raises(ValueError, match=r"x\.gz, line 2: byte 0xe9 is not UTF-8; the file is probably Latin-1"):
        rows(tmp_path / "x.gz")
    (tmp_path / "x.gz").write_bytes(b"plain")
    with pytest.raises(ValueError, match=r"x\.gz is not a gzip file, or is damaged"):
        rows(tmp_path / "x.gz")


@pytest.mark.parametrize(
    ("content", "count", "names"),
    [
        (b"id\ttext\tlabel\n1\ta\tx\n", 1, "tabs, id, text, label"),
        (b"\xef\xbb\xbftext,label\r\na,x\r\n", 1, "commas, text, label"),
        (b"text\tpair\na\tb\n", 2, "tabs, text, pair"),
    ],
)
def test_a_table_whose_name_is_not_that_of_a_table_is_not_read_as_texts(
    tmp_path, on_standard_input, content, count, names
):
    (tmp_path / "x.txt").write_bytes(content)
    with pytest.raises(ValueError, match=rf"x\.txt, line 1: the names of columns between {names}; .*name in \.tsv or"):
        rows(tmp_path / "x.txt", count=count)
    on_standard_input(content)
    with pytest.raises(ValueError, match=f"standard input, line 1: the names of columns between {names}; "):
        rows(count=count)
    (tmp_path / "x.txt").write_bytes(b"text\nabout text, or a label\n")
    assert len(rows(tmp_path / "x.txt")) == 2


@pytest.mark.parametrize(
    "content",
    [
        '{"text": "a", "label": 1}\n{"text": "b", "label": 0}\n',
        '[{"text": "a"}, {"text": "b"}]',
        '[\n {"text": "a"},\n {"text": "b"}\n]\n',
    ],
)
def test_json_whose_name_is_not_that_of_a_table_is_not_read_as_texts(tmp_path, on_standard_input, content):
    (tmp_path / "x.txt").write_text(content)
    with pytest.raises(
        ValueError, match=r"x\.txt, line 1: JSON; this file is read as one text a line: .*in \.jsonl or"
    ):
        rows(tmp_path / "x.txt")
    on_standard_input(content.encode())
    with pytest.raises(ValueError, match="standard input, line 1: JSON; "):
        rows()
    for texts in (["{}", "b"], ['{"a": 1}', "b"], ["[", "b"], ["[1]", "{"], ["1", "{"], ["[[]]", "b"]):
        (tmp_path / "x.txt").write_text("\n".join(texts))
        assert rows(tmp_path / "x.txt") == [(text,) for text in texts]


@pytest.mark.parametrize("line", ['{"sentence": "a"}', '[{"review": "a"}]', '["a", "b"]'])
def test_other_json_is_read_as_a_text_with_a_note(tmp_path, on_standard_input, capsys, line):
    (tmp_path / "x.txt").write_text(f"{line}\nb\n")
    assert rows(tmp_path / "x.txt") == [(line,), ("b",)]
    note = "line 1: JSON, which is read as a text; give JSON in a file with a name in .jsonl or .json\n"
    assert capsys.readouterr().err == f"note: {tmp_path / 'x.txt'}, {note}"
    on_standard_input(line.encode())
    assert rows() == [(line,)]
    assert capsys.readouterr().err == f"note: standard input, {note}"


@pytest.mark.parametrize("comments", [0, 2])
def test_conllu_is_not_read_as_texts(tmp_path, on_standard_input, comments):
    word = "\t".join(["1", "Ann", *"_______", "_"])
    content = "# a\n" * comments + f"{word}\n\n"
    (tmp_path / "x.conllu").write_text(content)
    with pytest.raises(ValueError, match=rf"x\.conllu, line {comments + 1}: CoNLL-U; .* --conllu or --conll$"):
        rows(tmp_path / "x.conllu")
    on_standard_input(content.encode())
    with pytest.raises(ValueError, match=f"standard input, line {comments + 1}: CoNLL-U; "):
        rows()
    (tmp_path / "x.txt").write_text(f"a text\n{word}\n")
    assert rows(tmp_path / "x.txt", count=1) == [("a text",), (word,)]


@pytest.mark.parametrize("first", ["text\tgood", "text, image and sound"])
@pytest.mark.parametrize("more", [[], ["", "another text"], [""]])
def test_a_first_line_like_a_header_is_a_text_if_no_row_of_a_table_follows(tmp_path, first, more):
    (tmp_path / "x.txt").write_text("\n".join([first, *more, ""]))
    assert rows(tmp_path / "x.txt") == [(text,) for text in [first, *more]]
    (tmp_path / "x.txt").write_text('text,label\n\n"a line\nand another",x\n')
    with pytest.raises(ValueError, match=r"x\.txt, line 1: the names of columns between commas"):
        rows(tmp_path / "x.txt")


@pytest.mark.parametrize("first", [b"10%\r100%", b'"' + b"a" * 200_000, b"a" * 200_000])
def test_the_first_line_may_be_any_text(tmp_path, on_standard_input, first):
    (tmp_path / "x.txt").write_bytes(first + b"\r\nb\n")
    assert rows(tmp_path / "x.txt") == [(first.decode(),), ("b",)]
    on_standard_input(first + b"\tb\n")
    assert rows(count=2) == [(first.decode(), "b")]


def test_texts_with_a_carriage_return_are_counted(tmp_path, capsys):
    (tmp_path / "x.txt").write_bytes(b"a\r\nb\rc\rd")
    assert rows(tmp_path / "x.txt") == [("a",), ("b\rc\rd",)]
    assert "one with a carriage return before its end: 1 of 2 lines, the first in line 2" in capsys.readouterr().err
    (tmp_path / "x.txt").write_bytes(b"a\tb\rc\n")
    assert rows(tmp_path / "x.txt", count=2) == [("a", "b\rc")]
    assert "carriage return" in capsys.readouterr().err


@pytest.mark.parametrize("convert", [bytes, gzip.compress, lambda raw: raw.decode().encode("utf-16")])
def test_lines_of_a_file_without_line_feeds_end_with_carriage_returns(tmp_path, on_standard_input, capsys, convert):
    path = tmp_path / "x.txt"
    path.write_bytes(convert(b"a\rb\r\rc"))
    columns = TextColumns(dialect=Dialect(encoding="utf-16" if path.read_bytes()[:1] == b"\xff" else "utf-8"))
    assert list(rows_of((), (), path, count=1, columns=columns)) == [("a",), ("b",), ("",), ("c",)]
    on_standard_input(b"a\rb\r\rc")
    assert rows() == [("a",), ("b",), ("",), ("c",)]
    assert capsys.readouterr().err == ""
    path.write_bytes(b"a\rb\xff\rc")
    with pytest.raises(ValueError, match=r"x\.txt, line 2: byte 0xff"):
        rows(path)


def test_single_texts_with_a_tab_are_counted(tmp_path, capsys):
    (tmp_path / "x.txt").write_text("a\nb\tc\n\td\n")
    assert rows(tmp_path / "x.txt") == [("a",), ("b\tc",), ("\td",)]
    note = f"note: {tmp_path / 'x.txt'}: each line is read as one text, also one with a tab: 2 of 3 lines, the first in"
    assert capsys.readouterr().err == f"{note} line 2\n"
    (tmp_path / "x.txt").write_text("a\tb\n")
    assert rows(tmp_path / "x.txt", count=2) == [("a", "b")]
    assert capsys.readouterr().err == ""


def test_without_columns_every_file_has_a_row_a_line(tmp_path, capsys):
    (tmp_path / "x.tsv").write_text("text\tlabel\na\n")
    assert list(rows_of((), (), tmp_path / "x.tsv", count=1, columns=TextColumns(()))) == [("text\tlabel",), ("a",)]
    assert capsys.readouterr().err == ""


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


def test_a_whole_file_may_be_compressed_and_have_other_line_ends(tmp_path):
    for name, raw in (("a.txt", b"\xef\xbb\xbfa\r\nb\n"), ("a.gz", gzip.compress(b"a\rb\n"))):
        (tmp_path / name).write_bytes(raw)
        assert read_text(tmp_path / name) == "a\nb\n"


def test_a_whole_file_has_the_encoding_of_the_training_files_but_standard_input_is_utf8(tmp_path, on_standard_input):
    columns, path = TextColumns.of_run({"data": {"encoding": "cp1252"}}), tmp_path / "a.txt"
    path.write_bytes("“a”\r\n".encode("cp1252"))
    assert read_text(path, columns) == "“a”\n"
    with pytest.raises(ValueError, match=r"a.txt, line 1, offset 0: byte 0x93 .*set --data.encoding cp1252, or"):
        read_text(path)
    on_standard_input("“a”\n".encode())
    assert read_text(Path("-"), columns) == "“a”\n"


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


def test_places_are_named_by_text_line_or_row():
    assert position_of(["a"], None, 1) == "text 1"
    assert position_of((), None, 4) == "standard input, line 4"
    assert [position_of((), Path(name), 2) for name in ("x", "x.csv")] == ["x, line 2", "x.csv, row 2"]


def test_columns_are_those_of_the_runs_training_table():
    data = {"text": "body", "pair": "other", "delimiter": ";", "quotes": "none", "encoding": "cp1252", "label": "stars"}
    assert TextColumns.of_run({"data": data}) == TextColumns(("body", "other"), Dialect(None, ";", "none", "cp1252"))
    assert TextColumns.of_run({"data": {"text": "body", "pair": None}}) == TextColumns(("body", "pair"))
    assert TextColumns.of_run({"data": {"train": "x"}}) == TextColumns.of_run(None) == TextColumns()


def test_rows_have_the_texts_that_the_model_reads_blank_ones_too(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("label,pair,text\nx,b,a\n,,\ny,d,c\n")
    assert [row.texts for row in table_rows(path, TextColumns(), 2)] == [("a", "b"), ("", ""), ("c", "d")]
    assert [(row.texts, row.line) for row in table_rows(path, TextColumns(("pair",)), 1)] == [
        *((("b",), 2), (("",), 3)),
        (("d",), 4),
    ]
    with pytest.raises(DataError, match=r"line 1: .* got label, pair, text; missing: body; rename the columns, or"):
        table_rows(path, TextColumns(("body",)), 1)


def test_lines_of_a_file_have_its_encoding_and_those_of_standard_input_are_utf_8(tmp_path, monkeypatch):
    text = "caf\xe9 \u201cx\u201d\ntwo\n"
    rows = [("caf\xe9 \u201cx\u201d",), ("two",)]
    for encoding in ("cp1252", "utf-16"):
        (tmp_path / "texts.txt").write_bytes(text.encode(encoding))
        columns = TextColumns(dialect=Dialect(encoding=encoding))
        assert list(rows_of((), (), tmp_path / "texts.txt", count=1, columns=columns)) == rows
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        assert list(rows_of((), (), Path("-"), count=1, columns=columns)) == rows
    with pytest.raises(ValueError, match=r"probably UTF-16; set --data.encoding utf-16, or convert it"):
        list(rows_of((), (), tmp_path / "texts.txt", count=1))
