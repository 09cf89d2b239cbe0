import pytest

from jaxnlp.cli.format_options import FileFormat


def test_only_what_differs_from_training_is_given():
    assert FileFormat().given == {}
    assert FileFormat(encoding="cp1252", delimiter=r"\t").given == {"encoding": "cp1252", "delimiter": "\t"}
    FileFormat().check_file(None)
    FileFormat(quotes="none").check_file("x.csv")
    with pytest.raises(ValueError, match=r"--data.quotes applies only to --file; give a file"):
        FileFormat(quotes="none").check_file(None)


@pytest.mark.parametrize(("field", "value"), [("encoding", "windows"), ("delimiter", ";;"), ("quotes", "some")])
def test_a_wrong_format_is_refused_with_its_option(field, value):
    with pytest.raises(ValueError, match=rf"data.{field} must be .*got '{value}'"):
        FileFormat(**{field: value})
