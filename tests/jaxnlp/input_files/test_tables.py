import gzip
import json
import math
import re
from pathlib import Path

import pytest

from jaxnlp.corpus import DataError, SourceRows
from jaxnlp.input_files.tables import (
    Columns,
    Dialect,
    TableRow,
    is_table,
    labelled_rows,
    read_header,
    read_table,
    rows_with_texts,
    table_format,
    table_with,
    warn_of_tables,
)

COLUMNS = Columns(("text",), "label")
PAIRS = Columns(("a", "b"), "same", "name")


def written(folder, text, name):
    path = folder / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


def read_rows(path, columns, **options):
    return rows_with_texts(path, read_table(path, columns, **options).rows)


def lines(*rows):
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.csv", 'label,text\ngood,"a film, at last"\nbad,no\n'),
        ("t.tsv", "text\tlabel\na film, at last\tgood\nno\tbad\n"),
        ("t.jsonl", lines({"text": "a film, at last", "label": "good"}, {"text": "no", "label": " bad "})),
        ("t.json.gz", lines({"text": "a film, at last", "label": "good"}, {"text": "no", "label": "bad"})),
        ("T.CSV.gz", 'label,text\ngood,"a film, at last"\nbad,no\n'),
    ],
)
def test_the_same_rows_in_every_format(tmp_path, name, text):
    rows = read_rows(written(tmp_path, text, name), COLUMNS)
    assert [(row.id, row.texts, row.label) for row in rows] == [
        ("1", ("a film, at last",), "good"),
        ("2", ("no",), "bad"),
    ]


def test_the_header_of_a_table_that_was_joined_to_another_is_a_blank_row(tmp_path, caplog):
    text = "text,label\none,a\n\ufefftext, label\ntwo,b\ntext,label\ntext,b\n"
    path = written(tmp_path, text, "t.csv")
    table = read_table(path, COLUMNS)
    assert [(row.line, row.texts) for row in table.rows if not row.is_blank] == [
        (2, ("one",)),
        (4, ("two",)),
        (6, ("text",)),
    ]
    assert len(table.rows) == 5
    repeated = "rows that repeat the header, which are read as blank: 2 of 5, the first in line 3"
    assert caplog.messages == [f"{path}: {repeated}"]


def test_labels_of_json_are_texts_numbers_and_lists(tmp_path):
    found = [4, 4.5, True, None, math.nan, ["x", 1], [], "", "x"]
    path = written(tmp_path, lines(*({"text": "t", "label": label} for label in found)), "t.jsonl")
    several = read_rows(path, COLUMNS, separator=",")
    assert [row.label for row in several] == ["4", "4.5", "true", "", "", "x,1", ",", ",", "x"]
    path = written(tmp_path, lines({"text": "t", "label": ["x,y"]}), "u.jsonl")
    assert read_rows(path, COLUMNS, separator=";")[0].label == "x,y"
    with pytest.raises(DataError, match=r"u.jsonl, line 1: label: a label contains the separator ','"):
        read_rows(path, COLUMNS, separator=",")


def test_pairs_have_names_and_lines_are_counted_with_blank_ones(tmp_path):
    path = written(tmp_path, "\n" + lines({"name": 7, "a": "x", "b": "y", "same": 1, "more": {}}), "t.jsonl")
    (row,) = read_rows(path, PAIRS)
    assert (row.line, row.id, row.texts, row.label) == (2, "7", ("x", "y"), "1")


def test_rows_of_a_list_in_one_line_have_their_own_places(tmp_path, caplog):
    values = [{"text": "x", "label": "1"}, {"text": " "}, {"text": "y", "label": "2"}]
    path = written(tmp_path, json.dumps(values), "t.json")
    table = read_table(path, COLUMNS)
    assert len(rows_with_texts(path, table.rows)) == 2
    assert caplog.messages == [f"{path}: rows without a text, which are skipped: 1 of 3, the first in row 2"]
    assert {row.line for row in table.rows} == {1}
    source = table.source([row for row in table.rows if not row.is_blank])
    assert source.indices == [0, 2]
    assert [cells[0] for cells in source.cells] == ["x", " ", "y"]


