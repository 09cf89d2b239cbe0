import re

import pytest

from jaxnlp.text.characters import CharacterVocabulary
from jaxnlp.text.vocabulary import load_vocabulary
from jaxnlp.text.words import WordVocabulary


@pytest.mark.parametrize("vocabulary", [CharacterVocabulary.of("abc"), WordVocabulary(["abc", "?"], unknown="?")])
def test_a_vocabulary_of_either_kind_reads_back_equal(tmp_path, vocabulary):
    path = tmp_path / "vocabulary.json"
    path.write_text(vocabulary.to_json(), encoding="utf-8")
    assert load_vocabulary(path) == vocabulary


@pytest.mark.parametrize("vocabulary", [CharacterVocabulary.of("abc "), WordVocabulary(["ab", "c"])])
def test_texts_of_pieces_make_up_the_text_of_the_whole(vocabulary):
    assert vocabulary.decode([0, 1]) + vocabulary.decode([1]) == vocabulary.decode([0, 1, 1])


@pytest.mark.parametrize("content", ["", "{", "[]", "null", "{}", '"words"', '{"words": 3}', '{"characters": ["ab"]}'])
def test_a_file_that_holds_something_else_is_named(tmp_path, content):
    path = tmp_path / "vocabulary.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=rf"^{re.escape(str(path))} holds no .*vocabulary: "):
        load_vocabulary(path)
