import pytest

from jaxnlp.corpus import DataError
from jaxnlp.text.columns import parse_columns, without_positions

TEXT = "-DOCSTART- -X- O\n\nAnn NNP B-PER\nsees VBZ O\n\n \nRome NNP B-LOC\n"


def test_sentences_have_the_rows_and_the_line_numbers_of_their_words():
    found = parse_columns(TEXT, "file")
    assert (found.separator, found.width) == (" ", 3)
    assert "\n".join(found.lines) + "\n" == TEXT
    first, second = found.sentences
    assert (first.number, first.lines) == (1, (3, 4))
    assert first.rows == (("Ann", "NNP", "B-PER"), ("sees", "VBZ", "O"))
    assert (second.number, second.lines, second.rows) == (2, (7,), (("Rome", "NNP", "B-LOC"),))
    assert parse_columns(TEXT.replace(" ", "\t"), "file").separator == "\t"
    assert [first.column(place, "file") for place in (0, 2, -1)] == [("Ann", "sees"), *[("B-PER", "O")] * 2]


def test_a_line_between_documents_ends_a_sentence_and_needs_no_columns():
    found = parse_columns("a X\n-DOCSTART-\nb Y\n", "file")
    assert [one.rows for one in found.sentences] == [(("a", "X"),), (("b", "Y"),)]


def test_comments_have_no_word_unless_they_have_the_columns_of_one():
    text = "# id 5\tdomain=en\n# _ O\nAnn _ O\n\n#begin document (a); part 0\n\n# newpar\nRome _ O\n"
    first, second = parse_columns(text, "file").sentences
    assert (first.rows, first.lines) == ((("#", "_", "O"), ("Ann", "_", "O")), (2, 3))
    assert (second.rows, second.lines, second.number) == ((("Rome", "_", "O"),), (8,), 2)
    (only,) = parse_columns("# O\n", "file").sentences
    assert only.rows == (("#", "O"),)
    with pytest.raises(DataError, match=r"file, line 2 \(sentence 1, word 2\): expected 2 columns"):
        parse_columns("a O\n# id 5\n", "file")
    with pytest.raises(DataError, match=r"file, line 3 \(sentence 2, word 1\): expected 2 columns"):
        parse_columns("a O\n\n#tag\n", "file")


def test_numbers_of_words_mark_multiword_tokens_and_empty_nodes():
    text = "1-2\tdont\t_\n1\tdo\tO\n2\tnt\tO\n2.1\tx\t_\n\n1\tgo\tO\n"
    first, second = parse_columns(text, "file").sentences
    assert (first.lines, first.column(1, "file"), second.lines) == ((2, 3), ("do", "nt"), (6,))
    (words,) = parse_columns("1-2 O\n1 O\n3 O\n", "file").sentences
    assert len(words.rows) == 3


@pytest.mark.parametrize(
    ("text", "written"),
    [
        # Lines between documents have all columns.
        ("-DOCSTART- -X- O\n\na b O\n", "-DOCSTART- -X- O O\n\na b O X\n"),
        ("-DOCSTART-\n\na b O\n", "-DOCSTART- O O O\n\na b O X\n"),
        ("-DOCSTART- -X- O\na -X- _ O\n", "-DOCSTART- -X- O O O\na -X- _ O X\n"),  # Label Studio's export
        ("-DOCSTART- -X- O\n\na\tb\tO\n", "-DOCSTART-\t-X-\tO\tO\n\na\tb\tO\tX\n"),
        ("-DOCSTART- (1 EU)\na\tO\n", "-DOCSTART-\t(1\tEU)\na\tO\tX\n"),
        # One separator between columns, and none at the end of a line.
        ("a   b  O  \n \t\nc d O", "a b O X\n\nc d O X\n"),
        ("a \tO \nb c\tO\n\n\n", "a\tO\tX\nb c\tO\tX\n\n\n"),
        ("a\t\n", "a\t\tX\n"),
        # Multiword tokens have the column, and comments stay.
        ("# t = a\n1-2\tab\n1\ta\n2\tb\n", "# t = a\n1-2\tab\tO\n1\ta\tX\n2\tb\tX\n"),
    ],
)
def test_a_further_column_leaves_all_lines_with_the_same_number_of_columns(text, written):
    columns = parse_columns(text, "file")
    values = [["X"] * len(one.rows) for one in columns.sentences]
    assert columns.with_column(values, "O") == written


