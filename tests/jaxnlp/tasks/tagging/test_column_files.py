import pytest

from jaxnlp.tasks.tagging.column_files import read_columns


def test_words_keep_the_numbers_of_their_lines(tmp_path):
    path = tmp_path / "x.conll"
    path.write_text("-DOCSTART- O\n\nAnn NNP\nsees VBZ\n\nRome NNP\n")
    found = read_columns(path, 0)
    assert found.sentences == [[(2, "Ann"), (3, "sees")], [(5, "Rome")]]
    assert (found.separator, len(found.lines)) == (" ", 6)
    path.write_text("1\tNew York\n")
    assert read_columns(path, 1) == (["1\tNew York"], [[(0, "New York")]], "\t")
    path.write_text("Ann\nsees\n")
    assert read_columns(path, 0).sentences == [[(0, "Ann"), (1, "sees")]]


@pytest.mark.parametrize(
    ("data", "column", "message"),
    [
        (b"\n\n", 0, "x.conll has no words; expected a word a line"),
        (b"a O\n\nb\tO\n", 0, r"line 3 \(sentence 2\): expected blanks between the columns, as in the first line, got"),
        (b"a O\n", 2, r"line 1 \(sentence 1\): expected a word in column 2, got 2 columns: 'a O'"),
        (b"\xff", 0, "x.conll: not UTF-8"),
    ],
)
def test_bad_lines_are_named(tmp_path, data, column, message):
    (tmp_path / "x.conll").write_bytes(data)
    with pytest.raises(ValueError, match=message):
        read_columns(tmp_path / "x.conll", column)
