import pytest

from jaxnlp.corpus import DataError
from jaxnlp.input_files.json_objects import is_json, json_objects, parse_json


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1\n\n[2]\n", [(1, 1), (3, [2])]),
        ('{"a": 1}\n {"a": "[x]"} \n', [(1, {"a": 1}), (2, {"a": "[x]"})]),
        ("[]", []),
        ('["a", {}]\n[2]\n', [(1, ["a", {}]), (2, [2])]),
        ('\n[{"a": 1},\n{"a":\n2}, 3\n]\n', [(2, {"a": 1}), (3, {"a": 2}), (4, 3)]),
        ('\n{\n"a": 1}\n', [(2, {"a": 1})]),
    ],
)
def test_values_have_the_line_at_which_they_start(text, values):
    assert [*json_objects(text, "x.json")] == values


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1\n{", "x.json, line 2: not JSON: Expecting property name .* at character 2; expected an object a line"),
        ("[1,\n 2", "x.json, line 2: not JSON"),
        ('[{},\n{"a": 1, "a": 2}]', "x.json, line 2: not JSON: the name 'a' occurs twice"),
        ('{"a": [\n1\n2]}', "x.json, line 3: not JSON: Expecting ',' delimiter at character 1"),
        ('{"a":' * 100_000, "x.json, line 1: not JSON: .* levels deep"),
        ("1\n" + "[" * 100_000, "x.json, line 2: not JSON: .* levels deep"),
        ("[" * 100_000, "x.json, line 1: not JSON: .* levels deep"),
    ],
)
def test_what_is_not_json_is_named_with_its_line(text, words):
    with pytest.raises(DataError, match=words):
        list(json_objects(text, "x.json"))


def test_json_has_at_most_a_hundred_levels():
    assert parse_json("[" * 100 + "1" + "]" * 100)
    for text in ("[" * 101 + "]" * 101, '{"a":[' * 51 + "]}" * 51, '[{"a": 1}, ' + "[" * 100 + "]" * 101):
        with pytest.raises(ValueError, match="more than 100 levels deep"):
            parse_json(text)
    with pytest.raises(ValueError, match="Expecting value"):
        parse_json(b"")


def test_a_file_is_json_if_it_begins_with_an_object_or_a_list_of_objects():
    for text in ('{"a": 1}', ' \n{"a": 1}\nx', '[\n {"a"', '[{"a"', '[\n ["a", {}]]'):
        assert is_json(text)
    for text in ("{ O\n", "[ O\n", "[[ O\n", "a O\n", "[1]", ""):
        assert not is_json(text)