def test_labels_are_read_if_an_object_has_one_and_are_empty_where_it_is_missing(tmp_path):
    path = written(tmp_path, lines({"text": "x"}, {"text": "y"}), "t.jsonl")
    assert [row.label for row in read_rows(path, COLUMNS)] == [None, None]
    with pytest.raises(DataError, match="line 1: expected the names text, label, got text; missing: label"):
        read_rows(path, COLUMNS, labelled=True)
    path = written(tmp_path, lines({"text": "x"}, {"label": "1"}, {"text": "y", "label": "1"}), "t.jsonl")
    assert [(row.texts, row.label) for row in read_table(path, COLUMNS).rows] == [
        (("x",), ""),
        (("",), "1"),
        (("y",), "1"),
    ]


@pytest.mark.parametrize("text", ["text,e\u0301toiles\u200b\nx,1\n", '{"text": "x", "e\u0301toiles\u200b": 1}\n'])
def test_a_missing_column_that_looks_like_one_of_the_file_is_written_by_its_codes(text, tmp_path):
    path = written(tmp_path, text, "t.jsonl" if text.startswith("{") else "t.csv")
    with pytest.raises(DataError, match=r"missing: '\\xe9toiles', which the file writes as 'e\\u0301toiles\\u200b'"):
        read_rows(path, Columns(("text",), "\u00e9toiles"), labelled=True)


def test_a_number_among_texts_is_read_as_in_a_csv_file(tmp_path):
    path = written(tmp_path, '{"text": 12345, "label": "1"}\n{"text": 0.5, "label": "1"}\n', "t.jsonl")
    assert [row.texts for row in read_rows(path, COLUMNS, labelled=True)] == [("12345",), ("0.5",)]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "t.jsonl",
            '{"text": "x", "label": "1"}\n{"text": \n',
            "t.jsonl, line 2: not JSON: .*an object a line, or a list",
        ),
        ("t.jsonl", "[1]\n", "line 1: expected a JSON object, got int"),
        ("t.jsonl", '{"text": [5], "label": "1"}\n', r"line 1: text must be a text, got \[5\]"),
        (
            "t.json",
            '{"text": {"0": "x"}, "label": {"0": 1}}',
            r"text must be a text, .*, as pandas .* orient='records'",
        ),
        ("t.json", '{"text": ["x"], "label": [1]}', "text must be a text, .* orient='records'"),
        ("t.json", '{"columns": ["text", "label"], "index": [0], "data": [["x", 1]]}', "missing: text, .*'records'"),
        ("t.json", '{"0": {"text": "x", "label": 1}}', "missing: text, label; .* orient='records'"),
        ("t.json", '{"schema": {}, "data": [{"text": "x", "label": 1}]}', "missing: text, .* orient='records'"),
        ("t.json", '[["x", 1]]', "expected a JSON object, got list; .* orient='records'"),
        ("t.jsonl", '{"text": "x", "label": {}}\n', "line 1: label must be a text, a number or a list"),
        (
            "t.jsonl",
            '{"text": " ", "label": "1"}\n',
            "t.jsonl: all 1 rows are without a text; expected",
        ),
        ("t.jsonl", '{"body": "x", "label": "1"}\n', "got body, label; missing: text"),
        ("t.jsonl", "\n\n", "has no rows$"),
        ("t.csv", "text,label\n", "has no rows below its header"),
        ("t.csv", "text,stars\nx,1\n", "got text, stars; missing: label"),
        ("t.csv", "\n\ntext,stars\nx,1\n", "line 3: expected the columns text, label"),
        ("t.csv", "text,label\nx,1,2\n", "line 2: expected 2 fields between commas"),
    ],
)
def test_what_is_no_row_is_named_by_its_line(tmp_path, name, text, message):
    with pytest.raises(DataError, match=message):
        read_rows(written(tmp_path, text, name), COLUMNS, labelled=True)


def test_the_ending_of_the_name_is_the_format():
    assert [table_format(Path(name)) for name in ("a.csv", "a.TSV.gz", "a.txt", "a.jsonl", "a.json.gz")] == [
        *("csv", "tsv", "tsv"),
        *("json", "json"),
    ]
    with pytest.raises(
        DataError, match=r"a.xlsx must end in .csv .*, .tsv or .txt .*, .jsonl or .json .*; save a spreadsheet"
    ):
        table_format(Path("a.xlsx"))
    names = ("a.TSV.GZ", "a.csv", "a.jsonl.gz", "a.txt", "a", "-")
    assert [is_table(Path(name)) for name in names] == [True, True, True, False, False, False]


