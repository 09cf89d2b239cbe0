import csv
import io
import random

import pytest

from jaxnlp.corpus import DataError
from jaxnlp.input_files.delimited import between, find_delimiter, header_fields, read_records

PLAIN = [
    ["sentence", "label"],
    ['"I am early , she said', "1"],
    ["she left .", "0"],
    ['he said , "', "1"],
    ["fine", "0"],
]
"""Rows of a file without quoting."""


def joined(rows, delimiter):
    return "".join(delimiter.join(row) + "\n" for row in rows)


def fields(text, delimiter, **options):
    return [record.fields for record in read_records(text, "t", delimiter, **options)]


def test_quotes_of_tables_with_tabs_are_characters_where_they_would_enclose_rows(caplog):
    assert fields(joined(PLAIN, "\t"), "\t") == PLAIN
    assert caplog.messages == [
        "t: quotes are read as characters, because they do not enclose fields; if they do, set --data.quotes csv"
    ]


@pytest.mark.parametrize(
    "rows",
    [
        [["a", "b"], ['"open', "1"], ["fine", "0"]],
        [["a", "b"], ['"one" and two', "1"], ['"', "0"]],
        [["a", "b", "c"], ["1", '"x', "y"], ["2", "x", 'y "'], ["3", '"z"', "z"]],
    ],
    ids=["unclosed", "text after a quote", "over two fields"],
)
def test_quotes_of_tables_with_tabs_are_characters_where_they_are_not_closed(rows):
    assert fields(joined(rows, "\t"), "\t") == rows


@pytest.mark.parametrize(
    ("text", "delimiter", "line"),
    [
        ('text,label\n"I am early she said,1\nshe left .,0\nhe said ",1\nfine,0\n', ",", 2),
        ('label;text\n0;fine\n1;"I am early\n0;she left\n1;he said "\n', ";", 3),
        ('text,score\n"I am early,0.25\nhe said ",1.5\nfine,3\n', ",", 2),
        ('text\tlabel\n"I am early\t1\nragged\nhe said "\t0\n', "\t", 2),
        ('text\n"I am early\nshe left\nhe said "\nfine\n', "\t", 2),
    ],
    ids=["csv", "label first", "numbers", "a row of another width", "a single column"],
)
def test_quotes_that_may_enclose_rows_are_refused_with_both_ways_out(text, delimiter, line):
    message = f"t, line {line}: a quote at the start of a field would enclose whole rows; set --data.quotes none .* csv"
    with pytest.raises(DataError, match=message):
        read_records(text, "t", delimiter)
    assert len(fields(text, delimiter, quotes="csv")) < text.count("\n")
    if "ragged" not in text:
        assert len(fields(text, delimiter, quotes="none")) == text.count("\n")


ESCAPED = [
    ["text", "label"],
    ['He said "hi", and left', "1"],
    ['"Yes"', "0"],
    ["in C:\\dir, or", "1"],
    ["two\nlines", "0"],
    ["fine", "1"],
]
"""Rows whose quotes have a backslash before them."""


def escaped(field, always):
    """As Spark writes a field, or MySQL, which always has quotes around it."""
    if not always and not any(character in field for character in '",;\t\n'):
        return field
    return '"' + field.replace("\\", "\\\\").replace('"', '\\"') + '"'


