from data.pipelines.fingerprints import vocabulary_text
from jaxnlp.text.characters import CharacterVocabulary
from jaxnlp.text.words import WordVocabulary


def test_the_text_of_a_vocabulary_has_all_its_fields():
    assert vocabulary_text(CharacterVocabulary("aß")) == '{"characters": ["a", "ß"]}\n'
    assert vocabulary_text(WordVocabulary(["a"], unknown="a")) == '{"words": ["a"], "unknown": "a"}\n'