def test_rows_without_a_label_are_left_out_with_a_warning(caplog):
    rows = [TableRow(line, line - 2, str(line), ("x",), label) for line, label in enumerate(["a", "", None, ""], 2)]
    assert [row.label for row in labelled_rows(Path("t.csv"), rows, "kind")] == ["a", None]
    assert caplog.messages == ["t.csv: rows without a label, which are skipped: 2 of 4, the first in line 3"]
    with pytest.raises(DataError, match=r"t.csv: no row has a label in the column kind"):
        labelled_rows(Path("t.csv"), rows[1:2], "kind")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ('{"text": "x", "label": ["a", "b"]}', "line 1: label is a list; set --data.predict classes"),
        ('{"text": "x", "label": Infinity}', "line 1: label must be a text or a finite number, got Infinity"),
        ('{"text": "\\ud800", "label": "a"}', "line 1: text has half of a surrogate pair"),
        ('{"text": "x", "label": "a", "text": "y"}', "line 1: not JSON: the name 'text' occurs twice; expected"),
        ('{"text": "x", "label": }', "line 1: not JSON: Expecting value at character 24; expected an object a line"),
    ],
)
def test_labels_and_texts_of_json_that_are_none_are_named(tmp_path, row, message):
    with pytest.raises(DataError, match=re.escape(message)):
        read_rows(written(tmp_path, row, "t.jsonl"), COLUMNS, separator=None)


def test_the_header_of_json_lines_is_the_names_of_all_objects(tmp_path):
    assert read_header(written(tmp_path, '{"text": "a"}\n{"text": "b", "label": 1}\n', "t.jsonl")) == ["text", "label"]
    assert read_header(written(tmp_path, '"text", label\na,1\n', "t.csv")) == ["text", "label"]
    assert read_header(written(tmp_path, "text;label\na;1\n", "t.csv")) == ["text", "label"]
    with pytest.raises(DataError, match=r"t.jsonl, line 2: not JSON"):
        read_header(written(tmp_path, "[1,\n", "t.jsonl"))
    with pytest.raises(DataError, match=r"t.jsonl, line 1: expected a JSON object, got int"):
        read_header(written(tmp_path, "1\n", "t.jsonl"))


def test_a_list_of_objects_is_read_as_objects_a_line_are(tmp_path):
    listed = written(tmp_path, '[\n {"text": "a", "label": 1},\n {"text": "b",\n  "label": 2}\n]\n', "t.json")
    lines = written(tmp_path, '{"text": "a", "label": 1}\n{"text": "b", "label": 2}\n', "t.jsonl")
    assert read_header(listed) == read_header(lines) == ["text", "label"]
    (first, second), expected = read_rows(listed, COLUMNS), read_rows(lines, COLUMNS)
    assert [row._replace(line=0) for row in (first, second)] == [row._replace(line=0) for row in expected]
    assert (first.line, second.line) == (2, 3)


def test_the_delimiter_that_a_first_line_states_is_used(tmp_path):
    path = written(tmp_path, "sep=;\ntext;label\na, b;1\nc;2;3\n", "t.csv")
    assert read_header(path) == ["text", "label"]
    with pytest.raises(DataError, match=r"t.csv, line 4: expected 2 fields between semicolons"):
        read_rows(path, COLUMNS)
    path = written(tmp_path, "sep=;\ntext;label\na, b;1\n", "t.csv")
    assert [(row.line, row.texts, row.label) for row in read_rows(path, COLUMNS)] == [(3, ("a, b",), "1")]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.csv", "id,text,label\n1,,x\n2,good,x\n , ,\n3, \t ,\n4,bad,y\n"),
        ("t.tsv.gz", "id\ttext\tlabel\n1\t\tx\n2\tgood\tx\n\t\t\n3\t \t\n4\tbad\ty\n"),
        (
            "t.jsonl",
            lines(
                *({"id": n, "text": text, "label": "x"} for n, text in enumerate((" ", "good", None, ""), 1)),
                {"id": 4, "text": "bad", "label": "y"},
            ),
        ),
    ],
)
def test_rows_without_a_text_are_skipped_counted_and_the_first_is_named(tmp_path, caplog, name, text):
    path = written(tmp_path, text, name)
    found = read_rows(path, COLUMNS)
    assert [(row.texts, row.label) for row in found] == [(("good",), "x"), (("bad",), "y")]
    first = 1 if name == "t.jsonl" else 2
    assert caplog.messages == [f"{path}: rows without a text, which are skipped: 3 of 5, the first in line {first}"]
    assert [row.id for row in found] == ["2", "5"]  # numbers count skipped rows


