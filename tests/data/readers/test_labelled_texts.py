import os
import re
from pathlib import Path

import pytest

from data import DataError
from data.readers.labelled_texts import PARTS, RowSource, parts_of_file, source_of_columns, table_files, table_source
from jaxnlp.input_files.tables import Columns, Dialect
from jaxnlp.targets import Number, OneClass

SST = "\tid\tsentence\tsentiment\n0\ta1\tfine film .\t3\n1\tb2\tso so\t0\n"
STS = "\tid\tsentence1\tsentence2\tsimilarity\n0\ta1\tone\ttwo\t2.5\n"


def known(part):
    return RowSource.of_known(PARTS[part], None)


def written(folder, text, name="table.csv"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def read(path, part):
    """Names, texts and labels of a file of a known data set."""
    source = known(part)
    rows, _ = source.read(path)
    found = source.labelled((path, rows), source.targets((path, rows)))
    return [(row.name, row.texts, row.label) for row in found]


def test_rows_of_known_data_sets_have_ids_texts_and_labels(tmp_path):
    assert read(written(tmp_path, SST), "sst") == [("a1", ("fine film .",), 3), ("b2", ("so so",), 0)]
    assert read(written(tmp_path, STS), "sts") == [("a1", ("one", "two"), 2.5)]
    unlabelled = "\n".join(line.rpartition("\t")[0] for line in SST.splitlines()) + "\n"
    assert read(written(tmp_path, unlabelled), "sst") == [("a1", ("fine film .",), None), ("b2", ("so so",), None)]


@pytest.mark.parametrize(
    ("part", "text", "message"),
    [
        ("sst", SST + "2\tc3\tbad\t5\n", "line 4: sentiment must be one of 0, 1, 2, 3, 4, got '5'"),
        ("sst", SST + "2\tc3\tbad\t1.5\n", "line 4: sentiment must be .*, got '1.5'"),
        ("sts", STS + "1\tb\tone\ttwo\t5.1\n", "line 3: similarity must be a number from 0 to 5, got '5.1'"),
        ("sts", STS + "1\tb\tone\ttwo\t-1\n", "line 3: similarity must be a number from 0 to 5, got '-1'"),
        ("sts", STS + "1\tb\tone\ttwo\tnan\n", "line 3: similarity must be a finite number, such as 2.5, got 'nan'"),
        ("sst", SST + "2\tc3\tbad\t1\t\n", "line 4: expected 4 fields between tabs, as in the header, got 5"),
        ("sst", '\tid\tsentence\tsentiment\n0\ta\t"two\nlines"\t1\n1\tb\tx\t9\n', "line 4: sentiment must be"),
        ("sts", SST, "missing: sentence1, sentence2"),
    ],
)
def test_what_is_no_row_is_named_by_its_line(tmp_path, part, text, message):
    with pytest.raises(DataError, match=message):
        read(written(tmp_path, text), part)


def test_a_table_is_given_by_its_name_and_one_file_or_two():
    assert table_files("stars=a.csv") == ("stars", "a.csv", None)
    assert table_files("stars=a.csv,b.csv") == ("stars", "a.csv", "b.csv")
    assert table_files("stars=~/a.csv,~/b.csv")[1:] == (f"{Path.home()}/a.csv", f"{Path.home()}/b.csv")
    for given in ("a.csv", "=a.csv", "x=", "x=a,b,c", "x/y=a.csv"):
        with pytest.raises(ValueError, match=rf"data.tables must be NAME=FILE .*got '{given}'"):
            table_files(given)


@pytest.mark.parametrize(
    ("header", "row", "columns", "targets"),
    [
        ("text,label", "a,{}", Columns(("text",), "label"), OneClass(("0", "1", "2"))),
        ("pair,text,label", "b,a,{}", Columns(("text", "pair"), "label"), OneClass(("0", "1", "2"))),
        ("text,pair,score", "a,b,{}", Columns(("text", "pair"), "score"), Number(0.0, 2.0)),
        ("score,text", "{},a", Columns(("text",), "score"), Number(0.0, 2.0)),
    ],
)
def test_the_columns_of_a_table_of_several_say_what_it_has(tmp_path, header, row, columns, targets):
    path = written(tmp_path, "\n".join([header, *(row.format(n % 3) for n in range(6))]) + "\n")
    source = table_source(f"mine={path},more.csv", Dialect())
    assert (source.columns, source.path, source.validation) == (columns, str(path), "more.csv")
    assert source.targets((path, source.read(path)[0])) == targets
    further = source_of_columns(len(columns.texts), number=isinstance(targets, Number), dialect=Dialect())
    assert (further.columns, further.predict) == (source.columns, source.predict)


def test_a_table_with_no_labels_or_two_kinds_is_refused(tmp_path):
    for header in ("text,stars", "text,label,score"):
        path = written(tmp_path, f"{header}\na,1,1\n")
        with pytest.raises(DataError, match=rf"line 1: expected the column label .* or score .*, got {header[:4]}"):
            table_source(f"mine={path}", Dialect())


def test_a_file_is_for_the_part_whose_labels_it_has(tmp_path):
    sources = {name: known(name) for name in ("sst", "quora", "sts")}
    assert parts_of_file(written(tmp_path, SST), sources) == ["sst"]
    assert parts_of_file(written(tmp_path, STS), sources) == ["sts"]
    own = {"one": source_of_columns(1, number=False, dialect=Dialect()), "two": None}
    own["two"] = source_of_columns(2, number=False, dialect=Dialect())
    assert parts_of_file(written(tmp_path, "text,pair,label\na,b,x\n"), own) == ["two"]  # it has single texts, too
    assert parts_of_file(written(tmp_path, "text,label\na,x\n"), own) == ["one"]


def test_a_file_without_labels_is_for_all_parts_with_such_texts(tmp_path, caplog):
    sources = {name: known(name) for name in ("sst", "quora", "sts")}
    path = written(tmp_path, "\tid\tsentence1\tsentence2\n0\ta\tb\tc\n")
    assert parts_of_file(path, sources) == ["quora", "sts"]
    assert "no labels: it does not have the column is_duplicate or sentiment or similarity" in caplog.text
    assert parts_of_file(written(tmp_path, "a\tb\n1\t2\n"), sources) == ["sst"]  # reading it names what is missing


def test_a_file_that_may_be_for_two_parts_is_refused(tmp_path):
    sources = {name: known(name) for name in ("sst", "cfimdb")}
    with pytest.raises(DataError, match=r"the column sentiment, which sst and cfimdb have; score it with a run of one"):
        parts_of_file(written(tmp_path, SST), sources)


@pytest.mark.realdata
@pytest.mark.parametrize(
    ("part", "name", "rows", "skipped"),
    [
        ("sst", "ids-sst-train.csv", 8_544, 0),
        ("sst", "ids-sst-test-student.csv", 2_210, 0),
        ("cfimdb", "ids-cfimdb-train.csv", 1_707, 0),
        ("sts", "sts-train.csv", 6_040, 0),
        ("sts", "sts-test-student.csv", 1_725, 0),
        ("quora", "quora-dev.csv.gz", 20_212, 2),  # one row without a text, one without a label
    ],
)
def test_the_projects_files_are_read_whole(part, name, rows, skipped, caplog):
    found = read(Path(os.environ["JAXNLP_DATA"]) / "cs224n_minbert" / name, part)
    assert len(found) == rows
    assert len(caplog.messages) == skipped
    assert all((label is None) == ("test" in name) for *_, label in found)


def test_numbers_that_are_too_far_apart_are_refused(tmp_path):
    path = written(tmp_path, "text,label\na,1e308\nb,-1e308\nc,2\n")
    source = RowSource(Columns(("text",), "label"), str(path), predict="number")
    with pytest.raises(DataError, match=r"label go from -1e\+308 to 1e\+308; .*: divide them by a constant"):
        source.targets((path, source.read(path)[0]))


def test_classes_that_differ_only_in_case_are_reported(tmp_path, caplog):
    path = written(tmp_path, "text,label\na,pos\nb,POS\nc,neg\n")
    source = RowSource(Columns(("text",), "label"), str(path))
    assert source.targets((path, source.read(path)[0])).names == ("POS", "neg", "pos")
    assert "POS and pos are different classes; they differ only in case" in caplog.text


@pytest.mark.parametrize(
    "other", ["caf\u00e9 1\u200b", "cafe\u0301 1", "caf\u00e9\u00a01", "caf\u00e9 1\ufe0f", "Cafe\u0301  1"]
)
def test_classes_that_look_alike_are_reported_by_their_characters(other, tmp_path, caplog):
    path = written(tmp_path, f"text,label\na,caf\u00e9 1\nb,{other}\nc,cafe 1\nd,c\n")
    source = RowSource(Columns(("text",), "label"), str(path))
    assert set(source.targets((path, source.read(path)[0])).names) == {"caf\u00e9 1", other, "cafe 1", "c"}
    (message,) = caplog.messages
    assert ascii(other) in message
    assert ascii("caf\u00e9 1") in message


def test_what_becomes_of_rows_without_a_label_is_said_for_each_split(tmp_path, caplog):
    paths = {name: written(tmp_path, "text,label\na,x\nb,\nc,y\n", f"{name}.csv") for name in ("train", "test")}
    splits = RowSource(Columns(("text",), "label"), str(paths["train"]), test=str(paths["test"])).tables()
    assert [[row.texts[0] for row in splits[name][1]] for name in paths] == [["a", "c"], ["a", "c"]]
    rest = "1 of 3, the first in line 3"
    assert caplog.messages == [
        f"{paths['train']}: rows without a label, which are skipped: {rest}",
        f"{paths['test']}: rows without a label, which are skipped; jaxnlp evaluate --file predicts them: {rest}",
    ]


@pytest.mark.parametrize("missing", ["NA", "N/A", "nan", "NULL", "None", "<NA>", "#N/A", r"\N", ""])
def test_signs_of_missing_values_are_no_numbers_and_are_named_among_classes(tmp_path, caplog, missing):
    path = written(tmp_path, f"text,label\na,1\nb,{missing}\nc,2\nd,2\n")
    numbers = RowSource(Columns(("text",), "label"), str(path), predict="number")
    assert [row.label for row in numbers.read(path)[0]] == ["1", "2", "2"]
    assert caplog.messages == [f"{path}: rows without a label, which are not scored: 1 of 4, the first in line 3"]
    caplog.clear()
    classes = RowSource(Columns(("text",), "label"), str(path))
    names = classes.targets((path, classes.read(path)[0])).names
    if missing in ("", r"\N"):
        assert names == ("1", "2")
    else:
        assert set(names) == {"1", "2", missing}
        assert (
            f"{path}: the label {missing} is a class; if its rows have no label, make their field empty" in caplog.text
        )


def test_a_text_that_a_database_wrote_as_missing_is_blank(tmp_path):
    path = written(tmp_path, "text\tlabel\n\\N\tx\nb\ty\n", "table.tsv")
    rows, source = RowSource(Columns(("text",), "label"), str(path)).read(path)
    assert [row.texts for row in rows] == [("b",)]
    assert list(source.cells[0]) == [r"\N", "x"]


def test_a_path_may_start_with_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    written(tmp_path, "text,label\na,x\nb,y\n")
    source = table_source("mine=~/table.csv", Dialect())
    assert source.columns.label == "label"
    assert len(source.tables()["train"][1]) == 2


@pytest.mark.parametrize(
    ("separator", "names", "warned"), [(",", ("art", "art;music"), True), (";", ("art", "music"), False)]
)
def test_another_separator_of_several_classes_is_reported(tmp_path, caplog, separator, names, warned):
    path = written(tmp_path, "text,label\nx,art\ny,art;music\nz,\n")
    source = RowSource(Columns(("text",), "label"), str(path), predict="classes", separator=separator)
    assert source.targets((path, source.read(path)[0])).names == names
    assert ("no row has several classes with ',' between them; 'art;music' is one class" in caplog.text) is warned


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("table.csv", "text,label\nu,a\nv,\nw,\\N\n"),
        ("table.jsonl", '{"text": "u", "label": ["a"]}\n{"text": "v", "label": []}\n{"text": "w", "label": null}\n'),
        ("table.jsonl", '{"text": "u", "label": "a"}\n{"text": "v", "label": ""}\n{"text": "w"}\n'),
    ],
)
def test_a_row_with_none_of_the_classes_is_labelled_and_one_with_a_missing_label_is_not(
    tmp_path, caplog, name, content
):
    path = written(tmp_path, content, name)
    source = RowSource(Columns(("text",), "label"), str(path), predict="classes")
    rows = source.read(path)[0]
    labelled = source.labelled((path, rows), source.targets((path, rows)))
    assert [(row.texts, row.label) for row in labelled] == [(("u",), (0,)), (("v",), ())]
    assert [row.texts for row in source.without_label(path, rows)[0]] == [("w",)]
    line = 4 - name.endswith("jsonl")
    assert caplog.messages == [f"{path}: rows without a label, which are not scored: 1 of 3, the first in line {line}"]


