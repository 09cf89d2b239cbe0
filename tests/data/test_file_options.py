import dataclasses

import pytest

from data.file_options import TableFiles, TextFiles
from jaxnlp.config import refuse_unread
from jaxnlp.input_files.tables import Writing


def test_options_say_how_tables_are_written():
    assert TableFiles(encoding="cp1252", delimiter="\\t").writing == Writing(None, "\t", "auto", "cp1252")
    assert TableFiles().writing == Writing()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"delimiter": ";;"}, "data.delimiter must be one character, but not a quote or a line break, got ';;'"),
        ({"delimiter": '"'}, "data.delimiter must be one character"),
        ({"delimiter": ""}, "data.delimiter must be one character"),
        ({"encoding": "windows"}, "data.encoding must be an encoding such as utf-8, cp1252, .*, got 'windows'"),
    ],
)
def test_options_that_cannot_be_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        TableFiles(**fields)


@pytest.mark.parametrize("kind", [TextFiles, TableFiles])
def test_options_apply_only_to_files_of_the_users(kind):
    options = {rule.field for rule in kind().read_if_own(False, "data.source files")}
    assert options == {field.name for field in dataclasses.fields(kind)} - {"batch_size"}
    config = kind(encoding="latin1")
    with pytest.raises(ValueError, match=r"data.encoding applies only to data.source files"):
        refuse_unread(config, config.read_if_own(False, "data.source files"))
    refuse_unread(config, config.read_if_own(True, "data.source files"))