@pytest.mark.parametrize("space", ["\u00a0", "\u3000", "\u2028", "\x0c"])
def test_only_tabs_and_blanks_separate_columns(space):
    (blanks,) = parse_columns(f"10{space}000 NUM\n", "file").sentences
    assert blanks.rows == ((f"10{space}000", "NUM"),)
    (tabs,) = parse_columns(f"{space}\tSYM\nNew York\tPROPN\n", "file").sentences
    assert tabs.rows == ((space, "SYM"), ("New York", "PROPN"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\n \n", "file has no sentences; expected a word a line, and an empty line after each sentence"),
        ("Ann O\nsees\n", r"file, line 2 \(sentence 1, word 2\): expected 2 columns between spaces, as in line 1, "
         "got 1"),
        ("Ann O\n\nNew York O\n", r"line 3 \(sentence 2, word 1\): expected 2 columns between spaces, as in line 1, "
         "got 3: 'New York O'"),
        ("Ann\nsees O\n", "line 2 .*: expected 1 column, as in line 1, got 2"),
        ("Ann\tX\tO\nsees\tO\n", "line 2 .*: expected 3 columns between tabs, as in line 1, got 2"),
        ("Ann O\nsees\tO\n", r"line 2 .*: expected spaces between the columns, as in line 1, got tabs: 'sees\\tO'"),
        ("Ann\tO\nsees O\n", "line 2 .*: expected tabs between the columns, as in line 1, got spaces: 'sees O'"),
        ("No, Word,Tag\n1,Ann,O\n", "line 2 .*: expected 2 .*, got 1: '1,Ann,O'; write tabs between"),
        ("Ann\tO\nsees\n", "line 2 .*: expected 2 columns between tabs, as in line 1, got 1: 'sees'"),
    ],
)  # fmt: skip
def test_lines_that_do_not_fit_are_named(text, message):
    with pytest.raises(DataError, match=message):
        parse_columns(text, "file")


@pytest.mark.parametrize("blank", ["\u00a0", "\u200b", "\ufeff", " \u3000\t"], ids=ascii)
def test_a_line_of_only_white_space_or_without_width_separates_sentences(blank):
    columns = parse_columns(f"a X\n{blank}\nb Y\n", "file")
    assert [one.rows for one in columns.sentences] == [(("a", "X"),), (("b", "Y"),)]
    assert columns.with_column(["1", "2"], "O") == "a X 1\n\nb Y 2\n"


def test_a_value_with_a_blank_stays_one_column():
    for separator, value in ((" ", "B-full_name"), ("\t", "B-full name")):
        written = parse_columns(f"a{separator}X\n", "file").with_column([["B-full name"]], "O")
        assert written == f"a{separator}X{separator}{value}\n"


def test_numbers_of_words_are_no_words():
    columns = parse_columns("1 Ann X\n2 sees Y\n\n1 Bob X\n", "file")
    assert columns.words(1, "file") == [("Ann", "sees"), ("Bob",)]
    with pytest.raises(DataError, match=r"x.conllu: column 0 numbers the words"):
        parse_columns("1\tAnn\n\n1\tBob\n", "x.conllu").words(0, "x.conllu")
    assert parse_columns("1\tAnn\n\n1\tBob\n", "file").words(0, "file") == [("1",), ("1",)]
    with pytest.raises(DataError, match=r"file: column 0 numbers the words; choose .* --data.word-column"):
        columns.words(0, "file")
    assert parse_columns("1 X\n\n1 Y\n", "file").words(0, "file") == [("1",), ("1",)]


@pytest.mark.parametrize(("text", "place"), [("a X\n", 2), ("a X\n", -3), ("\tX\n", 0)])
def test_a_column_that_is_missing_or_empty_is_named(text, place):
    (sentence,) = parse_columns(text, "file").sentences
    with pytest.raises(DataError, match=rf"file, line 1 \(sentence 1, word 1\): expected text in column {place}, "):
        sentence.column(place, "file")


def test_positions_of_characters_are_removed_when_all_words_have_one():
    assert without_positions([("京0", "10"), ("城12",)]) == [("京", "1"), ("城",)]
    assert without_positions([("京0",), ("城",)]) == [("京0",), ("城",)]