def test_rows_without_a_label_are_found_in_a_list_in_one_line(tmp_path):
    path = written(tmp_path, '[{"text": "v", "label": "a"}, {"text": "w"}, {"text": "x", "label": "b"}]', "t.json")
    source = RowSource(Columns(("text",), "label"), str(path))
    rows, everything = source.read(path)
    assert everything.indices == [0, 2]
    others, of_others = source.without_label(path, rows)
    assert ([row.texts for row in others], of_others.indices) == ([("w",)], [1])


@pytest.mark.parametrize("predict", ["class", "classes"])
def test_classes_keep_the_spelling_of_the_table(tmp_path, caplog, predict):
    """A user joins the predictions with the table by its labels."""
    path = written(tmp_path, "text,label\na,1.0\nb,2.0\nc,3.1\nd,3.10\n")
    source = RowSource(Columns(("text",), "label"), str(path), predict=predict)
    rows = path, source.read(path)[0]
    targets = source.targets(rows)
    assert targets.names == ("1.0", "2.0", "3.1", "3.10")
    assert [targets.show(row.label) for row in source.labelled(rows, targets)] == ["1.0", "2.0", "3.1", "3.10"]
    assert not caplog.messages
    other = written(tmp_path, "text,label\na,1\nb,2\n", "other.csv")
    read = source.labelled((other, source.read(other)[0]), targets)
    assert [targets.show(row.label) for row in read] == ["1.0", "2.0"]
    assert caplog.messages == [f"{other}: numbers that are written in two ways: 1 is the class 1.0, 2 is the class 2.0"]


