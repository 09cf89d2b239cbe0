import gzip
import json
import re
from pathlib import Path

import pytest

from data import DataError
from data.table_rows import Columns, TableRow, format_of, labelled_rows, read_rows

COLUMNS = Columns(("text",), "label")
PAIRS = Columns(("a", "b"), "same", "name")


def written(folder, text, name):
    path = folder / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


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


def test_labels_of_json_are_texts_numbers_and_lists(tmp_path):
    found = [4, 4.5, True, None, ["x", 1], [], "x"]
    path = written(tmp_path, lines(*({"text": "t", "label": label} for label in found)), "t.jsonl")
    assert [row.label for row in read_rows(path, COLUMNS)] == ["4", "4.5", "true", "", "x,1", ",", "x"]
    path = written(tmp_path, lines({"text": "t", "label": ["x,y"]}), "u.jsonl")
    assert read_rows(path, COLUMNS, separator=";")[0].label == "x,y"
    with pytest.raises(DataError, match=r"u.jsonl, line 1: label: a label contains the separator ','"):
        read_rows(path, COLUMNS)


def test_pairs_have_names_and_lines_are_counted_with_blank_ones(tmp_path):
    path = written(tmp_path, "\n" + lines({"name": 7, "a": "x", "b": "y", "same": 1, "more": {}}), "t.jsonl")
    (row,) = read_rows(path, PAIRS)
    assert (row.line, row.id, row.texts, row.label) == (2, "7", ("x", "y"), "1")


def test_labels_are_read_where_rows_have_them_all_or_none(tmp_path):
    path = written(tmp_path, lines({"text": "x"}, {"text": "y"}), "t.jsonl")
    assert [row.label for row in read_rows(path, COLUMNS)] == [None, None]
    path = written(tmp_path, lines({"text": "x"}, {"text": "y", "label": "1"}), "t.jsonl")
    with pytest.raises(
        DataError, match="line 2: this row has label, but the rows before it do not; give each row a label, or none"
    ):
        read_rows(path, COLUMNS)
    with pytest.raises(DataError, match="line 1: expected the names text, label, got text; missing: label"):
        read_rows(path, COLUMNS, labelled=True)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("t.jsonl", '{"text": "x", "label": "1"}\n{"text": \n', "t.jsonl, line 2: not JSON: .*one JSON object a line"),
        ("t.jsonl", "[1]\n", "line 1: expected a JSON object, got list"),
        ("t.jsonl", '{"text": 5, "label": "1"}\n', "line 1: text must be a text, got 5"),
        ("t.jsonl", '{"text": "x", "label": {}}\n', "line 1: label must be a text, a number or a list"),
        ("t.jsonl", '{"text": " ", "label": "1"}\n', "line 1: text is empty; remove the row"),
        ("t.jsonl", '{"body": "x", "label": "1"}\n', "got body, label; missing: text"),
        ("t.jsonl", "\n\n", "has no rows$"),
        ("t.csv", "text,label\n", "has no rows below its header"),
        ("t.csv", "text,label\n,1\n", "line 2: text is empty"),
        ("t.csv", "text,stars\nx,1\n", "got text, stars; missing: label"),
        ("t.csv", "text,label\nx,1,2\n", "line 2: expected 2 fields between commas"),
    ],
)
def test_what_is_no_row_is_named_by_its_line(tmp_path, name, text, message):
    with pytest.raises(DataError, match=message):
        read_rows(written(tmp_path, text, name), COLUMNS, labelled=True)


def test_the_ending_of_the_name_is_the_format():
    assert [format_of(Path(name)) for name in ("a.csv", "a.TSV.gz", "a.jsonl", "a.json.gz")] == [
        *("csv", "tsv"),
        *("json", "json"),
    ]
    with pytest.raises(DataError, match=r"a.txt must end in .csv .*, .tsv .* or .jsonl"):
        format_of(Path("a.txt"))


def test_rows_without_a_label_are_left_out_with_a_warning(caplog):
    rows = [TableRow(line, str(line), ("x",), label) for line, label in enumerate(["a", "", None, ""], 2)]
    assert [row.label for row in labelled_rows(Path("t.csv"), rows, "kind")] == ["a", None]
    assert caplog.messages == ["t.csv: rows without a label, which are ignored: 2, the first in line 3"]
    with pytest.raises(DataError, match=r"t.csv: no row has a label in the column kind"):
        labelled_rows(Path("t.csv"), rows[1:2], "kind")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ('{"text": "x", "label": ["a", "b"]}', "line 1: label is a list; set --data.predict classes"),
        ('{"text": "x", "label": NaN}', "line 1: label must be a text or a finite number, got NaN"),
        ('{"text": "\\ud800", "label": "a"}', "line 1: text has half of a surrogate pair"),
        ('{"text": "x", "label": "a", "text": "y"}', "line 1: not JSON: the name 'text' occurs twice; expected"),
        ('{"text": "x", "label": }', "line 1: not JSON: Expecting value at character 24; expected one JSON object"),
    ],
)
def test_labels_and_texts_of_json_that_are_none_are_named(tmp_path, row, message):
    with pytest.raises(DataError, match=re.escape(message)):
        read_rows(written(tmp_path, row, "t.jsonl"), COLUMNS, separator=None)
