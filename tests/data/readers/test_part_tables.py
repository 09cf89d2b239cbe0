from pathlib import Path

import pytest

from data import DataError
from data.readers.part_tables import PartFiles, columns_for, part_files, read_part
from jaxnlp.input_files.tables import Columns
from jaxnlp.text.labels import Labels


def csv_file(tmp_path, header, rows, name="mine.csv"):
    path = tmp_path / name
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def test_a_table_is_given_by_its_name_and_one_file_or_two():
    assert part_files("stars=a.csv") == PartFiles("stars", Path("a.csv"), None)
    assert part_files("stars=a.csv,b.csv").validation == Path("b.csv")
    for given in ("a.csv", "=a.csv", "x=", "x=a,b,c", "x/y=a.csv"):
        with pytest.raises(ValueError, match=f"data.tables must be NAME=FILE .*got '{given}'"):
            part_files(given)


def test_classes_are_those_of_the_training_rows_and_a_tenth_of_each_is_held_out(tmp_path):
    path = csv_file(tmp_path, "text,label", [f"text {i},{'good' if i % 2 else 'bad'}" for i in range(40)])
    found = read_part(PartFiles("stars", path, None))
    assert found.labels == Labels("classification", 1, ("bad", "good"))
    assert (len(found.train), len(found.validation)) == (36, 4)
    assert [example.label for example in found.validation].count(1) == 2
    assert {example.id for example in found.train}.isdisjoint(example.id for example in found.validation)
    assert all(example.label == int(example.text.split()[1]) % 2 for example in found.train)


def test_a_second_file_is_for_validation_and_may_not_have_another_class(tmp_path):
    train = csv_file(tmp_path, "text,pair,label", ["a,b,yes", "c,d,no"])
    dev = csv_file(tmp_path, "text,pair,label", ["e,f,no"], "dev.csv")
    found = read_part(PartFiles("same", train, dev))
    assert found.labels == Labels("classification", 2, ("no", "yes"))
    assert [(row.text, row.pair, row.label) for row in found.validation] == [("e", "f", 0.0)]
    csv_file(tmp_path, "text,pair,label", ["e,f,perhaps"], "dev.csv")
    with pytest.raises(DataError, match=r"dev.csv, line 2: label must be one of no, yes, got 'perhaps'"):
        read_part(PartFiles("same", train, dev))


def test_scores_of_pairs_are_similarities_up_to_the_highest_in_training(tmp_path):
    path = csv_file(tmp_path, "text,pair,score", [f"a,b,{i % 5}" for i in range(20)])
    found = read_part(PartFiles("near", path, None))
    assert found.labels == Labels("similarity", 2, highest=4.0)
    assert columns_for(found.labels) == Columns(("text", "pair"), "score")
    csv_file(tmp_path, "text,pair,score", ["a,b,high"])
    with pytest.raises(DataError, match=r"mine.csv, line 2: score must be a number, got 'high'"):
        read_part(PartFiles("near", path, None))


@pytest.mark.parametrize(
    ("header", "rows", "message"),
    [
        ("text,stars", ["a,1"], "line 1: expected the column label for classes, or score .*, got text, stars"),
        ("text,score", ["a,1"], "line 1: the column score is the similarity of a pair, but the column pair is missing"),
        ("text,label", ["a,x", "b,x"], "the column label has only one distinct label; expected at least two"),
        (
            "text,label",
            ["a,x", "b,y"],
            "too few rows to hold out a tenth: 2; give more, or a second file after a comma",
        ),
        ("text,pair,score", ["a,b,0", "c,d,0"], "the highest score is 0; it must be a positive number"),
    ],
)
def test_tables_that_tell_too_little_are_refused(tmp_path, header, rows, message):
    path = csv_file(tmp_path, header, rows)
    with pytest.raises(DataError, match=rf"{path}.*{message}"):
        read_part(PartFiles("mine", path, None))
