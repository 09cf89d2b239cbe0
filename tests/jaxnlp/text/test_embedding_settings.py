import json

import pytest

from jaxnlp.text.embedding_settings import PLAIN, EmbeddingSettings


def test_the_default_prompt_goes_before_texts_and_json_reads_back_equal():
    found = EmbeddingSettings((("query", "q: "), ("passage", "")), "query", False, 8, "cosine")
    assert (found.prompt, PLAIN.prompt) == ("q: ", "")
    assert EmbeddingSettings.from_json(json.loads(json.dumps(found.to_json()))) == found
    assert hash(found) != hash(PLAIN)


@pytest.mark.parametrize("fields", [{}, {"prompts": [1]}, {"prompts": [], "width": 3}, {"prompts": 3}], ids=str)
def test_fields_that_are_no_settings_are_refused(fields):
    with pytest.raises(ValueError, match="embedding settings cannot be read"):
        EmbeddingSettings.from_json(fields)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"default_prompt": "x"}, "default_prompt_name 'x' is not among the prompts: none"),
        ({"truncate_dim": True}, "truncate_dim must be a whole number of at least 1, got True"),
        ({"include_prompt": None}, "include_prompt must be true or false"),
        ({"prompts": (("x", None),)}, "prompts must be texts by name"),
    ],
)
def test_settings_are_checked(fields, message):
    with pytest.raises(ValueError, match=message):
        EmbeddingSettings(**fields)
