import gzip
import os
from pathlib import Path

import pytest

from data import DataError
from data.minbert import LABELS, columns_of
from data.readers.text_tables import read_table
from jaxnlp.input_files.tables import Columns, Writing
from jaxnlp.text.labels import Labels, TextExample

SST = "\tid\tsentence\tsentiment\n0\ta1\tfine film .\t3\n1\tb2\tso so\t0\n"
STS = "\tid\tsentence1\tsentence2\tsimilarity\n0\ta1\tone\ttwo\t2.5\n"


def read(path, name, **options):
    return read_table(path, columns_of(name), LABELS[name], writing=Writing("tsv"), **options)[0]


def written(folder, text, name="table.csv"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_rows_of_single_texts_and_of_pairs(tmp_path):
    found = read(written(tmp_path, SST), "sst")
    assert found == (TextExample("a1", "fine film .", None, 3.0), TextExample("b2", "so so", None, 0.0))
    assert read(written(tmp_path, STS), "sts") == (TextExample("a1", "one", "two", 2.5),)


def test_quotes_hide_quotes_tabs_and_line_feeds(tmp_path):
    text = 'id\tsentence\tsentiment\na\t"he said ""no""\tand\nleft"\t1\nb\tplain "quotes" inside\t2\n'
    rows = read(written(tmp_path, text), "sst")
    assert [row.text for row in rows] == ['he said "no"\tand\nleft', 'plain "quotes" inside']


def test_blank_lines_are_ignored_and_blank_rows_are_skipped(tmp_path, caplog):
    text = SST.replace("\n1", "\n\n1") + "\n"
    assert read(written(tmp_path, text), "sst") == read(written(tmp_path, SST), "sst")
    assert read(written(tmp_path, text.rstrip("\n") + "\n2\tc\t\t1\n"), "sst") == read(written(tmp_path, SST), "sst")
    assert caplog.messages[-1].endswith("rows without a text, which are skipped: 1, the first in line 5")


def test_columns_are_found_by_name_and_others_are_ignored(tmp_path):
    text = "sentiment\tmore\tsentence\tid\n4\tx\tgood\ta\n"
    assert read(written(tmp_path, text), "sst") == (TextExample("a", "good", None, 4.0),)


def test_a_column_that_is_read_is_there_once(tmp_path):
    with pytest.raises(DataError, match=r"table.csv, line 1: each column must occur once, .*; repeated: sentence$"):
        read(written(tmp_path, "id\tsentence\tsentence\tsentiment\n0\ta\tb\t1\n"), "sst")
    text = "\t\tid\tsentence\tsentiment\n0\t0\ta\tfine\t1\n"
    assert read(written(tmp_path, text), "sst") == (TextExample("a", "fine", None, 1.0),)


def test_a_table_without_the_labels_column_asks(tmp_path):
    path = written(tmp_path, "0\t\tid\tsentence\n1\t0.0\ta\tfine\n")
    assert read(path, "sst") == (TextExample("a", "fine", None, None),)
    with pytest.raises(
        DataError, match=r"table.csv, line 1: expected the columns id, sentence, sentiment.*missing: sen"
    ):
        read(path, "sst", labelled=True)


def test_labels_are_not_read_where_they_are_not_to_be(tmp_path):
    rows = read(written(tmp_path, SST), "sst", labelled=False)
    assert [row.label for row in rows] == [None, None]


def test_rows_without_a_label_are_left_out_and_counted(tmp_path, caplog):
    text = "\tid\tsentence1\tsentence2\tis_duplicate\n0\ta\tone\ttwo\t1.0\n1\tb\tone\tx\t\n2\tc\tone\ttwo\t \n"
    assert [row.id for row in read(written(tmp_path, text), "quora")] == ["a"]
    assert "table.csv: rows without a label, which are skipped: 2, the first in line 3" in caplog.text


def test_gzip_is_read(tmp_path):
    path = tmp_path / "table.csv.gz"
    path.write_bytes(gzip.compress(SST.encode()))
    assert len(read(path, "sst")) == 2


@pytest.mark.parametrize(
    ("task", "text", "message"),
    [
        ("sst", SST + "2\tc3\tbad\t5\n", "line 4: sentiment must be a whole number from 0 to 4, got '5'"),
        ("sst", SST + "2\tc3\tbad\t1.5\n", "line 4: sentiment must be a whole number from 0 to 4, got '1.5'"),
        ("sst", SST + "2\tc3\tbad\tgood\n", "line 4: sentiment must be .*, got 'good'"),
        ("sst", SST + "2\tc3\tbad\tnan\n", "line 4: sentiment must be .*, got 'nan'"),
        ("sts", STS + "1\tb\tone\ttwo\t5.1\n", "line 3: similarity must be a number from 0 to 5, got '5.1'"),
        ("sts", STS.partition("\n")[0] + "\n1\tb\tone\t\t5.0\n", "all 1 rows are without a text"),
        ("sst", SST + "2\tc3\tbad\n", "line 4: expected 4 fields between tabs, as in the header, got 3"),
        ("sst", '\tid\tsentence\tsentiment\n0\ta\t"two\nlines"\t1\n1\tb\tx\t9\n', "line 4: sentiment must be"),
        ("sts", SST, "missing: sentence1, sentence2"),
        ("sst", "\tid\tsentence\tsentiment\n", "has no rows below its header"),
        ("sst", "\tid\tsentence\tsentiment\n0\ta\tb\t\n", "no row has a label in the column sentiment"),
    ],
)
def test_what_is_no_row_is_named_by_its_line(tmp_path, task, text, message):
    with pytest.raises(DataError, match=message):
        read(written(tmp_path, text), task)


def test_commas_may_separate_fields_and_rows_are_numbered_without_a_column_of_names(tmp_path):
    path = written(tmp_path, 'kind,text\nham,"hello, you"\nspam,buy\n')
    columns, labels = Columns(("text",), "kind"), Labels("classification", 1, ("ham", "spam"))
    found, source = read_table(path, columns, labels, writing=Writing("csv"))
    assert found == (TextExample("1", "hello, you", None, 0.0), TextExample("2", "buy", None, 1.0))
    assert (source.places, source.columns, source.cells[1]) == ([0, 1], ("kind", "text"), ("spam", "buy"))
    with pytest.raises(DataError, match="line 4: expected 2 fields between commas, as in the header, got 3; quote a"):
        read_table(written(tmp_path, "kind,text\nham,a\nham,b\nham,c,d\n"), columns, labels, writing=Writing("csv"))


@pytest.mark.realdata
@pytest.mark.parametrize(
    ("task", "name", "rows", "skipped"),
    [
        ("sst", "ids-sst-train.csv", 8_544, 0),
        ("sst", "ids-sst-dev.csv", 1_101, 0),
        ("sst", "ids-sst-test-student.csv", 2_210, 0),
        ("cfimdb", "ids-cfimdb-train.csv", 1_707, 0),
        ("cfimdb", "ids-cfimdb-dev.csv", 245, 0),
        ("cfimdb", "ids-cfimdb-test-student.csv", 488, 0),
        ("sts", "sts-train.csv", 6_040, 0),
        ("sts", "sts-dev.csv", 863, 0),
        ("sts", "sts-test-student.csv", 1_725, 0),
        ("quora", "quora-dev.csv.gz", 20_212, 2),  # one row without a text, one without a label
    ],
)
def test_the_projects_files_are_read_whole(task, name, rows, skipped, caplog):
    found = read(Path(os.environ["JAXNLP_DATA"]) / "cs224n_minbert" / name, task)
    assert len(found) == rows
    assert len(caplog.messages) == skipped
    assert all((row.label is None) == ("test" in name) for row in found)
