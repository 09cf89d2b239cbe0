import pytest

from jaxnlp.text.characters import CharacterVocabulary
from jaxnlp.text.words import WordVocabulary


@pytest.mark.parametrize("vocabulary", [CharacterVocabulary.of("abc "), WordVocabulary(["ab", "c"])])
def test_texts_of_parts_concatenated_are_the_text_of_the_whole(vocabulary):
    assert vocabulary.decode([0, 1]) + vocabulary.decode([1]) == vocabulary.decode([0, 1, 1])