def test_a_table_has_all_rows_and_columns(tmp_path):
    path = written(tmp_path, "text,label,id\n,x,a\ngood,,b\n", "t.csv")
    table = read_table(path, COLUMNS)
    assert table.columns == ("text", "label", "id")
    assert [row.cells for row in table.rows] == [("", "x", "a"), ("good", "", "b")]
    path = written(tmp_path, lines({"text": "x", "n": 1}, {"text": None, "more": [1]}), "t.jsonl")
    table = read_table(path, COLUMNS)
    assert table.columns == ("text", "n", "more")
    assert [row.cells for row in table.rows] == [("x", "1", ""), ("", "", "[1]")]


@pytest.mark.parametrize(("delimiter", "shown"), [(";", '";"'), ("|", '"|"'), ("\t", "tabs")])
def test_another_delimiter_is_found_by_the_columns_and_named(tmp_path, caplog, delimiter, shown):
    path = written(tmp_path, f"text{delimiter}label\nfine, it is{delimiter}x\n", "t.csv")
    assert read_rows(path, COLUMNS)[0].texts == ("fine, it is",)
    assert caplog.messages == [f"{path} has columns separated by {shown}"]


def test_a_delimiter_that_is_given_is_used(tmp_path, caplog):
    path = written(tmp_path, "text~label\nfine~x\n", "t.txt")
    assert read_rows(path, COLUMNS, dialect=Dialect(delimiter="~"))[0].texts == ("fine",)
    assert not caplog.messages
    with pytest.raises(DataError, match=r"line 1: expected the columns text, label between semicolons, got text~label"):
        read_rows(path, COLUMNS, labelled=True, dialect=Dialect(delimiter=";"))


def test_columns_that_no_delimiter_gives_are_named_with_the_probable_one(tmp_path):
    path = written(tmp_path, "body;stars\nfine;1\n", "t.csv")
    with pytest.raises(DataError, match="expected the column text between semicolons, got body, stars; missing: text"):
        read_rows(path, COLUMNS)


def test_an_encoding_that_is_given_is_used(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes("text,label\n\u201cnice\u201d film \u20ac 5,a\n".encode("cp1252"))
    assert read_rows(path, COLUMNS, dialect=Dialect(encoding="cp1252"))[0].texts == ("\u201cnice\u201d film \u20ac 5",)
    with pytest.raises(DataError, match=r"t.csv, line 2, offset 11: .* set --data.encoding cp1252,"):
        read_rows(path, COLUMNS)


def test_further_columns_get_a_number_where_their_name_is_taken():
    source = SourceRows([0], ["1"], ("a", "b", "b 2"), [("x", "y, z", "")])
    assert table_with(source, ["b", "c"], [["1", "2"]]) == 'a,b,b 2,b 3,c\nx,"y, z",,1,2\n'


def test_tables_that_are_read_as_text_are_reported(caplog):
    warn_of_tables([Path(name) for name in ("a.txt", "b.txt.gz", "notes.md", "a.en", "a")])
    assert not caplog.messages
    warn_of_tables([Path("a.txt"), Path("b.jsonl")])
    warn_of_tables([Path("C.CSV"), Path("a.txt"), Path("d.tsv.gz"), Path("e.json")])
    one, several = caplog.messages
    assert one.startswith("b.jsonl: all characters are read as text, with the names and quotes of a table; ")
    assert several.startswith("C.CSV: ")
    assert "and so are those of 2 more files" in several