@pytest.mark.parametrize("quotes", ["auto", "backslash"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("always", [False, True])
def test_a_backslash_may_be_before_quotes_in_fields(delimiter, always, quotes, caplog):
    text = joined([[escaped(field, always) for field in row] for row in ESCAPED], delimiter)
    assert fields(text, delimiter, quotes=quotes) == ESCAPED
    assert [message.count("backslash") for message in caplog.messages] == [1] * (quotes == "auto")


def test_a_backslash_may_be_before_a_delimiter():
    assert fields("text,label\nyes\\, but,1\nno,0\n", ",")[1:] == [["yes, but", "1"], ["no", "0"]]


def test_other_backslashes_are_characters_where_quotes_have_one_and_null_is_empty():
    text = 'text,label\n"a \\"path\\" C:\\dir",1\n\\N,0\n'
    assert fields(text, ",")[1:] == [['a "path" C:\\dir', "1"], ["", "0"]]


def test_a_backslash_at_the_end_of_a_quoted_field_is_a_character_in_the_convention_of_spreadsheets(caplog):
    assert fields('text,label\n"C:\\dir\\",1\n', ",")[1:] == [["C:\\dir\\", "1"]]
    assert caplog.messages == []


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
def test_what_a_spreadsheet_writes_is_read(delimiter, quoting):
    texts = [
        "Hello, world\nbye; bye",
        'he said "no",\n\nand left',
        "a\nb",
        "plain",
        '"',
        f"x{delimiter}y",
        " ",
        '5" disk',
    ]
    rows = [["text", "label"], *([text, label] for text, label in zip(texts, ["pos", "neg"] * 4, strict=True))]
    file = io.StringIO()
    csv.writer(file, delimiter=delimiter, quoting=quoting, lineterminator="\n").writerows(rows)
    assert fields(file.getvalue(), delimiter) == rows


@pytest.mark.sweep(1)
@pytest.mark.parametrize("seed", range(20))
def test_random_tables_are_read_as_they_were_written(seed):
    generator = random.Random(seed)
    cell = lambda: "".join(generator.choices('ab ,"\n', k=generator.randrange(1, 8)))  # noqa: E731
    rows = [["text", "more", "label"], *([cell(), cell(), generator.choice("xy")] for _ in range(30))]
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows(rows)
    assert fields(file.getvalue(), ",", quotes="csv") == rows


def test_empty_lines_are_rows_only_of_a_table_of_one_column():
    assert fields("\n\na,b\n\nx,y\n\n", ",") == [["a", "b"], ["x", "y"]]
    assert fields("\na\nx\n\ny\n", ",") == [["a"], ["x"], [""], ["y"]]
    assert [record.line for record in read_records('\na,b\n"x\nx",y\n\nz,z\n', "t", ",")] == [2, 3, 6]
    assert fields("", ",") == []


def test_blank_rows_of_another_width_are_rows():
    assert fields("a,b\n , ,\n  \nx,y\n", ",") == [["a", "b"], ["", ""], ["", ""], ["x", "y"]]


@pytest.mark.parametrize("quotes", ["auto", "csv", "none", "backslash"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_fields_that_a_row_lacks_at_its_end_are_empty(delimiter, quotes, caplog):
    rows = [["a", "b", "c"], ["x", "y", "z"], ["x", "y"], ["x"], ["x", "", "z"]]
    assert fields(joined(rows, delimiter), delimiter, quotes=quotes) == [row + [""] * (3 - len(row)) for row in rows]
    assert caplog.messages == [
        "t: rows with fewer fields than the header: 2 of 4, the first in line 3; their last fields are empty"
    ]


@pytest.mark.parametrize(
    ("text", "delimiter", "rows"),
    [
        ('a,b,c\nx,"y, ""z""",z\n"x\nx"\n', ",", [["x", 'y, "z"', "z"], ["x\nx", "", ""]]),
        ('a,b,c\nx, "y, z", z\nx, "y, z"\n', ",", [["x", "y, z", "z"], ["x", "y, z", ""]]),
        ('a,b,c\nx,"\\"y\\"",z\n"\\"x\\", y"\n', ",", [["x", '"y"', "z"], ['"x", y', "", ""]]),
    ],
    ids=["quotes", "blanks before quotes", "backslashes"],
)
def test_short_rows_are_read_in_each_convention_of_quotes(text, delimiter, rows):
    assert fields(text, delimiter)[1:] == rows


@pytest.mark.parametrize("text", ["text,label\ngood;1\nbad;0\n", 'text,label\n"good,1"\n'])
def test_rows_without_any_delimiter_are_refused(text):
    with pytest.raises(DataError, match="t, line 2: expected 2 fields between commas, as in the header, got 1"):
        read_records(text, "t", ",")


def test_beside_short_rows_the_error_names_the_row_that_is_too_long():
    with pytest.raises(DataError, match=r"t, line 4: expected 2 fields .* got 3"):
        read_records("a,b\nx\nx,y\nx,y,z\n", "t", ",")


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ('a, "b"\n"x",  "y, ""z"""\n', [["a", "b"], ["x", 'y, "z"']]),
        ('a,b\n"x", "y"\n', [["a", "b"], ["x", "y"]]),
        ('a,b\n x, "y" z\n', [["a", "b"], [" x", ' "y" z']]),  # no whole field is between the quotes
        ('a,b\n x,"y, ""z"""\n', [["a", "b"], [" x", 'y, "z"']]),
        ('"a" ,"b"\n"x, y" , "z" \n', [["a", "b"], ["x, y", "z"]]),
        (
            'a,b\n"" ,"y, ""z"""  \n"one ""1"" , and\ntwo" ,z\n',
            [["a", "b"], ["", 'y, "z"'], ['one "1" , and\ntwo', "z"]],
        ),
        ('a,b\n"x "" , y",z\n', [["a", "b"], ['x " , y', "z"]]),
    ],
)
def test_blanks_may_be_between_quotes_and_delimiters(text, rows):
    assert fields(text, ",") == rows
    assert header_fields(text, ",") == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "delimiter", "message"),
    [
        ("a,b\nx\n", ",", "t, line 2: expected 2 fields between commas, as in the header, got 1; add the missing"),
        ("a,b\nx,y,\n", ",", "t, line 2: expected 2 fields between commas, .*, got 3; remove the commas at the end"),
        (
            "a,b\n1,x,y\n2,x,y\n",
            ",",
            "t, line 2: expected 2 fields between commas, .*, got 3; .* name of the first column",
        ),
        ("a,b\n1,x,y\nx,y\n", ",", "t, line 2: expected 2 fields between commas, .*, got 3; quote a field"),
        ("a\tb\nx\ty\tz\n", "\t", "line 2: expected 2 fields between tabs, .* contains a tab or a quote"),
        (
            'a,b\n"x,y\n',
            ",",
            "t, line 2: unexpected end of data; probably an unclosed quote: set --data.quotes",
        ),
        ('a,b\n"x"x,y\n', ",", "t, line 2: .*; probably an unclosed quote"),
        ('a,b\n"x" , y\n"x"x,y\n', ",", "t, line 2: .*; probably an unclosed quote"),
        ("# x\na,b\n", ",", "line 2: expected 1 field between .*, got 2; line 1 is read as the header; remove it if"),
    ],
)
def test_rows_that_are_wrong_are_named_by_their_line(text, delimiter, message):
    with pytest.raises(DataError, match=message):
        read_records(text, "t", delimiter)


def test_the_delimiter_is_the_one_with_which_the_columns_are_there():
    assert find_delimiter("a,b\n", ",", ["a"]) == ","
    assert find_delimiter("a;b\n1;2,5\n", ",", ["a", "b"]) == ";"
    assert find_delimiter("a\tb,c\n", ",", ["a"]) == "\t"
    assert find_delimiter("a\n", "\t", ["a"]) == "\t"
    assert find_delimiter("a|b|c;d\n", ",", ["x"]) == "|"
    assert find_delimiter("a,b;c;d\n", ",", ["x"]) == ","
    assert header_fields('\n"a, b" , c\n', ",") == ["a, b", "c"]
    assert header_fields("a" * 200_000 + ",b\rc", ",") == ["a" * 200_000, "b c"]
    assert [between(delimiter) for delimiter in ";\t~"] == ["semicolons", "tabs", "'~'"]