@pytest.mark.parametrize("predict", ["class", "classes"])
def test_two_spellings_of_a_number_are_one_class_and_are_named(tmp_path, caplog, predict):
    path = written(tmp_path, "text,label\na,3.0\nb,3\nc,2.0\n")
    source = RowSource(Columns(("text",), "label"), str(path), predict=predict)
    rows = path, source.read(path)[0]
    targets = source.targets(rows)
    assert targets.names == ("2.0", "3")
    assert [targets.show(row.label) for row in source.labelled(rows, targets)] == ["3", "3", "2.0"]
    assert caplog.messages == [f"{path}: numbers that are written in two ways: 3.0 is the class 3"]


LISTS = ["['a', 'b']", "['a' 'b']", "{'a'}", "('a',)"]
VALUES = [*LISTS, "[]", "[1, 2]", "[0]", "[1 0 0 1]", "{1}", "(1, 2)", "()", "set()"]
"""Lists as pandas and NumPy write them."""


@pytest.mark.parametrize(
    ("predict", "label"), [*(("classes", one) for one in VALUES), *(("class", one) for one in LISTS)]
)
def test_classes_that_are_written_as_a_list_are_refused(tmp_path, predict, label):
    path = written(tmp_path, f'text,label\nx,a\ny,"{label}"\n')
    source = RowSource(Columns(("text",), "label"), str(path), predict=predict)
    remedy = "" if predict == "classes" else "set --data.predict classes if examples have several classes, and "
    message = f"line 3: label is written as a list, {label}; {remedy}write its classes with ',' between them"
    with pytest.raises(DataError, match=re.escape(message)):
        source.read(path)


@pytest.mark.parametrize(("predict", "label"), [("class", "[0, 18]"), ("class", "(0, 18]"), ("classes", "(neg)")])
def test_a_class_may_have_brackets(tmp_path, predict, label):
    path = written(tmp_path, f'text,label\nx,a\ny,"{label}"\n')
    source = RowSource(Columns(("text",), "label"), str(path), predict=predict)
    assert source.targets((path, source.read(path)[0])).names == tuple(sorted([label, "a"]))


def test_texts_that_are_names_of_missing_values_are_counted(tmp_path, caplog):
    path = written(tmp_path, "text,label\nfine,a\nnan,b\n<NA>,b\nnone of it,a\n")
    rows, _ = RowSource(Columns(("text",), "label"), str(path)).read(path)
    assert len(rows) == 4
    assert [line.partition(";")[0] for line in caplog.messages] == [
        f"{path}: 2 texts are names of missing values, the first 'nan' in line 3"
    ]
