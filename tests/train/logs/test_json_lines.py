import pytest

from train.logs.json_lines import Line, read_lines, read_object


def test_lines_are_objects_with_their_numbers_and_bytes(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"step": 1}\n\n{"step":2, "text": "\xe2\x80\xa8"}\n{"step": 3')
    assert read_lines(path, step=int) == [
        Line(1, b'{"step": 1}', {"step": 1}),
        Line(3, b'{"step":2, "text": "\xe2\x80\xa8"}', {"step": 2, "text": "\u2028"}),
    ]


def test_no_file_has_no_lines(tmp_path):
    assert read_lines(tmp_path / "rows.jsonl") == []


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "not JSON"),
        ("[1]", r"expected an object, got \[1\]"),
        ("{}", "expected a field step of type int, got none"),
        ('{"step": true}', "expected a field step of type int, got True"),
    ],
)
def test_a_line_that_is_not_such_an_object_is_named(tmp_path, line, message):
    path = tmp_path / "rows.jsonl"
    path.write_text(f'{{"step": 1}}\n{line}\n{{"step": 2}}\n')
    with pytest.raises(ValueError, match=rf"rows\.jsonl, line 2: {message}.*; correct the line or remove it"):
        read_lines(path, step=int)


@pytest.mark.parametrize(
    ("content", "message"),
    [(b'{\n"a"}', ", line 2: not JSON"), (b'{"a": "\xff"}', ": not JSON"), (b"[1]", ": expected an object, got list")],
)
def test_what_is_no_object_is_named(tmp_path, content, message):
    path = tmp_path / "config.json"
    path.write_bytes(b'{"step": 1}\n')
    assert read_object(path) == {"step": 1}
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"config\.json{message}.*; restore the file"):
        read_object(path)
