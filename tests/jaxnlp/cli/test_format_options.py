import pytest

from jaxnlp.cli.format_options import FileFormat


def test_only_what_differs_from_training_is_given():
    assert FileFormat().given == {}
    assert FileFormat(encoding="cp1252", delimiter=r"\t").given == {"encoding": "cp1252", "delimiter": "\t"}
    FileFormat().check_files(None)
    FileFormat(quotes="none", encoding="cp1252").check_files("x.csv")


@pytest.mark.parametrize(("field", "value"), [("quotes", "none"), ("encoding", "cp1252")])
def test_a_format_without_a_file_is_refused_and_only_tables_have_more_than_an_encoding(field, value):
    format = FileFormat(**{field: value})
    with pytest.raises(ValueError, match=rf"--data.{field} applies only to files, such as --file; give a file"):
        format.check_files(None, None)
    if field == "encoding":
        format.check_files(None, "words.conll")
    else:
        with pytest.raises(ValueError, match=f"--data.{field} applies only to"):
            format.check_files(None, "words.conll")


@pytest.mark.parametrize(("field", "value"), [("encoding", "windows"), ("delimiter", ";;"), ("quotes", "some")])
def test_a_wrong_format_is_refused_with_its_option(field, value):
    with pytest.raises(ValueError, match=rf"data.{field} must be .*got '{value}'"):
        FileFormat(**{field: value})
